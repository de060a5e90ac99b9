"""A rank's own work over the load of a rank and the ranks on its node: a Gaussian process in logarithms.

    log2 own = level + slope x + double integral of a fading curvature + g(log2 r) + noise,   x = -log2 load

The curvature (`gaussian.py`) has what caches do: work per load falls where a problem begins to fit them. g is a smooth
function of the ranks per node r: they share the memory's bandwidth. Small problems on few ranks have the loads of
large ones on many.
"""

from __future__ import annotations

from itertools import product
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.parts.gaussian import bending, last_given, log_likelihood
from barograph_modeler.scaling.pool import relevant

TAUS: Final = (0.01, 0.05, 0.2)
CONTENTIONS: Final = (0.01, 0.1, 0.4)
"""Standard deviations of g, in log2 seconds."""
NOISES: Final = (0.003, 0.01, 0.03, 0.1)
REACH: Final = 2.0
"""Length over which g changes, in doublings of ranks per node."""
SLOPE: Final = -1.0
SLOPE_SPREAD: Final = 0.3
LEVEL_SPREAD: Final = 30.0


class WorkLaw:
    """Seconds of own work per interval, fitted to (m,) columns above 0."""

    def __init__(self, loads: Floats, per_node: Floats, own: Floats) -> None:
        self._x, self._r, self._y = -np.log2(loads), np.log2(per_node), np.log2(own)
        grid = list(product(TAUS, CONTENTIONS, NOISES))
        logs = np.array([self._log_likelihood(*point) for point in grid])
        chosen, self._weights = relevant(np.exp(logs - logs.max()))
        self._points = [grid[i] for i in chosen]

    def draw(self, load: float, per_node: float, count: int, rng: np.random.Generator) -> Floats:
        """`count` draws of the mean own work from its posterior, without the noise of single runs: (count,)."""
        found = np.array([self._predict(-np.log2(load), np.log2(per_node), *point) for point in self._points])
        at = rng.choice(len(found), size=count, p=self._weights)
        return np.asarray(2 ** (found[at, 0] + found[at, 1] * rng.standard_normal(count)))

    def _moments(self, x: Floats, r: Floats, tau: float, contention: float) -> tuple[Floats, Floats]:
        along = x - x[0]
        _, covariance = bending(tuple(x.tolist()))
        shared = contention**2 * np.exp(-0.5 * ((r[:, None] - r) / REACH) ** 2)
        prior = LEVEL_SPREAD**2 + SLOPE_SPREAD**2 * np.outer(along, along)
        return SLOPE * along, prior + tau**2 * covariance + shared

    def _log_likelihood(self, tau: float, contention: float, noise: float) -> float:
        mean, covariance = self._moments(self._x, self._r, tau, contention)
        return log_likelihood(self._y - mean, covariance + noise**2 * np.eye(mean.size))

    def _predict(self, x: float, r: float, tau: float, contention: float, noise: float) -> tuple[float, float]:
        mean, covariance = self._moments(np.append(self._x, x), np.append(self._r, r), tau, contention)
        expected, variance = last_given(self._y, mean, covariance, np.full(self._x.size, noise**2))
        return expected, float(np.sqrt(max(variance, 0.0)))
