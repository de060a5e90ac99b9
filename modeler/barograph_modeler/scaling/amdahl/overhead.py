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
from scipy.optimize import nnls

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.mixture import Mixture

SPREAD: Final = 0.05
"""Prior spread of scales about the law, in logarithms."""
FREEDOM: Final = 3.0
"""Degrees of freedom of that prior."""
DRIFT: Final = 0.1
"""Spread of what the law lacks, over a factor of e in ranks beyond those that were run."""


class OverheadLaws:
    """Both laws, fitted to the configurations of one size."""

    def __init__(self, known: Configurations) -> None:
        self._known = known
        self._terms = (_amdahl, _with_logarithm)[: max(1, len(known) - 1)]
        self._fits = [self._fit(terms(known.ranks)) for terms in self._terms]

    def at(self, ranks: float) -> Mixture:
        """Log seconds of another run on `ranks` ranks: both laws, with equal weights."""
        least, most = float(self._known.ranks[0]), float(self._known.ranks[-1])
        distance = max(math.log(ranks / most), math.log(least / ranks), 0.0)
        means, spreads, freedom = [], [], []
        for terms, (coefficients, spread, own) in zip(self._terms, self._fits, strict=True):
            means.append(float(np.log((terms(np.array([ranks])) @ coefficients)[0])))
            drifted = spread**2 * (1 + 1 / len(self._known)) + (DRIFT * distance) ** 2
            spreads.append(float(np.sqrt(drifted + self._known.variance)))
            freedom.append(own)
        count = len(means)
        return Mixture(np.full(count, 1 / count), np.array(means), np.array(spreads), np.array(freedom))

    def _fit(self, terms: Floats) -> tuple[Floats, float, float]:
        """Coefficients, the spread of scales, and its degrees of freedom."""
        seconds = np.exp(self._known.log_seconds)
        coefficients, _ = nnls(terms / seconds[:, None], np.ones(seconds.size))
        misses = np.log(np.maximum(terms @ coefficients, 1e-300)) - self._known.log_seconds
        freedom = FREEDOM + max(0, seconds.size - int(np.count_nonzero(coefficients)))
        return coefficients, float(np.sqrt((FREEDOM * SPREAD**2 + misses @ misses) / freedom)), freedom


def _amdahl(ranks: Floats) -> Floats:
    return np.stack([np.ones(ranks.size), 1 / ranks], axis=1)


def _with_logarithm(ranks: Floats) -> Floats:
    return np.stack([np.ones(ranks.size), 1 / ranks, np.log(ranks)], axis=1)
