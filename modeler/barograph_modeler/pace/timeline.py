"""The timeline of a run: how many intervals of each class have ended when."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from barograph_modeler.pace.packed import PackedArray, PackedCounts, PackedTimeline
from barograph_modeler.pace.windows import Window

SEGMENTS: Final = 128


class Segment(NamedTuple):
    """A part of a run. counts: intervals by class id; ended_at: Unix seconds."""

    counts: Counter[int]
    ended_at: float


class Timeline:
    """Consecutive windows of one run, merged in pairs whenever there are more than SEGMENTS parts.

    It begins with the first interval: what a program does before, as loading and reading its input, is no progress.
    """

    def __init__(self) -> None:
        self.began_at = 0.0
        self.segments: list[Segment] = []
        self._stride = 1
        self._windows = 0

    def add(self, windows: Iterable[Window]) -> None:
        """Add further windows of the run, in order."""
        for window in windows:
            if not self.segments:
                self.began_at = window.started_at
            if self._windows % self._stride:
                last = self.segments.pop()
                self.segments.append(Segment(last.counts + Counter(window.counts), window.ended_at))
            else:
                self.segments.append(Segment(Counter(window.counts), window.ended_at))
            self._windows += 1
            if len(self.segments) > SEGMENTS:
                self._merge()

    def counts(self) -> Counter[int]:
        """Intervals of the whole run by class id."""
        total: Counter[int] = Counter()
        for segment in self.segments:
            total.update(segment.counts)
        return total

    def packed(self, ended_at: float = math.nan) -> PackedTimeline:
        """The timeline of a run that ended at a time in Unix seconds, NaN if unknown."""
        return PackedTimeline(
            PackedCounts.of_parts([segment.counts for segment in self.segments]),
            PackedArray.of_seconds([segment.ended_at - self.began_at for segment in self.segments]),
            ended_at - self.segments[-1].ended_at if self.segments else math.nan,
        )

    def _merge(self) -> None:
        # They are an odd number: of the last one, which has begun with this window, no pair is known yet.
        *parts, last = self.segments
        both = zip(parts[::2], parts[1::2], strict=True)
        self.segments = [*(Segment(one.counts + two.counts, two.ended_at) for one, two in both), last]
        self._stride *= 2
