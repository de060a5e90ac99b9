import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import genextreme

from barograph_modeler.maxima.distribution import Gev, Gevs
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES, SHAPE_RANGE, fit_pwm, fit_pwms
from helpers.extremes import PORT_PIRIE

lmoments3 = pytest.importorskip("lmoments3.distr", reason="lmoments3 comes with the extra dev")

samples = st.lists(st.floats(-1e3, 1e3), min_size=MINIMUM_SAMPLES, max_size=60).filter(
    # Without some spread between the values there is only rounding to fit.
    lambda x: np.ptp(np.sort(x)[2:-2]) > 1e-3
)
shapes = st.floats(-0.9, 0.9)
shapes_of_scipy = shapes.filter(lambda k: k == 0 or abs(k) > 1e-6)  # in between scipy loses digits, then all of them


def test_port_pirie_fit_is_that_of_the_books():
    fit = fit_pwm(PORT_PIRIE)
    # L-moment estimates from this sample by an independent minimisation of the moment equations.
    assert fit.location == pytest.approx(3.873148, abs=1e-6)
    assert fit.scale == pytest.approx(0.203222, abs=1e-6)
    assert fit.shape == pytest.approx(0.051212, abs=1e-6)
    # Coles (2001), section 3.4.1, maximum likelihood: 3.87 (0.028), 0.198 (0.020), xi = -k = -0.050 (0.098), and the
    # 10-year and 100-year levels 4.30 and 4.69, whose 95 % limits are 4.19 to 4.45 and 4.50 to 5.27.
    assert fit.location == pytest.approx(3.87, abs=0.028)
    assert fit.scale == pytest.approx(0.198, abs=0.020)
    assert fit.shape == pytest.approx(0.050, abs=0.098)
    assert 4.25 < fit.quantile(0.9) < 4.35
    assert 4.6 < fit.quantile(0.99) < 4.8


def test_quantiles_and_probabilities_are_the_published_ones():
    # The GEV row of lmoments3's own test suite (a port of Hosking's LMOMENTS): parameters, quantiles, probabilities.
    gev = Gev(-0.1555609, 2.1792884, 1.3956404)
    assert [gev.quantile(q) for q in (0.2, 0.5, 0.8)] == pytest.approx([1.539112, 2.705672, 4.537048], abs=1e-6)
    assert [gev.cdf(x) for x in (2, 5, 8)] == pytest.approx([0.3202800, 0.8415637, 0.9606184], abs=1e-7)
    gumbel = Gev(0.0, 2.285519, 1.647295)
    assert [gumbel.quantile(q) for q in (0.2, 0.5, 0.8)] == pytest.approx([1.501596, 2.889274, 4.756363], abs=2e-6)


@settings(deadline=None)
@given(samples)
def test_fit_equals_lmoments3(x):
    fit = fit_pwm(x)
    if SHAPE_RANGE[0] < fit.shape < 2:  # beyond, lmoments3 gives up or loses digits
        reference = lmoments3.gev.lmom_fit(list(x))
        # It approximates the shape to about 1e-6.
        assert fit.shape == pytest.approx(reference["c"], abs=1e-5, rel=1e-5)
        assert fit.scale == pytest.approx(reference["scale"], rel=1e-4)
        assert fit.location == pytest.approx(reference["loc"], abs=1e-4 * fit.scale + 1e-9)


@settings(deadline=None)
@given(shapes_of_scipy, st.floats(-5, 5), st.floats(0.1, 5), st.floats(-20, 20))
def test_distribution_function_is_scipys_with_the_same_sign(k, location, scale, x):
    assert Gev(k, location, scale).cdf(x) == pytest.approx(genextreme.cdf(x, k, location, scale), abs=1e-9)


@settings(deadline=None)
@given(shapes, st.lists(st.floats(1e-6, 1 - 1e-6), min_size=2, max_size=8))
def test_quantiles_ascend_and_undo_the_distribution_function(k, levels):
    gev = Gev(k, 3.0, 0.5)
    ascending = sorted(levels)
    quantiles = [gev.quantile(q) for q in ascending]
    assert quantiles == sorted(quantiles)
    assert [gev.cdf(x) for x in quantiles] == pytest.approx(ascending, abs=1e-9)


@settings(deadline=None)
@given(st.floats(-1e-9, 1e-9))
def test_shapes_next_to_zero_go_over_into_gumbel(k):
    gumbel = Gev(0.0, 1.0, 2.0)
    assert Gev(k, 1.0, 2.0).type_name == gumbel.type_name == "gumbel"
    assert Gev(k, 1.0, 2.0).quantile(0.999) == pytest.approx(gumbel.quantile(0.999), rel=1e-7)
    assert Gev(k, 1.0, 2.0).cdf(7.0) == pytest.approx(gumbel.cdf(7.0), rel=1e-7)


@settings(deadline=None)
@given(samples, st.floats(0.01, 100), st.floats(-1e6, 1e6))
def test_fit_follows_a_change_of_unit_and_origin(x, unit, origin):
    fit, moved = fit_pwm(x), fit_pwm(np.array(x) * unit + origin)
    if fit.shape < 2:  # the scale of a shape at the range's end is close to 0 and says nothing
        assert moved.shape == pytest.approx(fit.shape, abs=1e-4)
        assert moved.scale == pytest.approx(fit.scale * unit, rel=1e-3)
        assert moved.location == pytest.approx(fit.location * unit + origin, abs=1e-3 * fit.scale * unit)


@settings(deadline=None)
@given(samples, st.randoms(use_true_random=False))
def test_order_of_the_sample_does_not_matter_and_it_is_left_as_it_is(x, random):
    shuffled = list(x)
    random.shuffle(shuffled)
    array = np.array(shuffled)
    assert fit_pwm(array) == fit_pwm(x)
    assert array.tolist() == shuffled


def test_small_spread_on_a_high_level_keeps_its_digits():
    x = np.array(PORT_PIRIE) - 4
    far, near = fit_pwm(1e9 + np.round(x, 2)), fit_pwm(x)
    assert far.shape == pytest.approx(near.shape, abs=1e-3)
    assert far.scale == pytest.approx(near.scale, rel=1e-3)


@pytest.mark.parametrize(("k", "name"), [(-0.3, "frechet"), (0.3, "weibull")])
def test_large_samples_give_the_parameters_they_were_drawn_from(k, name):
    x = genextreme.rvs(k, 10.0, 2.0, size=20_000, random_state=np.random.default_rng(5))
    fit = fit_pwm(x)
    assert (fit.shape, fit.location, fit.scale) == pytest.approx((k, 10.0, 2.0), abs=0.06)
    assert fit.type_name == name


@settings(deadline=None)
@given(shapes, st.floats(0.25, 4096), st.floats(1e-3, 1 - 1e-3))
def test_scaling_up_is_the_distribution_function_to_the_power_of_the_factor(k, factor, q):
    gev = Gev(k, 3.0, 0.5)
    x = gev.quantile(q)
    assert gev.scaled_up(factor).cdf(x) == pytest.approx(q**factor, rel=1e-6, abs=1e-12)
    assert gev.scaled_up(factor).scaled_up(2).cdf(x) == pytest.approx(q ** (2 * factor), rel=1e-6, abs=1e-12)


def test_many_at_once_are_each_as_one():
    rng = np.random.default_rng(1)
    shape = np.array([-0.6, -0.1, 0.0, 1e-9, 0.3, 1.5])
    truth = Gevs(shape, np.full(6, 10.0), np.linspace(0.5, 3, 6))
    x = truth.draw(400, rng)
    fits = fit_pwms(x)
    for i, sample in enumerate(x):
        alone = fit_pwm(sample)
        assert (fits[i].shape, fits[i].location, fits[i].scale) == pytest.approx(
            (alone.shape, alone.location, alone.scale), rel=1e-9, abs=1e-12
        )
    levels = [0.01, 0.5, 0.999]
    assert truth.quantile(levels) == pytest.approx(np.array([[g.quantile(q) for q in levels] for g in truth]))
    assert truth.quantile(0.9) == pytest.approx(np.array([gev.quantile(0.9) for gev in truth]))
    assert truth.scaled_up(8).quantile(0.9) == pytest.approx(np.array([g.scaled_up(8).quantile(0.9) for g in truth]))


def test_constant_sample_is_a_step():
    fit = fit_pwm([2.5] * 20)
    assert fit == Gev(0.0, 2.5, 0.0)
    assert fit.quantile(0.025) == fit.quantile(0.975) == 2.5
    assert (fit.cdf(2.4999), fit.cdf(2.5)) == (0.0, 1.0)


@pytest.mark.parametrize("outlier", [5.0, -5.0])
def test_one_outlier_among_equal_values_still_has_a_finite_fit_with_the_right_mean(outlier):
    fit = fit_pwm([1.0] * 29 + [outlier])
    assert fit.shape in SHAPE_RANGE
    mean = fit.location + fit.scale * (1 - math.gamma(1 + fit.shape)) / fit.shape
    assert mean == pytest.approx((29 + outlier) / 30)


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ([1.0] * 14, "sample has 14 values, expected at least 15"),
        ([1.0] * 20 + [math.nan], "sample value 20 is nan, expected finite numbers"),
        ([math.inf] + [1.0] * 20, "sample value 0 is inf, expected finite numbers"),
        (np.ones((15, 2)), "sample has 2 dimensions, expected 1"),
    ],
)
def test_bad_samples_are_refused_by_name(sample, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        fit_pwm(sample)


def test_bad_parameters_are_refused_by_name():
    with pytest.raises(ValueError, match=r"^GEV scale is -1.0, expected at least 0$"):
        Gev(0.0, 0.0, -1.0)
    with pytest.raises(ValueError, match=r"^quantile level is 1, expected a number between 0 and 1, both excluded$"):
        Gev(0.0, 0.0, 1.0).quantile(1)
    with pytest.raises(ValueError, match=r"^quantile level is 1.0, expected a number between 0 and 1, both excluded$"):
        fit_pwms(np.ones((1, 15))).quantile([0.5, 1])
    with pytest.raises(ValueError, match=r"^scale factor is 0, expected a finite number above 0$"):
        Gev(0.0, 0.0, 1.0).scaled_up(0)


def test_bad_rows_are_refused_by_row_and_column():
    samples = np.ones((3, 20))
    samples[1, 7] = math.nan
    with pytest.raises(ValueError, match=r"^sample 1 value 7 is nan, expected finite numbers$"):
        fit_pwms(samples)
    with pytest.raises(ValueError, match=r"^samples have 14 values, expected at least 15$"):
        fit_pwms(np.ones((3, 14)))
    with pytest.raises(ValueError, match=r"^samples have 1 dimensions, expected 2: one sample per row$"):
        fit_pwms(np.ones(20))
