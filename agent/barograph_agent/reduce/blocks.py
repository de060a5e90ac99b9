"""Reduction of intervals to blocks within a budget of rows, shared such that rare classes are not reduced.

A block has count, sum, sum of squares, sum of cubes, minimum and maximum of consecutive intervals of one class: moments
stay exact, and the maximum is a block maximum in the sense of extreme value theory. A block of one is the raw interval.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

ROWS_PER_SECOND: Final = 250.0
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

    def allow(self, ended_at: float, rows_per_second: float) -> int:
        """Number of rows allowed for intervals that end by `ended_at` (Unix seconds)."""
        most = rows_per_second * BURST_SECONDS
        if self.until == 0.0:
            self.credit, self.until = most, ended_at
        self.credit = min(self.credit + rows_per_second * max(ended_at - self.until, 0.0), most)
        self.until = max(self.until, ended_at)
        return int(min(max(self.credit, 0.0), 2**31))

    def spend(self, rows: int) -> None:
        """Subtract sent rows. Credit may become negative, as at least one row per class is sent."""
        self.credit -= rows


def reduce(intervals: Intervals, rows: int) -> dict[str, Any]:
    """Reduce to at most `rows` blocks, but at least one per class; returns columns of `blocks` without job and world.

    Each class is divided into blocks of nearly equal length, as many as its share. A class with fewer intervals than
    its share is not reduced, and the remainder is distributed to the others.
    """
    class_ids, indices, seconds, ended_at = intervals
    if len(class_ids) <= rows:
        return _columns(class_ids, indices, np.ones(len(indices), np.int64), seconds, ended_at)
    _, inverse, counts = np.unique(class_ids, return_inverse=True, return_counts=True)
    order = np.argsort(inverse, kind="stable")
    length = counts.repeat(counts)
    position = np.arange(len(order)) - (np.cumsum(counts) - counts).repeat(counts)
    block = position * np.minimum(counts, share(counts, rows)).repeat(counts) // length
    begins = np.flatnonzero((position == 0) | (np.diff(block, prepend=-1) != 0))
    ends = np.append(begins[1:], len(order)) - 1
    # In the order of their ends, as raw intervals are.
    sequence = np.argsort(indices[order[ends]], kind="stable")
    reduced = _columns(
        class_ids[order[begins]],
        indices[order[begins]],
        ends - begins + 1,
        seconds[order],
        ended_at[order[ends]],
        begins,
    )
    return {name: column[sequence] for name, column in reduced.items()}


def share(counts: npt.NDArray[np.int64], rows: int) -> int:
    """The largest q, at least 1, with sum(min(counts, q)) <= rows: the limit of rows per class."""
    ascending = np.sort(counts)
    left = rows
    for place, count in enumerate(ascending.tolist()):
        fair = left // (len(ascending) - place)
        if count > fair:
            return max(int(fair), 1)
        left -= count
    return int(ascending[-1])


def _columns(
    class_ids: npt.NDArray[np.uint64],
    first: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    seconds: npt.NDArray[np.float64],
    ended_at: npt.NDArray[np.float64],
    begins: npt.NDArray[np.intp] | None = None,
) -> dict[str, Any]:
    def add(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return values if begins is None else np.add.reduceat(values, begins)

    return {
        "class_id": class_ids,
        "first_index": first,
        "count": counts,
        "sum_seconds": add(seconds),
        "sum_squares": add(seconds**2),
        "sum_cubes": add(seconds**3),
        "min_seconds": seconds if begins is None else np.minimum.reduceat(seconds, begins),
        "max_seconds": seconds if begins is None else np.maximum.reduceat(seconds, begins),
        "ended_at": ended_at,
    }
