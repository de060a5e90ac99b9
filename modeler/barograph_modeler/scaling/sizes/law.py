"""The log-bilinear law of ranks and size with limits: Mokrov (2020), equation (7), as a regression with priors.

    log T = b0 + b1 log p + sum_j (b2j + b3j log p) log Nj

The laboratory's law of weak scaling for several sizes, with an intercept. Along a weak series its columns are
linearly dependent; the priors decide what the runs do not, so off the series the limits are wide and on it they are
not. Prior and noise are conjugate, so the prediction is Student's t in log seconds.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.mixture import Mixture

FREEDOM: Final = 4.0
SPREAD: Final = 0.05
"""Prior of the misfit of a configuration in log seconds, and its degrees of freedom."""
RANKS, SIZE = -0.9, 1.0
SLOPE_SPREAD: Final = 0.7
"""Prior of the slopes over log ranks and log size: divided work, time proportional to size."""
CURVATURE: Final = 0.03
"""Prior of the products' coefficients, about 0."""


class BilinearLaw:
    """The law of some configurations, fitted in information form."""

    def __init__(self, known: Configurations) -> None:
        count = known.log_sizes.shape[1]
        mean = np.array([0.0, RANKS, *[SIZE] * count, *[0.0] * count])
        spreads = np.array([SLOPE_SPREAD] * (1 + count) + [CURVATURE] * count) / SPREAD
        precision = np.array([0.0, *spreads**-2])
        self._origin = np.array([known.log_ranks[0], *known.log_sizes[0]])
        self._level, self._variance = float(known.log_seconds[0]), known.variance
        rows = self._rows(known.log_ranks, known.log_sizes)
        y = known.log_seconds - self._level
        self._information = np.diag(precision) + rows.T @ rows
        self._moment = precision * mean + rows.T @ y
        self._squares = float(precision @ mean**2 + y @ y) + FREEDOM * SPREAD**2
        self._freedom = FREEDOM + len(known) - 1

    def at(self, ranks: float, size: Floats) -> Mixture:
        """Log seconds of another run. size: (count,), above 0."""
        (row,) = self._rows(np.log([ranks]), np.log(size)[None])
        covariance = np.linalg.inv(self._information)
        coefficients = covariance @ self._moment
        misfit = max(self._squares - float(self._moment @ coefficients), 0.0) / self._freedom
        spread = np.sqrt(misfit * (1 + float(row @ covariance @ row)) + self._variance)
        return Mixture.single(self._level + float(row @ coefficients), float(spread), self._freedom)

    def _rows(self, log_ranks: Floats, log_sizes: Floats) -> Floats:
        """A row per configuration. log_ranks: (m,). log_sizes: (m, k)."""
        x, n = (log_ranks - self._origin[0])[:, None], log_sizes - self._origin[1:]
        return np.hstack([np.ones_like(x), x, n, x * n])
