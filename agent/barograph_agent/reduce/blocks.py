"""Reduction of intervals to blocks within a budget of rows, shared such that rare classes are not reduced.

A block has count, sum, sum of squares, sum of cubes, minimum and maximum of consecutive intervals of one class: moments
stay exact, and the maximum is a block maximum in the sense of extreme value theory. A block of one is the raw interval.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from barograph_agent.protocol.tables import ROWS_PER_SECOND
from barograph_agent.protocol.wire import MAX_ROWS
from barograph_agent.reduce.library import reduce_intervals

BURST_SECONDS: Final = 20.0
"""Limit on accumulated unused budget: a short run, or the start of a long one, is not reduced."""
ROW_BYTES: Final = 80
"""Size of a row of `blocks` on the wire and in the spool, without the columns that are constant in a message."""


class Intervals(NamedTuple):
    """Intervals in the order of their ends: arrays of equal length, ended_at in Unix seconds."""

    class_ids: npt.NDArray[np.uint64]
    indices: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    ended_at: npt.NDArray[np.float64]


class Budget(msgspec.Struct):
    """Token bucket of the rows that a run may send, refilled by the time of the intervals, not of reading.

    So after a suspension of the sidecar the intervals of that time are reduced no more than others.
    """

    credit: float = -1.0
    until: float = 0.0
    """Unix seconds of the last refill; 0 before the first interval."""

    def allow(self, ended_at: float, rows_per_second: float = ROWS_PER_SECOND) -> int:
        """Number of rows allowed for intervals that end by `ended_at` (Unix seconds), at most those of a message."""
        most = rows_per_second * BURST_SECONDS
        if self.until == 0.0:
            self.credit, self.until = most, ended_at
        self.credit = min(self.credit + rows_per_second * max(ended_at - self.until, 0.0), most)
        self.until = max(self.until, ended_at)
        return int(min(max(self.credit, 0.0), MAX_ROWS))

    def spend(self, rows: int) -> None:
        """Subtract sent rows. Credit may become negative, as at least one row per class is sent."""
        self.credit -= rows


def reduce(intervals: Intervals, rows: int) -> dict[str, Any]:
    """At most `rows` blocks, but at least one per class, as columns of `blocks` without job and world."""
    return reduce_intervals(rows, *intervals)
