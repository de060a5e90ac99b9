"""Ratios of durations."""

from __future__ import annotations

import math


def log_ratio(actual: float, expected: float) -> float:
    """Natural logarithm of actual / expected, both in seconds and at least 0; NaN if either is 0.

    The quotient itself can be too large or too small for a float.

    >>> round(log_ratio(2.0, 1.0), 6)
    0.693147
    """
    return math.log(actual) - math.log(expected) if actual > 0 and expected > 0 else math.nan
