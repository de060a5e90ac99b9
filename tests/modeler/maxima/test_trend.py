import numpy as np
import pytest

from barograph_modeler.maxima.scaling import maximum_quantiles
from barograph_modeler.maxima.trend import CHANGE_FLOOR, growth, trend_band


def maxima(ranks, rng, slope=0.0, n=1000):
    """The slowest of `ranks` ranks, each 10 s and an exponential delay of mean 1 s, times ranks ** slope."""
    return (10 + rng.exponential(size=(n, ranks)).max(axis=1)) * ranks**slope


def held(band, values):
    return ((values >= band.lower) & (values <= band.upper)).mean()


@pytest.mark.parametrize("slope", [-1.0, -0.3, 0.0, 0.4, 1.0])
def test_values_at_a_larger_scale_are_covered_if_the_observed_trend_continues(slope):
    rng = np.random.default_rng(11)
    samples = {ranks: maxima(ranks, rng, slope) for ranks in (4, 8, 16)}
    for scale in (32, 64):
        assert held(trend_band(samples, scale), maxima(scale, rng, slope)) > 0.94


def test_a_trend_that_resampling_alone_misses_is_followed():
    rng = np.random.default_rng(12)
    samples = {ranks: maxima(ranks, rng, 0.5) for ranks in (4, 8)}
    later = maxima(16, rng, 0.5)
    lower, upper = maximum_quantiles(samples[8], 2.0, [0.025, 0.975])
    assert ((later >= lower) & (later <= upper)).mean() < 0.05
    assert held(trend_band(samples, 16), later) > 0.94


@pytest.mark.parametrize("slope", [0.0, 0.5, 0.8])
def test_one_scale_alone_allows_for_anything_between_no_growth_and_proportional_growth(slope):
    rng = np.random.default_rng(13)
    for factor in (2, 4):
        assert held(trend_band({4: maxima(4, rng, slope)}, 4 * factor), maxima(4 * factor, rng, slope)) > 0.9


def test_the_band_is_never_narrower_than_resampled_maxima():
    rng = np.random.default_rng(14)
    for _ in range(20):
        sample = rng.lognormal(0.0, rng.uniform(0.01, 2.0), 200)
        band = trend_band({8: sample}, 24)
        lower, upper = maximum_quantiles(sample, 3.0, [0.025, 0.975])
        assert band.lower <= lower * (1 + 1e-12)
        assert band.upper >= upper * (1 - 1e-12)


def test_the_slope_is_learned_and_its_error_grows_with_distance():
    rng = np.random.default_rng(15)
    logs = {ranks: np.log2(rng.lognormal(0.0, 0.01, 500) * ranks**0.25) for ranks in (2, 4, 8, 16, 32)}
    near, far = growth(logs, 64), growth(logs, 256)
    assert near.mean == pytest.approx(0.25, abs=0.02)
    assert far.mean == pytest.approx(0.75, abs=0.06)
    assert CHANGE_FLOOR < near.error < far.error < 0.25
    assert growth({32: logs[32]}, 64).error > near.error


def test_a_sample_whose_regime_moves_makes_a_wider_band():
    rng = np.random.default_rng(16)
    steady = rng.lognormal(0.0, 0.2, 1000)
    moving = steady * np.repeat(rng.lognormal(0.0, 0.5, 10), 100)
    mixed = rng.permutation(moving)
    assert trend_band({4: moving}, 8).upper > trend_band({4: mixed}, 8).upper > trend_band({4: steady}, 8).upper


def test_the_unit_does_not_matter_and_samples_are_not_modified():
    rng = np.random.default_rng(17)
    samples = {ranks: maxima(ranks, rng) for ranks in (4, 8)}
    before = {ranks: x.copy() for ranks, x in samples.items()}
    band = trend_band(samples, 16)
    micro = trend_band({ranks: x * 1e6 for ranks, x in samples.items()}, 16)
    assert (micro.lower, micro.expected, micro.upper) == pytest.approx(
        (band.lower * 1e6, band.expected * 1e6, band.upper * 1e6), rel=1e-9
    )
    assert all((samples[ranks] == before[ranks]).all() for ranks in samples)
    assert (band.method, band.samples, band.level) == ("trend", 1000, 0.95)


def test_38_values_at_the_largest_scale_are_too_few():
    assert trend_band({4: np.ones(1000), 8: np.ones(38)}, 16) is None


@pytest.mark.parametrize(
    ("samples", "scale", "message"),
    [
        ({}, 8, "samples of no scale, expected at least one"),
        ({4: [1.0], 8: [1.0]}, 8, "scale is 8, expected a finite number above the largest scale seen, 8"),
        ({0: [1.0]}, 8, "scale is 0, expected a finite number above 0"),
        ({4: [1.0, 0.0]}, 8, "value 1 at scale 4 is 0.0, expected more than 0"),
        ({4: [1.0, np.nan]}, 8, "sample value 1 is nan, expected finite numbers"),
    ],
)
def test_bad_input_is_refused_by_name(samples, scale, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        trend_band(samples, scale)
