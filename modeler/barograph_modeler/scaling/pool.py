"""Empirical Bayes over the problems of an application: the kinds of their shapes, and the levels of their overhead.

Overhead is pooled in seconds, not as a share of the work: a halo exchange or a serial part does not depend on the
amount of work. Each problem adds its posterior to a table over (level of work, kind of shape, level of overhead). The
prior of a problem is a mixture of the other problems' posteriors, weighted by the similarity of their work, and the
general prior of all applications (`shapes.log_prior`). This is one step of EM.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.evidence import FittedShapes, ShapeEvidence
from barograph_modeler.scaling.shapes import KINDS, NO_OVERHEAD_AT_ALL, SHAPES, STEP, log_prior

SPREAD: Final = 0.04
"""Prior mean of the walk's spread over a factor of e in ranks."""
SPREADS: Final = 10.0
"""Weight of that prior mean, in problems."""
GENERAL: Final = 1.0
"""Weight of the general prior, in problems."""
NEAR: Final = 1.0
"""Width of the similarity kernel over levels of work, in log seconds."""
FAR: Final = 0.1
"""Least weight of a problem, at any distance."""
NEGLIGIBLE: Final = 1e-3
"""Weights with a smaller share of the largest one are left out."""
MIN_WEIGHT: Final = 1e-3
"""Smaller shares of the largest weight are not in the tables, which are sparse."""
TINY: Final = 1e-300
LOWEST: Final = -40.0
HIGHEST: Final = 40.0
"""Range of the levels of work and of overhead in the table, in log seconds."""
_CELLS: Final = int((HIGHEST - LOWEST) / STEP) + 1


class Pool:
    """The sum of the posteriors of an application's problems."""

    def __init__(self) -> None:
        self.problems = 0
        self._tables: dict[int, Any] = {}
        self._counts: dict[int, float] = {}
        self._log_spreads = 0.0

    def add(self, evidence: ShapeEvidence) -> None:
        """Add a problem's posterior."""
        fitted = evidence.fitted()
        weights = posterior(fitted.log_likelihood(SPREAD), log_prior(float(evidence.scales[-1])))
        table = _table(fitted, weights)
        self.problems += 1
        self._log_spreads += _log_spread(fitted, weights)
        for cell, share in _level(fitted, weights).items():
            self._counts[cell] = self._counts.get(cell, 0.0) + share
            added = share * table
            self._tables[cell] = self._tables[cell] + added if cell in self._tables else added

    def prior(self, fitted: FittedShapes, prior: Floats) -> tuple[Floats, float]:
        """Log prior of the shapes of a problem in the pool, from the other problems, and its expected spread."""
        weights = posterior(fitted.log_likelihood(SPREAD), prior)
        level = float(weights @ fitted.level)
        near = {cell: FAR + np.exp(-0.5 * ((LOWEST + cell * STEP - level) / NEAR) ** 2) for cell in self._counts}
        own = sum(near[cell] * share for cell, share in _level(fitted, weights).items())
        known = sum(near[cell] * count for cell, count in self._counts.items()) - own
        sparse = sum((near[cell] * table for cell, table in self._tables.items()), -own * _table(fitted, weights))
        pooled = sparse.toarray()
        shapes = sum(share * pooled[SHAPES.kind, cell] for cell, share in _split(_overhead(fitted)))
        mixed = (GENERAL * np.exp(prior) + np.maximum(shapes, 0.0)) / (GENERAL + max(known, 0.0))
        log_spreads = self._log_spreads - _log_spread(fitted, weights)
        spread = np.exp((SPREADS * np.log(SPREAD) + log_spreads) / (SPREADS + self.problems - 1))
        return np.log(mixed + TINY), float(spread)


def posterior(log_likelihood: Floats, log_prior: Floats) -> Floats:
    """Weights of shapes, with sum 1."""
    weights = log_likelihood + log_prior
    weights = np.exp(weights - weights.max())
    return np.asarray(weights / weights.sum())


def relevant(weights: Floats) -> tuple[npt.NDArray[np.intp], Floats]:
    """Positions of the weights that are not NEGLIGIBLE, and these with sum 1. weights: of any sum above 0."""
    chosen = np.flatnonzero(weights > NEGLIGIBLE * weights.max())
    return chosen, weights[chosen] / weights[chosen].sum()


def _overhead(fitted: FittedShapes) -> Floats:
    """Log seconds of overhead at one rank; 0 for shapes without overhead, which are kinds of their own."""
    return np.where(NO_OVERHEAD_AT_ALL, 0.0, fitted.level + SHAPES.overhead)


def _table(fitted: FittedShapes, weights: Floats) -> Any:
    chosen = np.flatnonzero(weights > MIN_WEIGHT * weights.max())
    (lower, first), (upper, second) = _split(_overhead(fitted)[chosen])
    mass = np.concatenate([weights[chosen] * first, weights[chosen] * second])
    kinds = np.tile(SHAPES.kind[chosen], 2)
    return csr_array((mass, (kinds, np.concatenate([lower, upper]))), shape=(KINDS, _CELLS))


def _level(fitted: FittedShapes, weights: Floats) -> dict[int, float]:
    """Shares of a problem in each level of work."""
    return {int(cell[0]): float(share[0]) for cell, share in _split(np.array([weights @ fitted.level]))}


def _log_spread(fitted: FittedShapes, weights: Floats) -> float:
    return 0.5 * float(np.log(weights @ fitted.spread(SPREAD) ** 2))


def _split(values: Floats) -> list[tuple[np.ndarray, Floats]]:
    """The two cells next to each value, and its share in each."""
    position = np.clip((values - LOWEST) / STEP, 0.0, _CELLS - 1.001)
    lower = position.astype(np.intp)
    share = position - lower
    return [(lower, 1 - share), (lower + 1, share)]
