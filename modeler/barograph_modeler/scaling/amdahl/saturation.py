"""A time that no longer changes on many ranks, where it does not fall on few: weak series, work that is not divided.

    log T(p) = a + b p**-k

Such a series grows while ranks fill a node and its memory, or first neighbours appear, and is level from there on.
Curves that start from divided work take the level for noise about a time that should fall.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.mixture import Mixture

EXPONENTS: Final = (1.0, 2.0)
CHANGE_SPREAD: Final = 0.5
"""Prior spread of b, as the change from the smallest scale to many ranks."""
SPREAD: Final = 0.05
"""Prior spread of scales about the curve, in log seconds."""
FREEDOM: Final = 3.0
"""Degrees of freedom of that prior."""
DRIFT: Final = 0.05
"""Spread of what the curve lacks, over a factor of e in ranks beyond those that were run."""
DOUBT: Final = 1.0
"""Spread of what the curve lacks, as a share of b: it was seen to change, and may change again."""
MIN_SCALES: Final = 3
MAX_FALL: Final = math.log(0.95)
"""Change of the time from the smallest scale to the largest, as a logarithm, that counts as no fall."""
MAX_MISS: Final = 0.1
"""Root mean square of the distances of scales from the curve, in logarithms, up to which they follow it."""


class SaturatingCurve:
    """The curve, fitted to the configurations of one size for each of EXPONENTS."""

    def __init__(self, known: Configurations) -> None:
        self._known = known
        self._fits = [self._fit(exponent) for exponent in EXPONENTS]
        weights = np.exp([log - max(one[0] for one in self._fits) for log, *_ in self._fits])
        self._weights = weights / weights.sum()

    def at(self, ranks: float) -> Mixture:
        """Log seconds of another run on `ranks` ranks."""
        distance = max(0.0, math.log(ranks / float(self._known.ranks[-1])))
        means, spreads = [], []
        for exponent, (_, coefficients, covariance, variance, _) in zip(EXPONENTS, self._fits, strict=True):
            row = np.array([1.0, float((ranks / self._known.ranks[0]) ** -exponent)])
            means.append(float(row @ coefficients))
            of_curve = variance * (1 + float(row @ covariance @ row)) + (DRIFT * distance) ** 2
            of_curve += (DOUBT * float(coefficients[1])) ** 2
            spreads.append(math.sqrt(of_curve + self._known.variance))
        return Mixture(self._weights, np.array(means), np.array(spreads), self._freedom)

    @property
    def _freedom(self) -> float:
        return FREEDOM + max(0, len(self._known) - 2)

    def _fit(self, exponent: float) -> tuple[float, Floats, Floats, float, float]:
        """Log likelihood, coefficients, their covariance over the variance of scales, that variance, and the misses."""
        known = self._known
        design = np.column_stack([np.ones(len(known)), (known.ranks / known.ranks[0]) ** -exponent])
        precision = np.diag([0.0, (SPREAD / CHANGE_SPREAD) ** 2])
        covariance = np.linalg.inv(design.T @ design + precision)
        coefficients = covariance @ (design.T @ known.log_seconds)
        misses = known.log_seconds - design @ coefficients
        squares = FREEDOM * SPREAD**2 + float(misses @ misses + coefficients @ precision @ coefficients)
        log_likelihood = -0.5 * (FREEDOM + len(known)) * math.log(squares)
        return log_likelihood, coefficients, covariance, squares / self._freedom, float(np.sqrt(np.mean(misses**2)))

    @property
    def miss(self) -> float:
        """Root mean square of the distances of scales from the nearest of the curves, in logarithms."""
        return min(miss for *_, miss in self._fits)


def saturating(known: Configurations) -> SaturatingCurve | None:
    """The curve of configurations of one size, if the time does not fall and they follow it better than a power law."""
    if len(known) < MIN_SCALES or known.log_seconds[-1] - known.log_seconds[0] < MAX_FALL:
        return None
    curve = SaturatingCurve(known)
    design = np.column_stack([np.ones(len(known)), known.log_ranks])
    found, *_ = np.linalg.lstsq(design, known.log_seconds, rcond=None)
    power_law = float(np.sqrt(np.mean((known.log_seconds - design @ found) ** 2)))
    return curve if curve.miss <= min(MAX_MISS, power_law) else None
