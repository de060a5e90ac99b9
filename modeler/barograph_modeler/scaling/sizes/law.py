"""The log-bilinear law of ranks and size with limits: Mokrov (2020), equation (7), as a regression with priors.

    log T = b0 + b1 log p + sum_j (b2j + b3j log p) log Nj

The law of `studies.weak.weak` for sizes of several numbers, with an intercept. Along a weak series its columns are
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
    """The law, learned by recursive least squares in information form: a configuration costs one update of a matrix.

    count: numbers that make up a size.
    """

    def __init__(self, count: int) -> None:
        self._terms = 2 + 2 * count
        mean = np.array([0.0, RANKS, *[SIZE] * count, *[0.0] * count])
        spreads = np.array([SLOPE_SPREAD] * (1 + count) + [CURVATURE] * count) / SPREAD
        precision = np.array([0.0, *spreads**-2])
        self._information = np.diag(precision)
        self._moment = precision * mean
        self._squares = float(precision @ mean**2) + FREEDOM * SPREAD**2
        self._learned = 0
        self._origin: Floats | None = None
        self._level = 0.0
        self._variance = 0.0

    @classmethod
    def of(cls, known: Configurations) -> BilinearLaw:
        """The law of some configurations."""
        law = cls(known.log_sizes.shape[1])
        for x, n, y in zip(known.log_ranks, known.log_sizes, known.log_seconds, strict=True):
            law.learn(float(x), n, float(y))
        law._variance = known.variance
        return law

    def learn(self, log_ranks: float, log_size: Floats, log_seconds: float) -> None:
        """Learn one configuration. log_size: (count,)."""
        if self._origin is None:
            self._origin, self._level = np.array([log_ranks, *log_size]), log_seconds
        row, y = self._row(log_ranks, log_size), log_seconds - self._level
        self._information += np.outer(row, row)
        self._moment += row * y
        self._squares += y * y
        self._learned += 1

    def at(self, ranks: float, size: Floats) -> Mixture:
        """Log seconds of another run. size: (count,), above 0. Learn a configuration first."""
        row = self._row(float(np.log(ranks)), np.log(size))
        covariance = np.linalg.inv(self._information)
        coefficients = covariance @ self._moment
        freedom = FREEDOM + self._learned - 1
        misfit = max(self._squares - float(self._moment @ coefficients), 0.0) / freedom
        spread = np.sqrt(misfit * (1 + float(row @ covariance @ row)) + self._variance)
        return Mixture.single(self._level + float(row @ coefficients), float(spread), freedom)

    def _row(self, log_ranks: float, log_size: Floats) -> Floats:
        assert self._origin is not None, "no configuration was learned"
        x, n = log_ranks - self._origin[0], log_size - self._origin[1:]
        return np.concatenate([[1.0, x], n, x * n])
