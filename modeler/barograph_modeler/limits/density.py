"""The density of a job's runtime: a mixture of Laplace kernels over log seconds."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from barograph_modeler.limits.weights import WIDTHS
from barograph_modeler.maxima.sample import Floats

KNOTS: Final = np.arange(-0.5, 19.0, 0.05)
"""Log seconds at which the upper tail is computed; between them its logarithm is linear."""
MIN_TAIL: Final = 1e-12
NONE: Final = np.zeros((1, WIDTHS.size))


class RuntimeDensity:
    """Of one job. log_seconds: candidates, finite, from 0 to 17. weights: by candidate and width, with sum 1."""

    def __init__(self, log_seconds: Floats, weights: Floats) -> None:
        order = np.argsort(log_seconds, kind="stable")
        self._log_seconds, self._weights = log_seconds[order], weights[order]

    def best(self) -> float:
        """The log seconds p, a candidate or a knot, of the largest expected min(p, t) / max(p, t) over runtimes t.

        That ratio is exp(-|log p - log t|). Its mean over a Laplace kernel of width b at distance d is
        (exp(-d) - b exp(-d / b)) / (1 - b * b).
        """
        points = np.concatenate([self._log_seconds, KNOTS])
        at = np.searchsorted(self._log_seconds, points, side="right")
        wide, narrow = (sum(self._sides(points, at, widths)) for widths in (np.ones(WIDTHS.size), WIDTHS))
        means = ((wide - WIDTHS * narrow) / (1 - WIDTHS * WIDTHS)).sum(axis=1)
        return float(points[np.argmax(means)])

    def log_tail(self) -> Floats:
        """Logarithms of the probability of longer runtimes than KNOTS."""
        at = np.searchsorted(self._log_seconds, KNOTS, side="right")
        below, above = self._sides(KNOTS, at, WIDTHS)
        longer = np.concatenate([np.cumsum(self._weights[::-1], axis=0)[::-1], NONE])[at]
        tail = np.clip((longer + (below - above) / 2).sum(axis=1), MIN_TAIL, 1.0)
        return np.log(np.minimum.accumulate(tail))

    def _sides(self, points: Floats, at: npt.NDArray[np.intp], widths: Floats) -> tuple[Floats, Floats]:
        """Sums of weight * exp(-distance / width) over candidates up to each point, and above it.

        at: how many candidates are up to each point. No power overflows: 19 / 0.03 < 709.
        """
        x, p = np.exp(self._log_seconds[:, None] / widths), np.exp(points[:, None] / widths)
        below = np.concatenate([NONE, np.cumsum(self._weights * x, axis=0)])[at] / p
        above = np.concatenate([np.cumsum((self._weights / x)[::-1], axis=0)[::-1], NONE])[at] * p
        return below, above


def tail_at(log_tail: npt.NDArray[np.floating[Any]], log_seconds: float) -> float:
    """The probability of a longer runtime. log_tail: of a RuntimeDensity."""
    return math.exp(float(np.interp(log_seconds, KNOTS, log_tail)))


def quantile(log_tail: Floats, tail: float) -> float:
    """The log seconds with this probability of a longer runtime. tail: above 0, at most 1."""
    return float(np.interp(-math.log(max(tail, MIN_TAIL)), -log_tail, KNOTS))
