"""Time that a job has spent in each class."""

from __future__ import annotations

import heapq
from typing import Final, NamedTuple

from barograph_modeler.pace.windows import Window

CLASSES: Final = 512
"""Classes kept per job, as per workload; further ones are only counted."""


class ClassTime(NamedTuple):
    """Number and total duration of the intervals of one class."""

    intervals: int
    seconds: float


class ClassTimes:
    """Sums over the windows of one job. `add` in one thread, `longest` in any."""

    def __init__(self) -> None:
        self._times: dict[int, ClassTime] = {}
        self._left_out: set[int] = set()

    def __len__(self) -> int:
        return len(self._times) + len(self._left_out)

    def add(self, window: Window) -> None:
        """Add the job's next window."""
        for class_id, count in window.counts.items():
            if class_id in self._times or len(self._times) < CLASSES:
                before = self._times.get(class_id, ClassTime(0, 0.0))
                self._times[class_id] = ClassTime(before.intervals + count, before.seconds + window.seconds[class_id])
            elif len(self._left_out) < CLASSES:
                self._left_out.add(class_id)

    def longest(self, number: int) -> list[tuple[int, ClassTime]]:
        """The `number` classes with the most time, descending."""
        return heapq.nlargest(number, list(self._times.items()), key=lambda item: item[1].seconds)
