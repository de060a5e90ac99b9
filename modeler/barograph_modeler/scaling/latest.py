"""What runs of one work at one scale take now: the one that is nearest to all of them, the newest first."""

from __future__ import annotations

from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats

DECAY: Final = 4.0
"""Runs over which the weight of a run falls by e: chosen on three job logs (ADR 82)."""


def latest_point(log_seconds: Floats) -> float:
    """Log seconds: of the runs, (runs,), the oldest first, one or more, that with the largest expected accuracy.

    The accuracy of a and b is exp(-|a - b|), the ratio of the shorter to the longer runtime. Its mean has weights that
    fall with the age. Where runs differ little this is a weighted median, which a few odd runs do not move.

    >>> latest_point(np.array([1.0, 1.0, 1.0, 5.0]))
    1.0
    >>> latest_point(np.array([1.0, 1.0, 5.0, 5.0, 5.0]))
    5.0
    """
    weights = np.exp((np.arange(log_seconds.size) - log_seconds.size) / DECAY)
    accuracy = np.exp(-np.abs(log_seconds[:, None] - log_seconds)) @ weights
    return float(log_seconds[np.argmax(accuracy)])
