"""Windows: consecutive intervals of a job, long enough to compare, and their sums over a run."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_agent.protocol.wire import Column
from barograph_modeler.pace.packed import PackedArray, PackedCounts, PackedRun, PackedWindows

WINDOW_SECONDS: Final = 1.0
MAX_WINDOWS: Final = 512


@dataclass(frozen=True)
class Window:
    """Consecutive intervals of one job.

    counts, seconds: number and total duration of intervals by class id. Times are Unix seconds.
    """

    counts: dict[int, int]
    seconds: dict[int, float]
    started_at: float
    ended_at: float

    @property
    def actual_seconds(self) -> float:
        """Total duration of the intervals."""
        return math.fsum(self.seconds.values())

    def share(self, classes: Container[int]) -> float:
        """Share of the time in intervals of these classes, 0 to 1; 0 if they took no time."""
        total = self.actual_seconds
        known = math.fsum(seconds for class_id, seconds in self.seconds.items() if class_id in classes)
        return known / total if total > 0 else 0.0


class JobBlocks(NamedTuple):
    """Blocks of one job in order of arrival: arrays of one length, times in Unix seconds.

    seconds: mean interval of each block. counts: intervals in each block; None if each is one.
    """

    class_ids: npt.NDArray[np.uint64]
    seconds: npt.NDArray[np.float64]
    ended_at: npt.NDArray[np.float64]
    counts: npt.NDArray[np.int64] | None = None

    @property
    def intervals(self) -> int:
        """In all blocks."""
        return len(self.class_ids) if self.counts is None else int(self.counts.sum())

    def part(self, start: int, stop: int) -> JobBlocks:
        """Blocks start..stop-1."""
        counts = None if self.counts is None else self.counts[start:stop]
        return JobBlocks(self.class_ids[start:stop], self.seconds[start:stop], self.ended_at[start:stop], counts)


def blocks_by_job(columns: Mapping[str, Column]) -> Iterator[tuple[str, slice, JobBlocks]]:
    """Split rows of the table `blocks` where the job changes: the job, the rows, and their blocks."""
    start = 0
    for job, same in itertools.groupby(columns["job"]):
        rows = slice(start, start + sum(1 for _ in same))
        counts = np.asarray(columns["count"][rows], dtype=np.int64)
        seconds = np.asarray(columns["sum_seconds"][rows]) / counts
        ids, ended_at = np.asarray(columns["class_id"][rows]), np.asarray(columns["ended_at"][rows])
        yield job, rows, JobBlocks(ids, seconds, ended_at, counts if (counts != 1).any() else None)
        start = rows.stop


class Windower:
    """Cuts the intervals of one job into windows, in order of arrival.

    A window closes with the block that brings the sum of its durations to `window_seconds` or more; a longer block
    closes its window at once. An open window at the end of a job is discarded. Batches of any size give the same
    windows.
    """

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self.window_seconds = check_window_seconds(window_seconds)
        self._open()

    def _open(self) -> None:
        self._counts: dict[int, int] = {}
        self._seconds: dict[int, float] = {}
        self._started_at = self._ended_at = 0.0
        self._total = 0.0

    @property
    def rest(self) -> Window | None:
        """The open window, if it has intervals."""
        if not self._counts:
            return None
        return Window(dict(self._counts), dict(self._seconds), self._started_at, self._ended_at)

    def add(
        self,
        class_ids: npt.NDArray[np.uint64],
        seconds: npt.NDArray[np.float64],
        ended_at: npt.NDArray[np.float64],
        counts: npt.NDArray[np.int64] | None = None,
    ) -> list[Window]:
        """Add blocks, given as arrays of one length, and return the windows that they close.

        seconds: mean durations, finite and at least 0. ended_at: Unix seconds. counts: intervals in each block, at
        least 1; None if each is one.
        Raises ValueError for other durations and for unequal lengths, and then adds no block.
        """
        counts = np.ones(len(class_ids), np.int64) if counts is None else counts
        if not len(class_ids) == len(seconds) == len(ended_at) == len(counts):
            raise ValueError(
                f"got {len(class_ids)} class ids, {len(seconds)} durations and {len(ended_at)} times, "
                "expected as many of each"
            )
        if (bad := ~((seconds >= 0) & np.isfinite(seconds))).any():
            i = int(np.argmax(bad))
            raise ValueError(f"duration {i} is {seconds[i]} seconds, expected a finite number of at least 0")
        closed = []
        # A plain loop handles millions of intervals per second, and its sums do not depend on the batches.
        columns = (class_ids, counts, seconds * counts, ended_at)
        for class_id, count, duration, end in zip(*(column.tolist() for column in columns), strict=True):
            if not self._counts:
                self._started_at = end - duration
            self._counts[class_id] = self._counts.get(class_id, 0) + count
            self._seconds[class_id] = self._seconds.get(class_id, 0.0) + duration
            self._total += duration
            self._ended_at = end
            if self._total >= self.window_seconds:
                closed.append(Window(self._counts, self._seconds, self._started_at, end))
                self._open()
        return closed


class RunPace:
    """Sums of one run: count and seconds by class over all windows, and at most MAX_WINDOWS of its windows.

    When the windows exceed the limit every second one is dropped, and from then on only every 2nd, 4th, 8th ... is
    kept, so that they are evenly spread over the run.
    """

    def __init__(self, window_seconds: float = WINDOW_SECONDS) -> None:
        self.window_seconds = check_window_seconds(window_seconds)
        self.counts: Counter[int] = Counter()
        self.seconds: dict[int, float] = {}
        self.windows: list[Window] = []
        self._stride = 1
        self._seen = 0

    def add(self, windows: Iterable[Window]) -> None:
        """Add further windows of the run, in order."""
        for window in windows:
            self.counts.update(window.counts)
            for class_id, seconds in window.seconds.items():
                self.seconds[class_id] = self.seconds.get(class_id, 0.0) + seconds
            if self._seen % self._stride == 0:
                self.windows.append(window)
                if len(self.windows) > MAX_WINDOWS:
                    del self.windows[1::2]
                    self._stride *= 2
            self._seen += 1

    def packed(self) -> PackedRun:
        """The run, which has ended."""
        windows = PackedWindows(
            PackedCounts.of_parts([window.counts for window in self.windows]),
            PackedArray.of_seconds([s for window in self.windows for s in window.seconds.values()]),
        )
        classes = list(self.counts)
        totals = PackedArray.of_counts([self.counts[class_id] for class_id in classes])
        durations = tuple(self.seconds[class_id] for class_id in classes)
        return PackedRun(self.window_seconds, PackedArray.of_counts(classes), totals, durations, windows)


def check_window_seconds(window_seconds: float) -> float:
    """The argument. Raises ValueError unless it is finite and above 0."""
    if not (window_seconds > 0 and math.isfinite(window_seconds)):
        raise ValueError(f"window length is {window_seconds} seconds, expected a finite number above 0")
    return window_seconds
