"""What the runs of one problem say about each shape, and what each shape then says about other scales.

Log time is taken to be a shape, plus a random walk over log ranks for what no shape has, plus noise. So a step between
two scales is judged by itself, a bad start does no harm, the prediction sets out from the last scales, and it is less
certain the further it goes. That makes the likelihood a product of one-step forecasts, each scale foretold from the
smaller ones (Dawid 1984): shapes are weighted by how well they scale out.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.shapes import log_times

Rows: TypeAlias = slice | npt.NDArray[np.intp]
NOISE: Final = 0.08
"""Variance of a run, in units of the walk's over a factor of e in ranks: divided by the runs at a scale."""
STAYS: Final = 0.05
"""Share of that variance that more runs do not take away."""
NO_REPEATS: Final = 2.0
"""Repeats without difference that are added to those seen, lest two of them say how much all vary."""
FREEDOM: Final = 4.0
"""Degrees of freedom of what is known beforehand about the spread."""


class ShapeForecast(NamedTuple):
    """Log seconds at one scale, as each shape has them."""

    means: Floats
    spreads: Floats


class ShapeEvidence:
    """Of runs of one problem and one size. Columns: a row per shape."""

    def __init__(self, runs: Runs) -> None:
        self.scales = runs.scales
        self.runs = len(runs)
        logs = [np.log(runs.seconds[runs.ranks == scale]) for scale in self.scales]
        self._y = np.array([np.median(some) for some in logs])
        counts = np.array([some.size for some in logs])
        self._x = np.log(self.scales)
        # Only the walk since the smallest scale counts: the level is free.
        walk = np.minimum(self._x[:, None], self._x[None]) - self._x[0]
        self._repeats = _variance(logs)
        self._inverse = np.linalg.inv(np.linalg.cholesky(walk + NOISE * np.diag(1 / counts + STAYS)))
        self._one = self._inverse.sum(axis=1)
        residuals = self._residuals(slice(None))
        self.level: Floats = residuals @ self._one / (self._one @ self._one)
        """Logarithm of the seconds of all work on one rank."""
        self._squares: Floats = ((residuals - self.level[:, None] * self._one) ** 2).sum(axis=1)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the predictive distribution."""
        return FREEDOM + self.scales.size - 1

    def spread(self, expected: float) -> Floats:
        """Of the walk over a factor of e in ranks, in log seconds. expected: what it is thought to be beforehand."""
        return np.asarray(np.sqrt((FREEDOM * expected**2 + self._squares) / self.freedom))

    def log_likelihood(self, expected: float) -> Floats:
        """Of each shape."""
        return np.asarray(-self.freedom * np.log(self.spread(expected)))

    def at(self, ranks: float, expected: float, chosen: Rows = slice(None)) -> ShapeForecast:
        """Log seconds of another run at so many ranks. expected: as for spread. chosen: shapes that are asked."""
        x = float(np.log(ranks))
        # A walk that sets out from the smallest scale goes down from it independently of its way up.
        shared = self._inverse @ np.maximum(np.minimum(self._x, x) - self._x[0], 0.0)
        level = self.level[chosen]
        means = log_times(ranks)[chosen] + level + self._residuals(chosen) @ shared - level * (self._one @ shared)
        unknown = (1 - self._one @ shared) ** 2 / (self._one @ self._one)
        walked = abs(x - self._x[0]) - shared @ shared
        variance = float(walked + unknown) + NOISE * (1 + STAYS)
        return ShapeForecast(means, np.sqrt(self.spread(expected)[chosen] ** 2 * variance + self._repeats))

    def _residuals(self, chosen: Rows) -> Floats:
        """Of log times over log shapes, made independent of each other: (shapes, scales). Not kept: they are large."""
        shapes = np.stack([log_times(float(scale))[chosen] for scale in self.scales], axis=1)
        return np.asarray((self._y - shapes) @ self._inverse.T)


def _variance(logs: list[Floats]) -> float:
    """Of repeats, in log seconds: pulled to 0 where there are few."""
    squares = sum(float(((some - some.mean()) ** 2).sum()) for some in logs)
    return squares / (sum(some.size - 1 for some in logs) + NO_REPEATS)
