"""Properties of both fits: by probability-weighted moments and by moments."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import genextreme

from barograph_modeler.maxima.distribution import Gevs
from barograph_modeler.maxima.fits.moments import HEAVIEST, SHAPE_ENDS, fit_mom, fit_moms, gevs_of_moments, skewness
from barograph_modeler.maxima.fits.pwm import SHAPE_RANGE, fit_pwm, fit_pwms

FITS = [fit_pwm, fit_mom]
MANY = {fit_pwm: fit_pwms, fit_mom: fit_moms}
TRUTHS = [-0.25, -0.1, 0.0, 0.2, 0.4]

every_fit = pytest.mark.parametrize("fit", FITS)
seeds = st.integers(0, 2**32 - 1)
shapes = st.floats(-0.3, 0.45)


def drawn(k, n, seed, count=1):
    return Gevs(np.full(count, k), np.full(count, 10.0), np.full(count, 2.0)).draw(n, np.random.default_rng(seed))


def parameters(gev):
    return gev.shape, gev.location, gev.scale


@every_fit
@pytest.mark.parametrize("k", TRUTHS)
def test_large_samples_give_the_parameters_they_were_drawn_from(fit, k):
    found = parameters(fit(drawn(k, 40_000, 4)[0]))
    assert found == pytest.approx((k, 10.0, 2.0), abs=0.15 if fit is fit_mom and k < -0.2 else 0.04)


@every_fit
@settings(deadline=None, max_examples=40)
@given(seed=seeds, k=shapes, unit=st.floats(1e-3, 1e3), origin=st.floats(-1e4, 1e4))
def test_fits_follow_a_change_of_unit_and_origin(fit, seed, k, unit, origin):
    x = drawn(k, 120, seed)[0]
    here, there = fit(x), fit(x * unit + origin)
    digits = 1e-7 * max(1.0, abs(origin) / (unit * 2))
    assert there.shape == pytest.approx(here.shape, abs=digits)
    assert there.scale == pytest.approx(here.scale * unit, rel=digits)
    assert there.location == pytest.approx(here.location * unit + origin, abs=digits * unit, rel=1e-12)


@every_fit
@settings(deadline=None, max_examples=40)
@given(seed=seeds, k=shapes)
def test_order_does_not_matter_and_the_sample_is_not_modified(fit, seed, k):
    x = drawn(k, 60, seed)[0]
    before = x.copy()
    found = parameters(fit(x))
    assert (x == before).all()
    assert parameters(fit(x[::-1])) == pytest.approx(found, rel=1e-9, abs=1e-9)


@every_fit
def test_fits_of_many_samples_equal_single_fits(fit):
    x = np.concatenate([drawn(k, 150, 5, count=3) for k in TRUTHS])
    x[4] = 7.0
    before = x.copy()
    many = MANY[fit](x)
    assert (x == before).all()
    assert [parameters(one) for one in many] == [pytest.approx(parameters(fit(row)), rel=1e-6, abs=1e-9) for row in x]


@every_fit
def test_a_constant_sample_is_a_step(fit):
    assert parameters(fit([2.5] * 20)) == (0.0, 2.5, 0.0)
    assert parameters(fit([0.1] * 20)) == (0.0, 0.1, 0.0)


@every_fit
@pytest.mark.parametrize("outlier", [10 + 2e6, 10 - 2e6])
def test_an_outlier_of_a_million_times_the_spread_leaves_a_finite_fit(fit, outlier):
    found = fit([*drawn(0.1, 99, 6)[0], outlier])
    assert all(math.isfinite(value) for value in parameters(found))
    assert found.scale > 0


@every_fit
def test_clock_ticks_move_the_fit_by_less_than_its_error(fit):
    x = drawn(-0.05, 400, 7)[0]
    exact, ticked = fit(x), fit(np.round(x))  # a tick of half the scale, a dozen distinct values
    assert len(set(np.round(x))) < 20
    assert ticked.shape == pytest.approx(exact.shape, abs=0.04)
    assert ticked.location == pytest.approx(exact.location, abs=0.12)
    assert ticked.scale == pytest.approx(exact.scale, abs=0.1)


@every_fit
def test_negative_values_are_fitted_and_nan_is_refused(fit):
    x = drawn(0.1, 50, 8)[0] - 1000
    assert fit(x).location == pytest.approx(-990, abs=1)
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match=f"^sample value 3 is {bad}, expected finite numbers$"):
            fit([1.0, 2.0, 3.0, bad, *range(20)])
    with pytest.raises(ValueError, match=r"^sample has 14 values, expected at least 15$"):
        fit(range(14))
    with pytest.raises(ValueError, match=r"^sample 0 ranges from -1e\+308 to 1e\+308, expected a range below 1.8e308$"):
        fit([-1e308, 1e308] * 10)


@settings(deadline=None)
@given(st.floats(-0.333, 6.0))
def test_skewness_is_scipys_and_solving_for_it_gives_the_shape_back(k):
    found = skewness(np.array([k]))
    if abs(k) > 1e-3:  # scipy loses digits nearer to 0
        assert found[0] == pytest.approx(float(genextreme.stats(k, moments="s")), rel=1e-6, abs=1e-9)
    back = gevs_of_moments(np.array([3.0]), np.array([2.0]), found)
    assert back.shape[0] == pytest.approx(k, abs=1e-8)
    mean, variance = genextreme.stats(back.shape[0], back.location[0], back.scale[0], moments="mv")
    if abs(k) > 1e-3:
        assert (mean, variance) == (pytest.approx(3.0, abs=1e-6), pytest.approx(4.0, rel=1e-6))


def test_the_skewness_decreases_and_is_continuous_at_the_gumbel():
    k = np.linspace(HEAVIEST + 1e-6, 7.9, 20_001)
    assert (np.diff(skewness(k)) < 0).all()
    assert skewness(np.array([-1e-7, 0.0, 1e-7])) == pytest.approx(1.1395470994046486, abs=1e-6)


def test_shapes_out_of_reach_of_a_fit_give_its_ends():
    heavy = np.exp(np.linspace(0, 700, 60) ** 1.0)
    assert fit_pwm(heavy).shape == SHAPE_RANGE[0]
    assert HEAVIEST < fit_mom(heavy).shape < HEAVIEST + 0.2
    assert gevs_of_moments(np.zeros(2), np.ones(2), np.array([1e12, -1e9])).shape == pytest.approx(SHAPE_ENDS)
