import numpy as np
import pytest

from barograph_modeler.maxima.band import empirical_band
from barograph_modeler.studies.maxima.nearest import nearest_band


def test_on_a_coarse_clock_both_limits_are_chosen_together():
    # The empirical band, 1 to 4, holds 99 of the 100. A new value lies below 2 with probability (3 + 1) / 101 and above
    # 5 with (0 + 1) / 101, together 0.0495: no other pair is as near to 0.05.
    sample = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], [3, 60, 32, 4, 1])
    assert (empirical_band(sample).lower, empirical_band(sample).upper) == (1.0, 4.0)
    band = nearest_band(sample[::-1])
    assert (band.method, band.samples, band.lower, band.expected, band.upper) == ("nearest", 100, 2.0, 2.0, 5.0)


@pytest.mark.parametrize("n", [100, 400])
def test_coverage_of_new_ticks_is_near_the_level(n):
    rng = np.random.default_rng(n)
    share = {nearest_band: [], empirical_band: []}
    for _ in range(400):
        sample, later = rng.poisson(6.0, n) / 4, rng.poisson(6.0, 200) / 4
        for fit, held in share.items():
            band = fit(sample)
            held.append(((later >= band.lower) & (later <= band.upper)).mean())
    assert np.mean(share[nearest_band]) == pytest.approx(0.95, abs=0.015)
    assert abs(np.mean(share[nearest_band]) - 0.95) < abs(np.mean(share[empirical_band]) - 0.95)


@pytest.mark.parametrize("n", [39, 200, 1001])
def test_without_ties_it_is_the_empirical_band_to_one_order_statistic(n):
    sample = np.sort(np.random.default_rng(n).normal(size=n))
    band, plain = nearest_band(sample), empirical_band(sample)
    assert abs(np.searchsorted(sample, band.lower) - np.searchsorted(sample, plain.lower)) <= 1
    assert abs(np.searchsorted(sample, band.upper) - np.searchsorted(sample, plain.upper)) <= 1


def test_order_does_not_matter_and_38_values_are_too_few():
    sample = np.random.default_rng(0).integers(0, 9, 80).astype(float)
    before = sample.copy()
    assert nearest_band(sample) == nearest_band(np.sort(sample))
    assert (sample == before).all()
    assert nearest_band(sample[:38]) is None


def test_a_constant_has_no_width():
    band = nearest_band([0.25] * 40)
    assert (band.lower, band.expected, band.upper) == (0.25, 0.25, 0.25)
