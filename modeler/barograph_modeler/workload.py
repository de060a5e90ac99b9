"""What is remembered of one workload: its healthy runs and, class by class, its intervals."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final

import numpy as np

from barograph_modeler.maxima.band import Band, empirical_band, gev_band
from barograph_modeler.maxima.gev import MINIMUM_SAMPLES
from barograph_modeler.pace import Pace, RunPace, fit_pace
from barograph_modeler.pending import Batch
from barograph_modeler.reservoir import Reservoir
from barograph_modeler.runtime import runtime_band

RUNS: Final = 64
"""Past runs that count: enough for a spread, few enough to follow a machine that changes."""
SAMPLES: Final = 1024
CLASSES: Final = 512
"""Classes per workload: the least recently met go first."""
REFIT_GROWTH: Final = 1.05
"""A class is fitted again once it has this many times the values of the last fit."""


class Interval:
    """One class: a sample of its intervals, and the bands last fitted to it."""

    def __init__(self, seed: int) -> None:
        self.reservoir = Reservoir(SAMPLES, seed)
        self.bands: list[Band] = []
        self.fitted_count = 0
        self.inside = 0
        self.judged = 0

    def judge(self, seconds: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        """Count how many new intervals the present empirical band holds, before anything is learned from them."""
        for band in self.bands:
            if band.method == "empirical":
                self.judged += len(seconds)
                self.inside += int(((seconds >= band.lower) & (seconds <= band.upper)).sum())

    def refit(self) -> bool:
        """Fit again if the sample has grown enough to matter; says whether it did."""
        if self.reservoir.count < max(self.fitted_count * REFIT_GROWTH, MINIMUM_SAMPLES):
            return False
        sample = self.reservoir.values
        self.fitted_count = self.reservoir.count
        fits = [empirical_band(sample), gev_band(sample)]
        self.bands = [band for band in fits if band is not None]
        return True


class Workload:
    """The history of one workload. `seed` makes its reservoirs reproducible."""

    def __init__(self, seed: int) -> None:
        self.runtimes: deque[float] = deque(maxlen=RUNS)
        self.runs: deque[RunPace] = deque(maxlen=RUNS)
        self.intervals: OrderedDict[int, Interval] = OrderedDict()
        self.runtime: Band | None = None
        self.pace: Pace | None = None
        self._seed = seed

    @property
    def coverage(self) -> tuple[int, int]:
        """New intervals the bands held, and new intervals that had a band."""
        intervals = self.intervals.values()
        return sum(one.inside for one in intervals), sum(one.judged for one in intervals)

    def judge(self, batch: Batch) -> None:
        """Score the present bands on new intervals."""
        for class_id, seconds in _by_class(batch):
            if class_id in self.intervals:
                self.intervals[class_id].judge(seconds)

    def learn_intervals(self, batch: Batch) -> None:
        """Take intervals of a healthy run."""
        for class_id, seconds in _by_class(batch):
            if class_id not in self.intervals:
                self.intervals[class_id] = Interval(hash((self._seed, class_id)) & 0xFFFFFFFF)
                if len(self.intervals) > CLASSES:
                    self.intervals.popitem(last=False)
            self.intervals[class_id].reservoir.extend(seconds)
            self.intervals.move_to_end(class_id)

    def learn_run(self, runtime_seconds: float | None, pace: RunPace) -> None:
        """Take a healthy run that has ended; without a runtime only its pace."""
        if runtime_seconds is not None:
            self.runtimes.append(runtime_seconds)
            self.runtime = runtime_band(self.runtimes)
        if pace.windows:
            self.runs.append(pace)
            self.pace = fit_pace(self.runs)

    def refit(self) -> list[int]:
        """Fit what has grown; returns the classes whose bands are new."""
        return [class_id for class_id, interval in self.intervals.items() if interval.refit()]


def _by_class(batch: Batch) -> Iterator[tuple[int, np.ndarray[tuple[int], np.dtype[np.float64]]]]:
    order = np.argsort(batch.class_ids, kind="stable")
    ids, starts = np.unique(batch.class_ids[order], return_index=True)
    yield from zip(ids.tolist(), np.split(batch.seconds[order], starts[1:]), strict=True)
