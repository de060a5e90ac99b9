"""Rows of jobs that were open when a daemon started: read after new rows, so that new jobs need not wait for them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from barograph_agent.protocol.wire import Column
from barograph_collector.client.follow import Follower, LogReading, Rows


class Backfill:
    """Reads all rows of some jobs, whose older rows a follower of new rows does not have.

    Both begin at one offset, of each table the follower's: this reads from further back, and beyond that offset until
    it has caught up with the follower. The follower's rows of these jobs are left out until then, so that each of their
    rows comes once, and those of a job in the order of the log.

    jobs: whose rows are returned.
    """

    def __init__(self, reader: LogReading, offsets: Mapping[str, int], jobs: Collection[str]) -> None:
        """offsets: after which tables are read; each has a column of jobs."""
        self.jobs = frozenset(jobs)
        self.follower = Follower(reader, list(offsets))
        self.follower.offsets.update(offsets)
        self._reached = math.inf
        """The offset where the follower takes over; infinite until it is known."""

    @property
    def is_complete(self) -> bool:
        """Whether it has caught up with the follower."""
        return self._reached < math.inf

    def read(self, head: int) -> list[Rows]:
        """The next round of older rows. head: the offset up to which the follower has read.

        Raises LogUnavailable and ReadRefused.
        """
        if self.is_complete:
            return []
        found = self.follower.read(0.0) or []
        if (reached := min(self.follower.offsets.values())) >= head:
            self._reached = reached
        return [(table, part) for table, columns in found if (part := self._of_jobs(columns)) is not None]

    def others(self, rows: Sequence[Rows]) -> list[Rows]:
        """What the follower has read, without the rows that this returns."""
        return [(table, part) for table, columns in rows if (part := self._rest(table, columns)) is not None]

    def is_over(self, offsets: Mapping[str, int]) -> bool:
        """Whether the follower, which has read up to these offsets, has all further rows."""
        return min(offsets.values()) >= self._reached

    def _of_jobs(self, columns: Mapping[str, Column]) -> Mapping[str, Column] | None:
        return chosen(columns, [job in self.jobs for job in columns["job"]])

    def _rest(self, table: str, columns: Mapping[str, Column]) -> Mapping[str, Column] | None:
        if table not in self.follower.offsets:
            return columns
        rows = zip(columns["job"], columns["log_offset"], strict=True)
        return chosen(columns, [job not in self.jobs or offset > self._reached for job, offset in rows])


def chosen(columns: Mapping[str, Any], which: list[bool]) -> Mapping[str, Column] | None:
    """The rows that are chosen; None for none."""
    if all(which):
        return columns
    rows = np.flatnonzero(which)
    if not rows.size:
        return None
    return {
        name: [values[row] for row in rows.tolist()] if isinstance(values, list) else np.asarray(values)[rows]
        for name, values in columns.items()
    }
