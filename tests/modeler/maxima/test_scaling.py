import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from barograph_modeler.maxima.distribution import Gev, Gevs
from barograph_modeler.maxima.scaling import (
    EMMA,
    emmas,
    maximum_band,
    maximum_quantiles,
    mean_maximum,
    percentile_interval,
    percentile_positions,
)

samples = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=80)
levels = st.floats(0.001, 0.999)


@pytest.mark.parametrize("factor", [1, 2, 7, 64])
@pytest.mark.parametrize("n", [20, 333])
def test_exact_quantiles_are_the_limit_of_resampling(n, factor):
    x = np.random.default_rng(n).lognormal(size=n)
    replicas = 40_000
    drawn = np.sort(np.random.default_rng(3).choice(x, (replicas, factor)).max(axis=1))
    for q in (0.025, 0.5, 0.975):
        exact = maximum_quantiles(x, factor, [q])[0]
        # By Monte Carlo the count of draws at or below a value is binomial: the exact quantile lies between the order
        # statistics that this allows, and F_n ** factor steps over q there and not before.
        low, high = binom.interval(1 - 1e-6, replicas, q)
        assert drawn[int(low) - 1] <= exact <= drawn[int(high)]
        share = np.mean(x <= exact) ** factor
        assert share >= q - 1e-9
        assert np.mean(x < exact) ** factor < q


@settings(deadline=None)
@given(samples, st.floats(0.3, 1e4), st.lists(levels, min_size=2, max_size=6))
def test_quantiles_are_values_of_the_sample_and_ascend_with_level_and_factor(x, factor, some):
    before = list(x)
    ascending = sorted(some)
    found = maximum_quantiles(x, factor, ascending).tolist()
    assert found == sorted(found)
    assert set(found) <= set(x)
    assert (maximum_quantiles(x, 2 * factor, ascending) >= found).all()
    assert (maximum_quantiles(x[::-1], factor, ascending) == found).all()
    assert x == before


@settings(deadline=None)
@given(samples, st.integers(1, 512), levels, levels)
def test_bands_are_nested_in_their_level(x, factor, one, other):
    narrow, wide = (maximum_band(x, factor, level) for level in sorted((one, other)))
    assert wide.lower <= narrow.lower <= narrow.expected <= narrow.upper <= wide.upper


def test_order_statistics_are_exact_where_the_position_is_a_whole_number():
    x = np.arange(1.0, 101.0)
    assert maximum_quantiles(x, 1, [0.07, 0.57, 0.58]).tolist() == [7.0, 57.0, 58.0]  # 100 * 0.57 is 56.99999999999999
    assert maximum_quantiles(x, 2, [0.25, 0.2501, 0.81]).tolist() == [50.0, 51.0, 90.0]


def test_emma_is_the_mean_for_a_gumbel_and_near_it_for_others():
    assert math.exp(-math.exp(-np.euler_gamma)) == pytest.approx(EMMA, abs=1e-9)

    def emma(gev, factor):
        return emmas(Gevs(np.array([gev.shape]), np.array([gev.location]), np.array([gev.scale])), factor)[0]

    gumbel = Gev(0.0, 3.0, 2.0)
    for factor in (1, 8, 2048):
        assert emma(gumbel, factor) == pytest.approx(3 + 2 * (math.log(factor) + np.euler_gamma), rel=1e-8)
    for k in (-0.2, 0.2):
        gev = Gev(k, 3.0, 2.0)
        for factor in (1, 8, 2048):
            high = gev.scaled_up(factor)
            mean = high.location + high.scale * (1 - math.gamma(1 + k)) / k
            # Under a heavy tail it falls short by the same share of the scale whatever the factor, and under a light
            # one it comes close.
            assert -0.22 < (emma(gev, factor) - mean) / high.scale < 0.15
            assert (emma(gev, factor) < mean) == (k < 0)
            assert emma(gev, factor) == pytest.approx(high.quantile(EMMA))  # EMMA is one quantile of the exact form


def test_scaled_up_gev_is_the_distribution_of_maxima_by_monte_carlo():
    gev, factor = Gev(-0.15, 3.0, 0.5), 16
    one = Gevs(np.array([gev.shape]), np.array([gev.location]), np.array([gev.scale]))
    maxima = one.draw(20_000 * factor, np.random.default_rng(1)).reshape(-1, factor).max(axis=1)
    for q in (0.025, 0.5, 0.975):
        assert np.mean(maxima <= gev.scaled_up(factor).quantile(q)) == pytest.approx(q, abs=0.015)


@pytest.mark.parametrize(
    ("count", "level", "positions"),
    [(1000, 0.95, (25, 975)), (400, 0.95, (10, 390)), (1600, 0.95, (40, 1560)), (1000, 0.9, (50, 950))],
)
def test_limits_are_at_the_papers_positions(count, level, positions):
    assert percentile_positions(count, level) == positions
    values = np.random.default_rng(1).permutation(np.arange(1.0, count + 1))
    found = percentile_interval(values, level)
    assert (found.lower, found.upper, found.replicas) == (*positions, count)
    assert found.expected == (count + 1) / 2


def test_few_replicas_have_positions_within_them():
    assert percentile_positions(1, 0.95) == (1, 1)
    assert percentile_positions(10, 0.95) == (1, 10)


def test_bad_arguments_are_refused():
    x = [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match=r"^scale factor is 0, expected a finite number above 0$"):
        maximum_quantiles(x, 0, [0.5])
    with pytest.raises(ValueError, match=r"^quantile level is 1.0, expected a number between 0 and 1, both excluded$"):
        maximum_quantiles(x, 2, [0.5, 1.0])
    with pytest.raises(ValueError, match=r"^sample value 1 is nan, expected finite numbers$"):
        maximum_band([1.0, math.nan], 2)
    with pytest.raises(ValueError, match=r"^sample has 0 values, expected at least 1$"):
        maximum_band([], 2)
    with pytest.raises(ValueError, match=r"^scale factor is 0.5, expected at least 1$"):
        emmas(Gevs(np.zeros(1), np.ones(1), np.ones(1)), 0.5)


def test_the_mean_of_resampled_maxima_is_that_of_the_distribution_to_the_power_of_the_factor():
    x = np.random.default_rng(8).gumbel(size=500)
    for factor in (1.0, 2.5, 16.0):
        steps = np.diff(np.concatenate([[0.0], (np.arange(1, 501) / 500) ** factor]))
        mean = float(np.sort(x) @ steps)  # of one maximum, exactly
        sd = math.sqrt(float((np.sort(x) - mean) ** 2 @ steps) / 500)
        found = mean_maximum(x, factor, seed=1)
        assert found.replicas == 1000
        assert found.expected == pytest.approx(mean, abs=0.15 * sd)
        assert found.upper - found.lower == pytest.approx(2 * 1.96 * sd, rel=0.15)
    assert mean_maximum(x, 2, seed=1) == mean_maximum(x[::-1], 2, seed=1) != mean_maximum(x, 2, seed=2)
    with pytest.raises(ValueError, match=r"^scale factor is 0.5, expected at least 1$"):
        mean_maximum(x, 0.5, seed=1)
