"""The generalized extreme value distribution and its fit by probability-weighted moments.

The sign of the shape is Hosking's k, which is scipy's `genextreme(c=k)`: k > 0 is bounded above, k < 0 heavy-tailed.
Coles and most R packages print xi = -k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import gammaln

Floats = npt.NDArray[np.float64]

MINIMUM_SAMPLES: Final = 15
"""Hosking, Wallis and Wood (1985) studied the estimator down to this size; below it the shape is mostly noise."""

GUMBEL_SHAPE: Final = 1e-8
"""Shapes closer to 0 are fitted and named as Gumbel: the general formulas lose more to rounding than the limit does."""

SHAPE_RANGE: Final = (-0.95, 8.0)
"""Fitted shapes stay inside: at -1 the mean stops existing, and samples of two distinct values lie at both ends."""


@dataclass(frozen=True)
class Gev:
    """F(x) = exp(-(1 - k (x - location) / scale) ** (1 / k)), and exp(-exp(-(x - location) / scale)) where k = 0.

    shape: Hosking's k, without unit. location, scale: in the unit of the sample; scale >= 0.
    A scale of 0 is a constant: every quantile is the location, the distribution function steps from 0 to 1 there.

    >>> round(Gev(0.0, 2.0, 0.5).quantile(0.975), 4)
    3.8381
    """

    shape: float
    location: float
    scale: float

    def __post_init__(self) -> None:
        for name in ("shape", "location", "scale"):
            if not math.isfinite(getattr(self, name)):
                raise ValueError(f"GEV {name} is {getattr(self, name)}, expected a finite number")
        if self.scale < 0:
            raise ValueError(f"GEV scale is {self.scale}, expected at least 0")

    @property
    def type_name(self) -> Literal["gumbel", "frechet", "weibull"]:
        """Gumbel (type I) for |k| < GUMBEL_SHAPE, Frechet (II) for negative k, Weibull (III) for positive k."""
        if abs(self.shape) < GUMBEL_SHAPE:
            return "gumbel"
        return "frechet" if self.shape < 0 else "weibull"

    def quantile(self, q: float) -> float:
        """The value that a share q of the distribution lies at or below. Raises ValueError unless 0 < q < 1."""
        if not 0 < q < 1:
            raise ValueError(f"quantile level is {q}, expected a number between 0 and 1, both excluded")
        y = -math.log(-math.log(q))
        k = self.shape
        return self.location + self.scale * (y if abs(k) < GUMBEL_SHAPE else -math.expm1(-k * y) / k)

    def cdf(self, x: float) -> float:
        """The share of the distribution at or below x."""
        if self.scale == 0:
            return float(x >= self.location)
        z = (x - self.location) / self.scale
        k = self.shape
        if k * z >= 1:  # at or beyond the end of the support
            return 1.0 if k > 0 else 0.0
        y = z if abs(k) < GUMBEL_SHAPE else -math.log1p(-k * z) / k
        return math.exp(-math.exp(-y)) if y > -700 else 0.0


def fit_pwm(sample: npt.ArrayLike) -> Gev:
    """Fit by probability-weighted moments: Hosking, Wallis and Wood (1985), Technometrics 27(3).

    sample: at least MINIMUM_SAMPLES finite values in any order and unit; it is left as it is.
    The unbiased moments b0, b1, b2 give the shape as the root of (1 - 3**-k) / (1 - 2**-k) = (3 b2 - b0) / (2 b1 - b0).
    The paper's k = 7.8590 c + 2.9554 c**2 approximates that root to 9e-4 for |k| < 1/2; here it is solved, since a
    heavy tail needs the rest of the range. A constant sample gives scale 0 and shape 0.
    Raises ValueError for too few values and for values that are not finite.
    """
    x = np.sort(check_sample(sample, MINIMUM_SAMPLES))  # np.sort copies
    n = x.size
    # Moments of the distances from the smallest value keep their digits where spread is small against level.
    base, span = float(x[0]), float(x[-1] - x[0])
    if span == 0:
        return Gev(0.0, base, 0.0)
    x = (x - base) / span
    rank = np.arange(n, dtype=np.float64)
    b0 = float(x.mean())
    b1 = float(x @ rank) / (n * (n - 1))
    b2 = float(x @ (rank * (rank - 1))) / (n * (n - 1) * (n - 2))
    k = _shape((3 * b2 - b0) / (2 * b1 - b0))
    if k == 0:
        scale = (2 * b1 - b0) / math.log(2)
        location = b0 - np.euler_gamma * scale
    else:
        scale = (2 * b1 - b0) * k / (math.exp(gammaln(1 + k)) * -math.expm1(-k * math.log(2)))
        location = b0 + scale * math.expm1(gammaln(1 + k)) / k
    return Gev(k, base + span * location, span * scale)


def check_sample(sample: npt.ArrayLike, minimum: int) -> Floats:
    """The sample as a one-dimensional float array. Raises ValueError for too few values and for NaN or infinity."""
    x = np.asarray(sample, dtype=np.float64)
    if x.ndim != 1:
        raise ValueError(f"sample has {x.ndim} dimensions, expected 1")
    if x.size < minimum:
        raise ValueError(f"sample has {x.size} values, expected at least {minimum}")
    if not (finite := np.isfinite(x)).all():
        raise ValueError(f"sample value {int(np.argmin(finite))} is {x[~finite][0]}, expected finite numbers")
    return x


def _shape(ratio: float) -> float:
    def excess(k: float) -> float:
        return _ratio(k) - ratio

    low, high = SHAPE_RANGE
    if excess(low) <= 0:  # the ratio falls as k grows
        return low
    if excess(high) >= 0:
        return high
    k = float(brentq(excess, low, high, xtol=1e-13))
    return 0.0 if abs(k) < GUMBEL_SHAPE else k


def _ratio(k: float) -> float:
    if k == 0:
        return math.log(3) / math.log(2)
    return math.expm1(-k * math.log(3)) / math.expm1(-k * math.log(2))
