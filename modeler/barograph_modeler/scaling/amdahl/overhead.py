"""Two laws of the time of one problem and size, fitted to all of its scales alike.

    T(p) = s + w / p              Amdahl (1967)
    T(p) = s + w / p + c log p    with overhead

Coefficients are not negative, errors are relative. Unlike the curves of `evidence.py`, a law does not start from the
largest scale, and is not shaken by a scale that was measured on a bad day.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.history import MIN_SECONDS
from barograph_modeler.scaling.mixture import Mixture

SPREAD: Final = 0.05
"""Prior spread of scales about the law, in logarithms."""
FREEDOM: Final = 3.0
"""Degrees of freedom of that prior."""
DRIFT: Final = 0.1
"""Spread of what the law lacks, over a factor of e in ranks beyond those that were run, where nothing shows it."""


class AmdahlLaw:
    """One of the laws, fitted to the configurations of one size. has_overhead: of three configurations and more.

    drift: as DRIFT.
    """

    def __init__(self, known: Configurations, *, has_overhead: bool = False, drift: float = DRIFT) -> None:
        from scipy.optimize import nnls

        self._known, self._drift = known, drift
        self._terms = _with_logarithm if has_overhead and len(known) > 2 else _amdahl
        seconds, terms = np.exp(known.log_seconds), self._terms(known.ranks)
        self._coefficients, _ = nnls(terms / seconds[:, None], np.ones(seconds.size))
        misses = self._log_seconds(known.ranks) - known.log_seconds
        self._freedom = FREEDOM + max(0, seconds.size - int(np.count_nonzero(self._coefficients)))
        self._variance = (FREEDOM * SPREAD**2 + float(misses @ misses)) / self._freedom

    def at(self, ranks: float) -> Mixture:
        """Log seconds of another run on `ranks` ranks."""
        least, most = float(self._known.ranks[0]), float(self._known.ranks[-1])
        distance = max(math.log(ranks / most), math.log(least / ranks), 0.0)
        mean = float(self._log_seconds(np.array([ranks]))[0])
        variance = self._variance * (1 + 1 / len(self._known)) + (self._drift * distance) ** 2 + self._known.variance
        return Mixture.single(mean, math.sqrt(variance), self._freedom)

    def _log_seconds(self, ranks: Floats) -> Floats:
        """Of the law, at least those of the shortest run, less what times fall in proportion to fewer ranks: overhead
        alone would be no time on one rank."""
        known = self._known
        least = known.log_seconds.min() + np.minimum(np.log(ranks) - known.log_ranks[0], 0.0)
        law = np.maximum(self._terms(ranks) @ self._coefficients, MIN_SECONDS)
        return np.asarray(np.where(ranks < known.ranks[0], np.maximum(np.log(law), least), np.log(law)))


def _amdahl(ranks: Floats) -> Floats:
    return np.stack([np.ones(ranks.size), 1 / ranks], axis=1)


def _with_logarithm(ranks: Floats) -> Floats:
    return np.stack([np.ones(ranks.size), 1 / ranks, np.log(ranks)], axis=1)
