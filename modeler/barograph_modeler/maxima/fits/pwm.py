"""The fit by probability-weighted moments: Hosking, Wallis and Wood (1985), Technometrics 27(3).

The unbiased moments b0, b1, b2 give the shape as the root of (1 - 3**-k) / (1 - 2**-k) = (3 b2 - b0) / (2 b1 - b0).
The 1985 paper's k = 7.8590 c + 2.9554 c**2 approximates that root to 9e-4 for |k| < 1/2; here it is solved, since a
heavy tail needs the rest of the range.

With the sorted values x(1) <= ... <= x(n) and gaps d(i) = x(i+1) - x(i), C values below a gap and W = n - C above it:
b0 - x(1) = sum d W / n, 2 b1 - b0 = sum d W C / (n (n-1)), 3 b2 - b0 = sum d W C (n - 3 + C) / (n (n-1) (n-2)).
All terms are at least 0, so nothing cancels; in a bootstrap only C and W change.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from barograph_modeler.maxima.distribution import GUMBEL_SHAPE, Gev, Gevs
from barograph_modeler.maxima.fits.inverse import FallingInverse
from barograph_modeler.maxima.sample import Floats, base_and_span, check_sample, check_samples

MINIMUM_SAMPLES: Final = 15
"""Hosking, Wallis and Wood (1985) studied the estimator down to this size; below it the shape is mostly noise."""

SHAPE_RANGE: Final = (-0.95, 8.0)
"""Range of fitted shapes: at -1 the mean does not exist, and samples of two distinct values lie at both ends."""


def fit_pwm(sample: npt.ArrayLike) -> Gev:
    """Fit one sample by probability-weighted moments.

    sample: at least MINIMUM_SAMPLES finite values in any order, unit and sign; not modified.
    A constant sample gives scale 0 and shape 0. Raises ValueError for too few values and for values not finite.
    """
    return _fit_rows(check_sample(sample, MINIMUM_SAMPLES)[None])[0]


def fit_pwms(samples: npt.ArrayLike) -> Gevs:
    """Fit many samples of one size, one per row: (count, n) to count fits. Rows and errors as for fit_pwm."""
    return _fit_rows(check_samples(samples, MINIMUM_SAMPLES))


def gevs_of_l_moments(mean: Floats, l_scale: Floats, l_skewness: Floats) -> Gevs:
    """The GEVs with these L-moments: l1, l2 >= 0 and t3 = l3 / l2, each of shape (count,).

    Hosking (1990), JRSS B 52(1), table 2. Shapes stay within SHAPE_RANGE; l2 = 0 gives scale 0 and shape 0.
    """
    constant = ~(l_scale > 0)
    k = _inverse()(np.where(constant, 1.0, (l_skewness + 3) / 2))
    k = np.where(constant | (np.abs(k) < GUMBEL_SHAPE), 0.0, k)
    safe = np.where(k == 0, 1.0, k)
    gamma = gammaln(1 + k)
    spread = np.where(k == 0, 1 / math.log(2), safe / (np.exp(gamma) * -np.expm1(-safe * math.log(2))))
    scale = np.where(constant, 0.0, l_scale * spread)
    return Gevs(k, mean + scale * np.where(k == 0, -np.euler_gamma, np.expm1(gamma) / safe), scale)


def gevs_of_sums(n: int, base: float | Floats, span: float | Floats, sums: tuple[Floats, Floats, Floats]) -> Gevs:
    """The fits for sum d W, sum d W C and sum d W W C. base: smallest value. span: unit of the gaps d."""
    first, second, third = sums
    with np.errstate(divide="ignore", invalid="ignore"):  # a constant sample: 0 / 0
        ratio = (2 * n - 3 - third / second) / (n - 2)
    unit = gevs_of_l_moments(first / n, second / (n * (n - 1)), 2 * ratio - 3)
    return Gevs(unit.shape, base + span * unit.location, span * unit.scale)


def _fit_rows(samples: Floats) -> Gevs:
    x = np.sort(samples, axis=1)  # np.sort copies
    n = x.shape[1]
    base, span = base_and_span(x)
    # Gaps in units of the span keep their digits if the spread is small against the level.
    d = np.diff(x, axis=1) / np.where(span > 0, span, 1.0)[:, None]
    below = np.arange(1, n, dtype=np.float64)
    above = n - below
    # Each row by itself, so that its sums do not depend on the number of rows.
    first, second, third = ((d * weights).sum(axis=1) for weights in (above, above * below, above * above * below))
    return gevs_of_sums(n, base, span, (first, second, third))


@cache
def _inverse() -> FallingInverse:
    return FallingInverse(_ratio, np.linspace(*SHAPE_RANGE, 4097))


def _ratio(k: Floats) -> Floats:
    safe = np.where(k == 0, 1.0, k)
    ratio = np.expm1(-safe * math.log(3)) / np.expm1(-safe * math.log(2))
    return np.where(k == 0, math.log(3) / math.log(2), ratio)
