"""Predictions without runs: for a size from other sizes, for a problem from other problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.mixture import Mixture

SLOPE, SLOPE_SPREAD = 1.0, 0.5
"""Prior of the slope of log time over log size at one scale: time proportional to size."""
WALK: Final = 0.1
"""Spread of the deviation from a straight line, over a factor of e in size."""
FREEDOM: Final = 4.0
BETWEEN_PROBLEMS: Final = 1.0
"""Prior of the spread of log seconds between problems of one application."""


def from_other_sizes(size: float, known: Sequence[tuple[float, Mixture]]) -> Mixture:
    """Log seconds at a size, from other sizes at the same scale: a line in logarithms plus a random walk.

    The slope may differ between scales, since each size has its own curve over scale: if these are straight, the law is
    bilinear in log ranks and log size.
    """
    x = np.log([one for one, _ in known]) - np.log(size)
    y, variance = _moments([mixture for _, mixture in known])
    # The walk starts at the requested size: sizes on the same side share the steps up to the nearer one.
    same_side = np.sign(x)[:, None] == np.sign(x)[None]
    walk = WALK**2 * np.where(same_side, np.minimum(np.abs(x)[:, None], np.abs(x)[None]), 0.0)
    inverse = np.linalg.inv(walk + np.diag(variance))
    # The slope has a prior; the level at the requested size, which is the answer, has none.
    design = np.stack([np.ones(x.size), x], axis=1)
    information = design.T @ inverse @ design + np.diag([0.0, SLOPE_SPREAD**-2])
    moment = design.T @ inverse @ y + np.array([0.0, SLOPE / SLOPE_SPREAD**2])
    covariance = np.linalg.inv(information)
    return Mixture.single(float((covariance @ moment)[0]), float(np.sqrt(covariance[0, 0])), FREEDOM)


def from_other_problems(known: Sequence[Mixture]) -> Mixture:
    """Log seconds of a problem without runs, as another draw from the distribution of the others at the same scale."""
    y, variance = _moments(known)
    between = (FREEDOM * BETWEEN_PROBLEMS**2 + ((y - y.mean()) ** 2).sum()) / (FREEDOM + y.size - 1)
    spread = np.sqrt(between * (1 + 1 / y.size) + variance.mean())
    return Mixture.single(float(np.median(y)), float(spread), FREEDOM + y.size - 1)


def _moments(known: Sequence[Mixture]) -> tuple[Floats, Floats]:
    """Medians, and variances from the half-widths of the central 68 %."""
    limits = np.array([[one.quantile(p) for p in (0.16, 0.5, 0.84)] for one in known])
    return limits[:, 1], ((limits[:, 2] - limits[:, 0]) / 2) ** 2
