"""Power laws of counts, bytes and serial parts over size and ranks, with priors: Bayesian linear regression.

log y = a + b log n + c log p + noise
"""

from __future__ import annotations

from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats

LEVEL_SPREAD: Final = 30.0
SIZE_SPREAD: Final = 1.0
RANKS_SPREAD: Final = 0.3
"""Prior standard deviations of a, b and c, about 0."""
MIN_NOISE: Final = 1e-3
"""Smallest noise in logarithms."""
PRIOR_RUNS: Final = 2.0
PRIOR_NOISE: Final = 0.02
"""Pseudo-observations of this noise."""


class PowerLaw:
    """y over size and ranks, fitted to (m,) columns above 0."""

    def __init__(self, sizes: Floats, ranks: Floats, y: Floats) -> None:
        self._centre = np.array([np.log(sizes).mean(), np.log(ranks).mean()])
        columns = self._columns(sizes, ranks)
        prior = np.diag(1 / np.array([LEVEL_SPREAD, SIZE_SPREAD, RANKS_SPREAD]) ** 2)
        logs = np.log(y)
        squares = PRIOR_RUNS * PRIOR_NOISE**2
        variance = PRIOR_NOISE**2
        for _ in range(3):
            precision = columns.T @ columns / variance + prior
            self._mean = np.linalg.solve(precision, columns.T @ logs / variance)
            errors = logs - columns @ self._mean
            variance = max((squares + errors @ errors) / (PRIOR_RUNS + max(len(y) - 3, 0)), MIN_NOISE**2)
        self._covariance = np.linalg.inv(precision)

    def draw(self, size: float, ranks: float, count: int, rng: np.random.Generator) -> Floats:
        """`count` draws of y from its posterior, without the noise of single runs: (count,)."""
        at = self._columns(np.array([size]), np.array([ranks]))[0]
        spread = np.sqrt(at @ self._covariance @ at)
        return np.asarray(np.exp(at @ self._mean + spread * rng.standard_normal(count)))

    def _columns(self, sizes: Floats, ranks: Floats) -> Floats:
        logs = np.column_stack([np.log(sizes), np.log(ranks)]) - self._centre
        return np.column_stack([np.ones(len(logs)), logs])
