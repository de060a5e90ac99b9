"""Intervals of a job that are held back until the job is known to be healthy."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import numpy as np

from barograph_agent.protocol.wire import Column
from barograph_modeler.bands.moments import Blocks
from barograph_modeler.pace.windows import JobBlocks, RunPace, Windower

HELD_INTERVALS: Final = 262_144
"""Blocks held per job: older ones are forgotten, not learned, so that a flood costs history and not memory."""


class BlockBatch(NamedTuple):
    """Blocks of one job in the order they came. reduced: their sums and extremes; None where each is one interval."""

    intervals: JobBlocks
    reduced: Blocks | None = None

    @classmethod
    def of_rows(cls, columns: Mapping[str, Column], rows: slice, intervals: JobBlocks) -> BlockBatch:
        """Rows of the table `blocks`, as `blocks_by_job` has cut them."""
        if intervals.counts is None:
            return cls(intervals)
        names = ("sum_seconds", "sum_squares", "sum_cubes", "min_seconds", "max_seconds")
        columns_of_rows = (np.asarray(columns[name][rows]) for name in names)
        return cls(intervals, Blocks(intervals.counts.astype(np.float64), *columns_of_rows))

    @property
    def blocks(self) -> Blocks:
        """The blocks with all they carry."""
        return Blocks.of_values(self.intervals.seconds) if self.reduced is None else self.reduced

    @property
    def size(self) -> int:
        """How many blocks there are."""
        return len(self.intervals.seconds)

    @property
    def total(self) -> int:
        """How many intervals the blocks stand for."""
        return self.size if self.reduced is None else int(self.reduced.counts.sum())


class JobEnd(NamedTuple):
    """How a job ended."""

    runtime_seconds: float
    exit_status: int
    seen_at: float
    """When this daemon read it."""


class EndedJob(NamedTuple):
    """A job that has ended, and whether it is learned from; runtime in seconds, NaN where it is unknown."""

    job: str
    workload: str
    runtime_seconds: float
    verdict: Literal["healthy", "withheld", "failed"]


class PendingJob:
    """One job between its first interval and its verdict."""

    def __init__(self, window_seconds: float) -> None:
        self.workload = ""
        self.score = 0.0
        self.final = False
        self.end: JobEnd | None = None
        self.pace = RunPace(window_seconds)
        self.dropped = 0
        self.has_intervals = False
        """True once there was an interval: a job without any cannot alarm."""
        self._windower = Windower(window_seconds)
        self._held: deque[tuple[float, BlockBatch]] = deque()
        self._count = 0

    @property
    def suspect(self) -> bool:
        """True once the job has alarmed: nothing of it may be learned."""
        return self.score > 1

    def ended(self, job: str, end: JobEnd) -> EndedJob:
        """The job as one that has ended."""
        verdict: Literal["healthy", "withheld", "failed"] = "failed" if end.exit_status != 0 else "healthy"
        return EndedJob(job, self.workload, end.runtime_seconds, "withheld" if self.suspect else verdict)

    def add(self, batch: BlockBatch, now: float) -> None:
        """Hold further intervals, which came at Unix time `now`: what a spool delivers late has ended long before."""
        self.has_intervals = True
        self.pace.add(self._windower.add(*batch.intervals))
        self._held.append((now, batch))
        self._count += batch.size
        while self._count > HELD_INTERVALS:
            gone = self._held.popleft()[1]
            self._count -= gone.size
            self.dropped += gone.total

    def release(self, before: float) -> list[BlockBatch]:
        """Remove and return what arrived before this Unix time, oldest first."""
        released = []
        while self._held and self._held[0][0] < before:
            released.append(self._held.popleft()[1])
            self._count -= released[-1].size
        return released
