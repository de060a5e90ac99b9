"""The generalized extreme value distribution, single and vectorised.

The sign of the shape is Hosking's k, which is scipy's `genextreme(c=k)`: k > 0 is bounded above, k < 0 heavy-tailed.
Coles and most R packages print xi = -k.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats

GUMBEL_SHAPE: Final = 1e-8
"""Shapes closer to 0 are fitted and named as Gumbel: the general formulas lose more to rounding than the limit."""

TypeName = Literal["gumbel", "frechet", "weibull"]


@dataclass(frozen=True)
class Gev:
    """F(x) = exp(-(1 - k (x - location) / scale) ** (1 / k)), and exp(-exp(-(x - location) / scale)) where k = 0.

    shape: Hosking's k, dimensionless. location, scale: in the unit of the sample; scale >= 0.
    Scale 0 is a constant: every quantile is the location, where the distribution function steps from 0 to 1.

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
    def type_name(self) -> TypeName:
        """Gumbel (type I) for |k| < GUMBEL_SHAPE, Frechet (II) for negative k, Weibull (III) for positive k."""
        if abs(self.shape) < GUMBEL_SHAPE:
            return "gumbel"
        return "frechet" if self.shape < 0 else "weibull"

    def quantile(self, q: float) -> float:
        """The q-quantile. Raises ValueError unless 0 < q < 1."""
        if not 0 < q < 1:
            raise ValueError(f"quantile level is {q}, expected a number between 0 and 1, both excluded")
        return self._at(-math.log(-math.log(q)))

    def cdf(self, x: float) -> float:
        """The distribution function at x."""
        if self.scale == 0:
            return float(x >= self.location)
        z = (x - self.location) / self.scale
        k = self.shape
        if k * z >= 1:  # at or beyond the end of the support
            return 1.0 if k > 0 else 0.0
        y = z if abs(k) < GUMBEL_SHAPE else -math.log1p(-k * z) / k
        return math.exp(-math.exp(-y)) if y > -700 else 0.0

    def scaled_up(self, factor: float) -> Gev:
        """The distribution of the maximum of `factor` independent draws: F ** factor, by max-stability again a GEV.

        The shape stays, the scale becomes a m**-k, the location xi + a (1 - m**-k) / k. factor m: above 0; below 1 it
        scales down. Raises ValueError otherwise.
        """
        check_factor(factor)
        return Gev(self.shape, self._at(math.log(factor)), self.scale * factor**-self.shape)

    def _at(self, y: float) -> float:
        """The value whose Gumbel-reduced variate, -log(-log F), is y."""
        k = self.shape
        return self.location + self.scale * (y if abs(k) < GUMBEL_SHAPE else -math.expm1(-k * y) / k)


@dataclass(frozen=True, eq=False)
class Gevs:
    """Many GEVs, such as the fits of bootstrap replicas: `shape`, `location` and `scale`, each of shape (count,).

    `gevs[i]` is the i-th as a Gev.
    """

    shape: Floats
    location: Floats
    scale: Floats

    def __len__(self) -> int:
        return len(self.shape)

    def __getitem__(self, i: int) -> Gev:
        return Gev(float(self.shape[i]), float(self.location[i]), float(self.scale[i]))

    def quantile(self, q: npt.ArrayLike) -> Floats:
        """Quantiles of every GEV: (count,) for one level, (count, levels) for a row of them, as Gev.quantile."""
        levels = np.asarray(q, dtype=np.float64)
        check_levels(levels)
        y = -np.log(-np.log(levels))
        return self._at(y) if levels.ndim == 0 else self.column()._at(y)

    def scaled_up(self, factor: float) -> Gevs:
        """Gev.scaled_up of each."""
        check_factor(factor)
        return Gevs(self.shape, self._at(np.log(factor)), self.scale * factor**-self.shape)

    def draw(self, size: int, rng: np.random.Generator) -> Floats:
        """`size` independent values of every GEV: (count, size)."""
        return self.column()._at(-np.log(rng.standard_exponential((len(self), size))))

    def column(self) -> Gevs:
        """The same GEVs with parameters of shape (count, 1), to broadcast against rows of values."""
        return Gevs(self.shape[:, None], self.location[:, None], self.scale[:, None])

    def _at(self, y: npt.ArrayLike) -> Floats:
        flat = np.abs(self.shape) < GUMBEL_SHAPE
        k = np.where(flat, 1.0, self.shape)
        return np.asarray(self.location + self.scale * np.where(flat, y, -np.expm1(-k * np.asarray(y)) / k))


def check_levels(levels: Floats) -> None:
    """Raises ValueError unless all levels are between 0 and 1."""
    if not (good := (levels > 0) & (levels < 1)).all():
        raise ValueError(f"quantile level is {levels[~good].flat[0]}, expected a number between 0 and 1, both excluded")


def check_factor(factor: float) -> None:
    """Raises ValueError unless the scale factor is finite and above 0."""
    if not 0 < factor < math.inf:
        raise ValueError(f"scale factor is {factor}, expected a finite number above 0")
