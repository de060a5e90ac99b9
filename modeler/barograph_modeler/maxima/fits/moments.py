"""The fit by the method of moments: Madsen, Rasmussen and Rosbjerg (1997), Water Resources Research 33(4).

Mean, standard deviation (n - 1) and skewness (the bias-adjusted n sum (x - mean)**3 / ((n - 1) (n - 2) s**3)) of the
sample are equated to those of the distribution. The third moment exists for k > -1/3 only, so heavier tails cannot be
fitted. The skewness decreases in k, and the root is solved directly; the exponent of the variance in the scale is 1/2.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, zeta

from barograph_modeler.maxima.distribution import GUMBEL_SHAPE, Gev, Gevs
from barograph_modeler.maxima.fits.inverse import FallingInverse
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES
from barograph_modeler.maxima.sample import Floats, base_and_span, check_sample, check_samples

HEAVIEST: Final = -1 / 3
"""Shapes at or below this have no skewness."""
SHAPE_ENDS: Final = (HEAVIEST + 1e-9, 8.0)
NEAR_GUMBEL: Final = 1e-4
GUMBEL_SKEWNESS: Final = 12 * math.sqrt(6) * float(zeta(3)) / math.pi**3

_ORDERS: Final = np.arange(25, 1, -1)
_SERIES: Final = np.append(zeta(_ORDERS) / _ORDERS, [0.0, 0.0])
"""Coefficients of log G(1 - t) - gamma t, the highest power first."""


def fit_mom(sample: npt.ArrayLike) -> Gev:
    """Fit one sample by its first three moments; sample, constant samples and errors as for fit_pwm."""
    return _fit_rows(check_sample(sample, MINIMUM_SAMPLES)[None])[0]


def fit_moms(samples: npt.ArrayLike) -> Gevs:
    """Fit many samples of one size, one per row: (count, n) to count fits."""
    return _fit_rows(check_samples(samples, MINIMUM_SAMPLES))


def skewness(shape: Floats) -> Floats:
    """The skewness of GEVs of these shapes, each above -1/3: decreases from infinity, 1.1395 at 0."""
    near = np.abs(shape) < NEAR_GUMBEL
    # Near 0 the formula cancels: there it is replaced by the parabola through 0 and both borders.
    low, high = _borders()
    t = np.where(near, shape, 0.0) / NEAR_GUMBEL
    parabola = GUMBEL_SKEWNESS + t * ((high - low) / 2 + t * ((high + low) / 2 - GUMBEL_SKEWNESS))
    return np.where(near, parabola, _skewness(np.where(near, 1.0, shape)))


def gevs_of_moments(mean: Floats, deviation: Floats, skew: Floats) -> Gevs:
    """The GEVs with these means, standard deviations and skewnesses, each of shape (count,).

    Shapes stay within SHAPE_ENDS; a deviation of 0 gives scale 0 and shape 0.
    """
    constant = ~(deviation > 0)
    k = np.exp(_inverse()(np.where(constant, 0.0, skew))) + HEAVIEST
    k = np.where(constant | (np.abs(k) < GUMBEL_SHAPE), 0.0, k)
    safe = np.where(k == 0, 1.0, k)
    one, two = (np.expm1(_log_gamma(j * safe)) for j in (1, 2))
    reduced = np.sqrt(two - 2 * one - one**2) * np.exp(-np.euler_gamma * safe)  # (G(1+2k) - G(1+k)**2) ** (1/2)
    scale = np.where(constant, 0.0, deviation * np.where(k == 0, math.sqrt(6) / math.pi, np.abs(safe) / reduced))
    return Gevs(k, mean + scale * np.where(k == 0, -np.euler_gamma, np.expm1(gammaln(1 + k)) / safe), scale)


def gevs_of_powers(n: int, centre: float | Floats, unit: float | Floats, powers: Floats) -> Gevs:
    """The fits for the means of z, z**2 and z**3 with z = (x - centre) / unit. powers: (count, 3)."""
    first, second, third = powers.T
    m2 = np.maximum(second - first**2, 0.0)
    m3 = third - 3 * first * second + 2 * first**3
    varied = m2 > 1e-14 * np.maximum(second, 1e-280)  # a smaller spread is the rounding error of a constant
    with np.errstate(divide="ignore", invalid="ignore"):
        skew = np.where(varied, math.sqrt(n * (n - 1)) / (n - 2) * m3 / m2**1.5, 0.0)
    deviation = np.where(varied, np.sqrt(m2 * n / (n - 1)), 0.0)
    fits = gevs_of_moments(first, deviation, skew)
    return Gevs(fits.shape, centre + unit * fits.location, unit * fits.scale)


def _fit_rows(samples: Floats) -> Gevs:
    x = np.sort(samples, axis=1)  # makes the sums independent of the order of the values
    base, span = base_and_span(x)
    z = (x - base[:, None]) / np.where(span > 0, span, 1.0)[:, None]
    middle = z.mean(axis=1)
    z = np.where((span > 0)[:, None], z - middle[:, None], 0.0)
    powers = np.stack([(z**j).mean(axis=1) for j in (1, 2, 3)], axis=1)
    return gevs_of_powers(x.shape[1], base + span * middle, span, powers)


def _skewness(shape: Floats) -> Floats:
    one, two, three = (np.expm1(_log_gamma(j * shape)) for j in (1, 2, 3))
    third = three - 3 * two + 3 * one - 3 * one * two + 6 * one**2 + 2 * one**3
    second = two - 2 * one - one**2
    return np.asarray(-np.sign(shape) * third / second**1.5)


def _log_gamma(t: Floats) -> Floats:
    """log G(1 + t) + gamma t; near 0, where the two terms cancel, by its series."""
    near = np.abs(t) < 0.2
    series = np.polyval(_SERIES, np.where(near, -t, 0.0))
    return np.where(near, series, gammaln(np.where(near, 1.0, 1 + t)) + np.euler_gamma * t)


@cache
def _borders() -> tuple[float, float]:
    """The skewnesses of the shapes between which that of the Gumbel is reached by a parabola."""
    low, high = _skewness(np.array([-NEAR_GUMBEL, NEAR_GUMBEL]))
    return float(low), float(high)


@cache
def _inverse() -> FallingInverse:
    """log(k + 1/3) of a skewness. The skewness grows as 1 / (k + 1/3) towards the heavy end, hence the logarithm."""
    low, high = (math.log(k - HEAVIEST) for k in SHAPE_ENDS)
    return FallingInverse(lambda u: skewness(np.exp(u) + HEAVIEST), np.linspace(low, high, 4097))
