"""A power law of the time of one problem and size: a line in logarithms, fitted to all of its scales alike.

    log T(p) = a + b log p

Where work falls faster than ranks grow, as it begins to fit caches, or where communication keeps its share, a power law
goes on longer than a law with a floor. b has a prior, so two scales give an answer.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.mixture import Mixture

SLOPE: Final = -0.8
SLOPE_SPREAD: Final = 1.0
"""Prior of b."""
SPREAD: Final = 0.05
"""Prior spread of scales about the line, in log seconds."""
FREEDOM: Final = 3.0
"""Degrees of freedom of that prior."""
DRIFT: Final = 0.15
"""Spread of what the line lacks, over a factor of e in ranks above those that were run, where nothing shows it."""


class LogLine:
    """The line, fitted to the configurations of one size. drift: as DRIFT."""

    def __init__(self, known: Configurations, *, drift: float = DRIFT) -> None:
        self._drift = drift
        self._largest = float(known.log_ranks[-1])
        self._variance = known.variance
        design = np.column_stack([np.ones(len(known)), known.log_ranks - self._largest])
        precision = np.diag([0.0, (SPREAD / SLOPE_SPREAD) ** 2])
        self._covariance = np.linalg.inv(design.T @ design + precision)
        self._coefficients = self._covariance @ (design.T @ known.log_seconds + precision @ [0.0, SLOPE])
        misses = known.log_seconds - design @ self._coefficients
        self._freedom = FREEDOM + max(0, len(known) - 2)
        self._spread = float(np.sqrt((FREEDOM * SPREAD**2 + misses @ misses) / self._freedom))

    def at(self, ranks: float) -> Mixture:
        """Log seconds of another run on `ranks` ranks."""
        distance = float(np.log(ranks)) - self._largest
        row = np.array([1.0, distance])
        variance = self._spread**2 * (1 + float(row @ self._covariance @ row)) + (self._drift * max(distance, 0.0)) ** 2
        spread = float(np.sqrt(variance + self._variance))
        return Mixture.single(float(row @ self._coefficients), spread, self._freedom)
