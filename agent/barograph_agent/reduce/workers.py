"""What each worker of a training did, over some seconds: rows of `workers`.

Workers that train copies of one network do the same work on data of their own. What tells a slow worker from one with
more data is in these rows: its processor time, and the time of its updates, which are the same whatever the data.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from barograph_agent.ring.reader import Ring

FIRST_SECONDS: Final = 60.0
"""In the first minute, rows are more frequent: a worker may be slow from its first step on."""
ROW_SECONDS: Final = (2.0, 10.0)
"""Least time between two rows of a worker, in that minute and later."""

Integers = npt.NDArray[np.int64]


class WorkerSums:
    """Sums of the workers of one world on this node since their last rows."""

    def __init__(self, world: int, ranks: list[int]) -> None:
        self._world = world
        self._ranks = ranks
        self._sums: Integers = np.zeros((4, len(ranks)), np.int64)
        self._count = self._bytes = self._ended_ns = 0
        self._reported_ns = -1

    def add(self, sums: Integers, count: int, exits_ns: tuple[int, int], size: int) -> None:
        """Add `count` steps that all workers have.

        sums: (4, workers), own work, processor time, updates and waiting, in nanoseconds. exits_ns: the ends of the
        first and of the last one. size: bytes of the parameters.
        """
        if self._reported_ns < 0:
            self._reported_ns = exits_ns[0]
        self._sums += sums
        self._count += count
        self._bytes, self._ended_ns = size, exits_ns[1]

    def take(self, ring: Ring) -> dict[str, Any] | None:
        """The columns of rows, a row for each worker, if they are due. ring: of one of them, whose clock is theirs."""
        since = (self._ended_ns - self._reported_ns) * 1e-9
        age = (self._reported_ns - ring.started_ns) * 1e-9
        if not self._count or since < ROW_SECONDS[age >= FIRST_SECONDS]:
            return None
        own, used, updated, waited = self._sums * 1e-9
        columns = {
            "world": self._world,
            "rank": self._ranks,
            "count": self._count,
            "own_seconds": own,
            "cpu_seconds": used,
            "update_seconds": updated,
            "wait_seconds": waited,
            "bytes": self._bytes,
            "ended_at": (self._ended_ns - ring.started_ns + ring.started_unix_ns) * 1e-9,
        }
        self._sums[:] = 0
        self._count, self._reported_ns = 0, self._ended_ns
        return columns
