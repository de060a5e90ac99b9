"""A job whose intervals are held until it is known to be healthy."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import numpy as np

from barograph_agent.protocol.wire import Column
from barograph_modeler.bands.moments import Blocks
from barograph_modeler.pace.timeline import Timeline
from barograph_modeler.pace.windows import JobBlocks, RunPace, Windower

HELD_INTERVALS: Final = 262_144
"""Blocks held per job; older ones are dropped without being learned, which bounds the memory."""


class BlockBatch(NamedTuple):
    """Blocks of one job in order of arrival. reduced: their sums and extremes; None if each is one interval."""

    intervals: JobBlocks
    reduced: Blocks | None = None

    @classmethod
    def of_rows(cls, columns: Mapping[str, Column], rows: slice, intervals: JobBlocks) -> BlockBatch:
        """Rows of the table `blocks`, as cut by `blocks_by_job`."""
        if intervals.counts is None:
            return cls(intervals)
        names = ("sum_seconds", "sum_squares", "sum_cubes", "min_seconds", "max_seconds")
        columns_of_rows = (np.asarray(columns[name][rows]) for name in names)
        return cls(intervals, Blocks(intervals.counts.astype(np.float64), *columns_of_rows))

    @property
    def blocks(self) -> Blocks:
        """The blocks with sums and extremes."""
        return Blocks.of_values(self.intervals.seconds) if self.reduced is None else self.reduced

    @property
    def size(self) -> int:
        """Number of blocks."""
        return len(self.intervals.seconds)

    @property
    def total(self) -> int:
        """Number of intervals in the blocks."""
        return self.size if self.reduced is None else int(self.reduced.counts.sum())


class JobEnd(NamedTuple):
    """The end of a job, as in the table `runs`."""

    runtime_seconds: float
    exit_status: int
    intervals: int
    """Number of its sync points."""
    seen_at: float
    """When it was read, in Unix seconds."""
    imported: bool = False
    """Whether it comes from other records: it has no verdict."""
    ended_at: float = math.nan
    """In Unix seconds; NaN if unknown."""


class EndedJob(NamedTuple):
    """An ended job, and whether it is learned; runtime_seconds: NaN if unknown. points: number of sync points."""

    job: str
    workload: str
    runtime_seconds: float
    verdict: Literal["healthy", "withheld", "failed"]
    points: int = 0


class PendingJob:
    """One job between its first interval and its verdict."""

    def __init__(self, window_seconds: float) -> None:
        self.workload = ""
        self.score = 0.0
        self.inconclusive = False
        """Whether the latest score says that the job is outside its limits without enough evidence for an alarm."""
        self.final = False
        self.blamed: frozenset[str] = frozenset()
        """Those of several nodes that the final alarm is about."""
        self.end: JobEnd | None = None
        self.pace = RunPace(window_seconds)
        self._timeline = Timeline()
        self.dropped = 0
        self._windower = Windower(window_seconds)
        self._held: deque[tuple[float, BlockBatch]] = deque()
        self.held = 0
        """Blocks held."""

    @property
    def suspect(self) -> bool:
        """Whether the job has alarmed or is outside its limits, so that it must not be learned."""
        return self.score > 1 or self.inconclusive

    @property
    def held_since(self) -> float:
        """When the oldest batch held arrived, in Unix seconds; infinite if none is held."""
        return self._held[0][0] if self._held else math.inf

    def timeline(self) -> Timeline:
        """The timeline of the run, which has ended."""
        if (rest := self._windower.rest) is not None:
            self._timeline.add([rest])
        return self._timeline

    def ended(self, job: str, end: JobEnd) -> EndedJob:
        """The job with its verdict. What is inconclusive is withheld from its own limits only."""
        verdict: Literal["healthy", "withheld", "failed"] = "failed" if end.exit_status != 0 else "healthy"
        return EndedJob(
            job, self.workload, end.runtime_seconds, "withheld" if self.score > 1 else verdict, end.intervals
        )

    def add(self, batch: BlockBatch, now: float) -> None:
        """Hold further intervals. now: time of arrival, Unix seconds; intervals from a spool ended long before."""
        windows = self._windower.add(*batch.intervals)
        self.pace.add(windows)
        self._timeline.add(windows)
        self._held.append((now, batch))
        self.held += batch.size
        self.drop(self.held - HELD_INTERVALS)

    def drop(self, blocks: int) -> int:
        """Drop the oldest batches with at least so many blocks; returns with how many. They are not learned."""
        dropped = 0
        while dropped < blocks:
            oldest = self._held.popleft()[1]
            dropped += oldest.size
            self.dropped += oldest.total
        self.held -= dropped
        return dropped

    def release(self, before: float) -> list[BlockBatch]:
        """Remove and return batches that arrived before this Unix time, oldest first."""
        released = []
        while self._held and self._held[0][0] < before:
            released.append(self._held.popleft()[1])
            self.held -= released[-1].size
        return released
