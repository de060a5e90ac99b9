"""The maxima paper's formulas as printed give wrong answers; what is implemented gives the right ones.

Dominguez-Trujillo et al., Lightweight Measurement and Analysis of HPC Performance Variability, section II.
"""

import math

import numpy as np
import pytest
from scipy.special import gamma
from scipy.stats import genextreme, skew

from barograph_modeler.maxima.fits.moments import fit_mom
from barograph_modeler.maxima.fits.pwm import fit_pwm

K, LOCATION, SCALE = -0.12, 10.0, 2.0


@pytest.fixture(scope="module")
def sample():
    return genextreme.rvs(K, LOCATION, SCALE, size=50_000, random_state=np.random.default_rng(2))


def test_scale_by_moments_has_the_exponent_one_half(sample):
    fit = fit_mom(sample)
    variance = gamma(1 + 2 * fit.shape) - gamma(1 + fit.shape) ** 2
    printed = np.std(sample) * abs(fit.shape) / variance**1.5
    assert fit.scale == pytest.approx(SCALE, rel=0.03)
    assert fit.scale == pytest.approx(printed * variance, rel=1e-3)
    assert printed > 10 * SCALE


def test_probability_weighted_moments_are_not_mean_variance_and_skewness(sample):
    mean, variance, third = np.mean(sample), np.var(sample), skew(sample)
    c = (2 * variance - mean) / (3 * third - mean) - math.log(2) / math.log(3)
    printed = 7.8590 * c + 2.9554 * c**2
    assert fit_pwm(sample).shape == pytest.approx(K, abs=0.02)
    assert abs(printed - K) > 1
    in_other_units = (2 * variance * 1e6 - mean * 1e3) / (3 * third - mean * 1e3) - math.log(2) / math.log(3)
    assert in_other_units != pytest.approx(c, rel=0.1)  # a shape that depends on the unit is none
    assert fit_pwm(sample * 1e3).shape == pytest.approx(fit_pwm(sample).shape)


def test_sign_of_the_shape_is_that_of_the_estimators_not_of_equation_1(sample):
    fit = fit_pwm(sample)
    x = LOCATION + 4 * SCALE
    printed = math.exp(-((1 + fit.shape * (x - fit.location) / fit.scale) ** (-1 / fit.shape)))
    seen = np.mean(sample <= x)
    assert fit.cdf(x) == pytest.approx(seen, abs=0.003)
    assert abs(printed - seen) > 0.01
    assert fit.type_name == fit_mom(sample).type_name == "frechet"  # k < 0, while the paper says so of positive ones


@pytest.mark.parametrize("k", [-0.45, -0.3, -0.1, 0.1, 0.3, 0.45])
def test_hoskings_polynomial_is_within_9e_4_of_the_root_that_is_solved(k):
    x = genextreme.rvs(k, LOCATION, SCALE, size=2_000, random_state=np.random.default_rng(3))
    x.sort()
    n, rank = x.size, np.arange(x.size)
    b0, b1, b2 = x.mean(), x @ rank / (n * (n - 1)), x @ (rank * (rank - 1)) / (n * (n - 1) * (n - 2))
    c = (2 * b1 - b0) / (3 * b2 - b0) - math.log(2) / math.log(3)
    assert fit_pwm(x).shape == pytest.approx(7.8590 * c + 2.9554 * c**2, abs=9.5e-4)
