"""Expected durations of a job's windows: means per class from the history, or from the job's own first windows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from barograph_modeler.maxima.ratio import log_ratio
from barograph_modeler.pace.pace import MINIMUM_SHARE, PaceRatio
from barograph_modeler.pace.windows import Window

FIRST: Final = 15
"""Own windows from which a job, or a class without history, is learned."""
REPEATED: Final = 5
"""Fewest windows with a class for its mean to be used; classes of the start-up phase occur once."""
CLASSES: Final = 256
"""Most classes learned from the job itself."""


class Baseline:
    """Expected seconds of a window, by class from the history, else from the job's own windows.

    means: class id -> mean seconds in the history, empty without one.
    """

    __slots__ = ("_history", "_learning", "_own")

    def __init__(self, means: Mapping[int, float]) -> None:
        self._history = means
        self._own: dict[int, float] = {}
        self._learning: dict[int, tuple[int, float, int]] = {}

    def learn(self, window: Window) -> None:
        """Learn classes without history; after FIRST windows the mean of a class is fixed."""
        for class_id, count in window.counts.items():
            if class_id in self._history or class_id in self._own:
                continue
            counts, seconds, windows = self._learning.get(class_id, (0, 0.0, 0))
            if class_id not in self._learning and len(self._learning) + len(self._own) >= CLASSES:
                continue
            counts, seconds, windows = counts + count, seconds + window.seconds[class_id], windows + 1
            if windows < FIRST:
                self._learning[class_id] = counts, seconds, windows
            else:
                self._learning.pop(class_id, None)
                self._own[class_id] = seconds / counts

    def settle(self) -> None:
        """Fix the means of classes that occurred in at least REPEATED windows so far."""
        for class_id, (counts, seconds, windows) in list(self._learning.items()):
            if windows >= REPEATED:
                self._own[class_id] = seconds / counts
                del self._learning[class_id]

    def repeats(self, window: Window) -> bool:
        """Whether at least half of the window's seconds are in classes that are known or become known by `settle`."""
        known = 0.0
        for class_id, seconds in window.seconds.items():
            windows = self._learning.get(class_id, (0, 0.0, 0))[2]
            if class_id in self._history or class_id in self._own or windows >= REPEATED:
                known += seconds
        return known >= MINIMUM_SHARE * window.actual_seconds

    def by_history(self, window: Window) -> float:
        """Share of the window's seconds in classes of the history, 0 to 1."""
        return window.share(self._history)

    def compare(self, window: Window) -> PaceRatio:
        """Compare the window with its expected seconds, over known classes."""
        actual = expected = total = 0.0
        for class_id, seconds in window.seconds.items():
            total += seconds
            mean = self._history.get(class_id)
            if mean is None:
                mean = self._own.get(class_id)
            if mean is not None:
                actual += seconds
                expected += window.counts[class_id] * mean
        log = log_ratio(actual, expected)
        return PaceRatio(log, actual / total if total > 0 else 0.0, actual, expected)

    def add_phases(self, window: Window, reference: float, into: dict[int, tuple[float, float]]) -> None:
        """Add actual and expected seconds of each known class. reference: log ratio at which the job is as usual."""
        usual = math.exp(reference)
        for class_id, seconds in window.seconds.items():
            mean = self._history.get(class_id, self._own.get(class_id))
            if mean is not None:
                actual, expected = into.get(class_id, (0.0, 0.0))
                into[class_id] = actual + seconds, expected + window.counts[class_id] * mean * usual
