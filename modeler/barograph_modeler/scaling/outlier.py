"""A scale whose runs were disturbed: far from the line between its neighbours, where the others are near theirs."""

from __future__ import annotations

from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.configurations import Configurations

MIN_SCALES: Final = 5
MIN_DISTANCE: Final = 0.25
"""Least distance in logarithms: where the others are exact, RATIO alone would leave out a scale for a per cent."""
RATIO: Final = 8.0
"""Least ratio to the largest distance of the others, without that scale."""

LARGEST_RATIO: Final = 3.0
"""The same for the largest scale, which stays, as a curve may turn there."""


def outlying_scale(known: Configurations) -> int | None:
    """The position of the one scale of one size that does not belong to the curve; None if there is none.

    The smallest and the largest scale have one neighbour only, and are never taken for it.
    """
    if len(known) < MIN_SCALES:
        return None
    distances = _distances(known.log_ranks, known.log_seconds)
    at = int(np.argmax(np.abs(distances))) + 1
    rest = np.delete(np.arange(len(known)), at)
    others = np.abs(_distances(known.log_ranks[rest], known.log_seconds[rest])).max()
    distance = abs(float(distances[at - 1]))
    return at if distance > max(MIN_DISTANCE, RATIO * others) else None


def unconfirmed_largest(known: Configurations) -> float | None:
    """How many times as long as the smaller scales of one size show the largest takes, where it was run once or twice
    and the others follow a curve; None where it agrees with these."""
    if len(known) < MIN_SCALES or known.repeats[-1] > 2:
        return None
    x, y = known.log_ranks, known.log_seconds
    slopes = np.diff(y) / np.diff(x)
    misses = np.diff(slopes) * np.diff(x)[1:]
    if misses[-1] <= max(MIN_DISTANCE, LARGEST_RATIO * float(np.abs(misses[:-1]).max())):
        return None
    return float(np.exp(misses[-1]))


def _distances(x: Floats, y: Floats) -> Floats:
    """Of each inner point from the line between its neighbours."""
    share = (x[1:-1] - x[:-2]) / (x[2:] - x[:-2])
    return np.asarray(y[1:-1] - (1 - share) * y[:-2] - share * y[2:])
