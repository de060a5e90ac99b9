"""Predictions for what was never run, from predictions for its like: a size from other sizes, a problem from others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.mixture import Mixture

SLOPE, SLOPE_SPREAD = 1.0, 0.5
"""Of log time over log size at one scale, before two sizes were seen: work in proportion to size."""
WALK: Final = 0.1
"""Spread of what no straight line has, over a factor of e in size."""
FREEDOM: Final = 4.0
UNALIKE: Final = 1.0
"""Spread of log seconds among problems of one application, before two were seen."""


def across_sizes(size: float, known: Sequence[tuple[float, Mixture]]) -> Mixture:
    """Log seconds at a size, from the same scale at other sizes: a line in logarithms, and a random walk about it.

    The line's slope may differ from scale to scale, since each size brings its own curve over scale: the law is
    bilinear in log ranks and log size where all of these are straight.
    """
    x = np.log([one for one, _ in known]) - np.log(size)
    y, variance = _moments([mixture for _, mixture in known])
    # Distance from the asked size is the walk: sizes on one side of it share the way up to the nearer.
    same_side = np.sign(x)[:, None] == np.sign(x)[None]
    walk = WALK**2 * np.where(same_side, np.minimum(np.abs(x)[:, None], np.abs(x)[None]), 0.0)
    inverse = np.linalg.inv(walk + np.diag(variance))
    # A prior on the slope, and none on the level at the asked size, which is the answer.
    design = np.stack([np.ones(x.size), x], axis=1)
    information = design.T @ inverse @ design + np.diag([0.0, SLOPE_SPREAD**-2])
    moment = design.T @ inverse @ y + np.array([0.0, SLOPE / SLOPE_SPREAD**2])
    covariance = np.linalg.inv(information)
    return Mixture.single(float((covariance @ moment)[0]), float(np.sqrt(covariance[0, 0])), FREEDOM)


def of_the_others(known: Sequence[Mixture]) -> Mixture:
    """Log seconds of a problem never seen, from the others at the same scale: one more of their kind."""
    y, variance = _moments(known)
    between = (FREEDOM * UNALIKE**2 + ((y - y.mean()) ** 2).sum()) / (FREEDOM + y.size - 1)
    spread = np.sqrt(between * (1 + 1 / y.size) + variance.mean())
    return Mixture.single(float(np.median(y)), float(spread), FREEDOM + y.size - 1)


def _moments(known: Sequence[Mixture]) -> tuple[Floats, Floats]:
    """Medians, and squares of half the central 68 %."""
    limits = np.array([[one.quantile(p) for p in (0.16, 0.5, 0.84)] for one in known])
    return limits[:, 1], ((limits[:, 2] - limits[:, 0]) / 2) ** 2
