"""Averages of figures of which some are not known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any


def over_known(average: Callable[[Any], Any], values: Iterable[float | None]) -> float | None:
    """The average of the values that are finite numbers; None where none is. average: such as numpy.median."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return float(average(known)) if known else None
