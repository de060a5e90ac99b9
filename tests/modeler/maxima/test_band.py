import numpy as np
import pytest
from scipy.stats import genextreme, lognorm

from barograph_modeler.maxima.band import LEVEL, band_of_gev, band_of_replicas, empirical_band, minimum_samples
from barograph_modeler.maxima.distribution import Gevs
from barograph_modeler.maxima.fits.bootstrap import pwm_replicas
from barograph_modeler.maxima.fits.pwm import fit_pwm


def gev_band(sample, level=LEVEL):
    return band_of_gev(fit_pwm(sample), len(sample), level)


def test_39_values_support_95_percent_and_38_do_not():
    sample = np.arange(1.0, 40.0)
    band = empirical_band(sample[::-1])
    assert band is not None
    assert (band.lower, band.expected, band.upper) == pytest.approx((1.0, 20.0, 39.0))
    assert (band.method, band.samples, band.gev) == ("empirical", 39, None)
    assert empirical_band(sample[:38]) is None


@pytest.mark.parametrize(("level", "n"), [(0.5, 3), (0.8, 9), (0.9, 19), (0.95, 39), (0.98, 99), (0.99, 199)])
def test_minimum_is_where_the_extremes_reach_the_level(level, n):
    assert minimum_samples(level) == n


@pytest.mark.parametrize("n", [39, 60, 300])
def test_new_values_fall_into_an_empirical_band_as_often_as_it_says(n):
    rng = np.random.default_rng(n)
    held = []
    for _ in range(600):
        band = empirical_band(lognorm.rvs(1.0, size=n, random_state=rng))
        held.append(lognorm.cdf(band.upper, 1.0) - lognorm.cdf(band.lower, 1.0))
    # The share held by one band of 39 values has a standard deviation of 0.034.
    assert np.mean(held) == pytest.approx(0.95, abs=0.007)


def test_gev_band_is_the_quantiles_of_the_fit_and_holds_nearly_its_level():
    rng = np.random.default_rng(3)
    held = []
    for _ in range(300):
        sample = genextreme.rvs(-0.1, 1.0, 0.1, size=100, random_state=rng)
        band = gev_band(sample)
        held.append(genextreme.cdf(band.upper, -0.1, 1.0, 0.1) - genextreme.cdf(band.lower, -0.1, 1.0, 0.1))
    assert (band.method, band.samples, band.gev) == ("gev", 100, fit_pwm(sample))
    assert [band.gev.cdf(x) for x in (band.lower, band.expected, band.upper)] == pytest.approx([0.025, 0.5, 0.975])
    assert 0.935 < np.mean(held) < 0.955


def test_the_band_of_a_bootstrap_holds_new_values_and_follows_from_its_replicas():
    rng = np.random.default_rng(4)
    held = []
    for seed in range(100):
        sample = genextreme.rvs(-0.1, 1.0, 0.1, size=60, random_state=rng)
        band = band_of_replicas(pwm_replicas(sample, 200, seed=seed), 60)
        held.append(genextreme.cdf(band.upper, -0.1, 1.0, 0.1) - genextreme.cdf(band.lower, -0.1, 1.0, 0.1))
    assert (band.method, band.samples, band.gev) == ("bootstrap", 60, None)
    assert 0.93 < np.mean(held) < 0.955
    one = fit_pwm(sample)
    alone = band_of_replicas(Gevs(*(np.array([value]) for value in (one.shape, one.location, one.scale))), 60)
    assert (alone.lower, alone.expected, alone.upper) == pytest.approx(
        tuple(one.quantile(p) for p in (0.025, 0.5, 0.975)), rel=0.01
    )


def test_constant_intervals_have_a_band_without_width():
    for band in (empirical_band([0.25] * 50), gev_band([0.25] * 50)):
        assert (band.lower, band.expected, band.upper) == (0.25, 0.25, 0.25)


def test_sample_is_left_as_it_is():
    sample = np.random.default_rng(0).normal(size=100)
    before = sample.copy()
    empirical_band(sample)
    gev_band(sample)
    assert (sample == before).all()


@pytest.mark.parametrize("band", [empirical_band, gev_band])
def test_bad_input_is_refused_by_name(band):
    with pytest.raises(ValueError, match=r"^level is 95, expected a number between 0 and 1, both excluded$"):
        band([1.0] * 50, 95)
    with pytest.raises(ValueError, match=r"^sample value 1 is nan, expected finite numbers$"):
        band([1.0, np.nan] * 50)
