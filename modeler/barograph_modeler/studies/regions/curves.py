"""Weighted shapes of one part, pooled over the problems that have it: `scaling`'s curves with another prior.

In a total, overhead is expected to equal work near the largest scale, where users stop adding ranks. A single part has
no such turn, so every level of its overhead is as likely as any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.evidence import ShapeEvidence
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.scaling.pool import Pool, posterior, relevant
from barograph_modeler.scaling.shapes import log_prior


class PartCurves:
    """Curves of one part. problems: runs of one size, with the seconds of the part."""

    def __init__(self, problems: Mapping[str, Runs]) -> None:
        self._evidence = {name: ShapeEvidence(runs) for name, runs in problems.items()}
        self._pool = Pool()
        for evidence in self._evidence.values():
            self._pool.add(evidence.fitted(), log_prior(None))
        self._posterior = cache(self._fit)

    def at(self, problem: str, ranks: float) -> Mixture:
        """Log seconds of the part on `ranks` ranks. Raises KeyError for an unknown problem."""
        evidence = self._evidence[problem]
        chosen, shares, spread = self._posterior(problem)
        return Mixture(shares, *evidence.at(ranks, spread, chosen), evidence.freedom)

    def _fit(self, problem: str) -> tuple[npt.NDArray[np.intp], Floats, float]:
        """Positions and weights of the relevant shapes, and the expected spread of the walk."""
        fitted = self._evidence[problem].fitted()
        prior, spread = self._pool.prior(fitted, log_prior(None))
        return *relevant(posterior(fitted.log_likelihood(spread), prior)), spread
