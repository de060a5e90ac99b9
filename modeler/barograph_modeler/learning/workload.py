"""The history of one workload: its healthy runs, and the models of its classes."""

from __future__ import annotations

import math
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec
import numpy as np

from barograph_modeler.bands.class_model import ClassModel
from barograph_modeler.bands.coverage import Coverage
from barograph_modeler.bands.moments import Blocks
from barograph_modeler.bands.regime import Regime
from barograph_modeler.learning.pending import BlockBatch
from barograph_modeler.maxima.band import Band
from barograph_modeler.maxima.runtime import MINIMUM_RUNS, runtime_limits
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.pace.length import EQUAL, Length
from barograph_modeler.pace.pace import Pace, fit_pace
from barograph_modeler.pace.packed import PackedRun, PackedTimeline
from barograph_modeler.pace.progress import fit_progress
from barograph_modeler.pace.windows import Window

RUNS: Final = 64
"""Runs kept: enough to estimate a spread, few enough to follow a changing machine."""
TIMELINES: Final = 16
"""Runs of which the timelines are kept, each of some kB."""
ALIKE: Final = 0.05
ALIKE_EXACTLY: Final = 0.1
FEWEST_INTERVALS: Final = 100
"""Runs of like work differ by this in pace and runtime at most, as logarithms; by more where they have exactly the same
intervals, this many or more."""
CLASSES: Final = 512
"""Classes kept per workload, so that unbounded call sites evict classes of their own workload only."""


class EndedRun(NamedTuple):
    """A run that ended with status 0. runtime_seconds: None if the log has no usable one. intervals: sync points.

    blamed: those of several nodes that its alarm is about.
    """

    runtime_seconds: float | None
    intervals: int
    pace: PackedRun
    timeline: PackedTimeline
    blamed: frozenset[str] = frozenset()


class Workload:
    """Runs, runtime band, pace, classes and out-of-sample coverage of one workload."""

    def __init__(self) -> None:
        self._runtimes: tuple[tuple[float, int], ...] = ()
        """The newest RUNS: seconds and intervals."""
        self.runs: tuple[bytes, ...] = ()
        """The newest RUNS, each an encoded PackedRun."""
        self.timelines: tuple[bytes, ...] = ()
        """The newest TIMELINES, each an encoded PackedTimeline."""
        self.intervals: OrderedDict[int, ClassModel] = OrderedDict()
        self.runtime: Band | None = None
        self._pace: bytes | None = None
        """The columns of the pace, compressed; None where it is not fitted yet."""
        self.seconds = 0.0
        """Total of the learned intervals."""
        self.interval_coverage = Coverage()
        self.runtime_coverage = Coverage()
        self.withheld: list[EndedRun] = []
        """Runs that were not healthy since the last healthy one, newest last."""

    def judge(self, batch: BlockBatch, *, healthy: bool) -> None:
        """Score the published bands on new intervals."""
        for class_id, blocks, _ in _by_class(batch):
            values = blocks.sums[blocks.counts == 1]
            if class_id in self.intervals and (inside := self.intervals[class_id].inside(values)) is not None:
                self.interval_coverage.count(inside, values.size - inside, healthy=healthy)

    def judge_run(self, run: EndedRun, *, healthy: bool) -> None:
        """Score the published runtime band on a run that has ended."""
        if self.runtime is not None and run.runtime_seconds is not None and self._length.has(run.intervals):
            inside = int(self.runtime.lower <= run.runtime_seconds <= self.runtime.upper)
            self.runtime_coverage.count(inside, 1 - inside, healthy=healthy)

    def learn_intervals(self, batch: BlockBatch) -> Iterator[tuple[int, list[Regime]]]:
        """Learn intervals of a healthy run; yields each class with the regimes closed by them."""
        for class_id, blocks, ended_at in _by_class(batch):
            interval = self.intervals.setdefault(class_id, ClassModel())
            self.intervals.move_to_end(class_id)
            self.seconds += float(blocks.sums.sum())
            yield class_id, interval.learn(blocks, ended_at)

    def learn_run(self, run: EndedRun) -> None:
        """Learn a healthy run that has ended."""
        self.withheld.clear()
        self._add_run(run)

    def learn_at_limit(self, run: EndedRun) -> None:
        """Learn that an inconclusive run lay outside the limits, as if it had ended at the nearer one.

        Without these runs, 5 in 100 of the healthy ones, the limits would become narrower and narrower.
        """
        if self.runtime is not None and run.runtime_seconds is not None:
            self._add_runtime(min(max(run.runtime_seconds, self.runtime.lower), self.runtime.upper), run.intervals)

    def is_short_of_few(self, run: EndedRun) -> bool:
        """Whether the run took less time than a history of fewer than MINIMUM_RUNS runs would have it."""
        if self.runtime is None or self.runtime.samples >= MINIMUM_RUNS or run.runtime_seconds is None:
            return False
        return run.runtime_seconds < self.runtime.expected

    def is_as_long(self, points: int) -> bool:
        """Whether a run of so many sync points is as long as the healthy ones, as far as is known."""
        return not self._runtimes or self._length.has(points)

    def is_like(self, other: Workload) -> bool:
        """Whether the runs of another workload do the same at the same pace, as far as is known of both.

        That is: the same number of intervals of each class within EQUAL, and mean times of the intervals and runtimes
        that differ by ALIKE at most, or, if the numbers are exactly the same and not small, by ALIKE_EXACTLY.
        """
        if not (self.runtimes and other.runtimes and bool(self.runs) == bool(other.runs)):
            return False
        most = ALIKE
        distances = [_distance(self.runtimes, other.runtimes)]
        if self.runs:
            mine, theirs = (PackedTimeline.decoded(one.timelines[-1]).counts() for one in (self, other))
            differing = sum(abs(mine[c] - theirs[c]) for c in mine.keys() | theirs.keys())
            if differing > (EQUAL - 1) * max(mine.total(), theirs.total()):
                return False
            most = ALIKE_EXACTLY if not differing and mine.total() >= FEWEST_INTERVALS else ALIKE
            distances.append(_distance(*([_mean_interval(run) for run in one.runs] for one in (self, other))))
        return max(distances) <= most

    def absorb(self, other: Workload) -> None:
        """Add the runs of a workload that is like this one. Its classes are not: they are learned again."""
        self._runtimes = (*self._runtimes, *other._runtimes)[-RUNS:]
        self.runs = (*self.runs, *other.runs)[-RUNS:]
        self.timelines = (*self.timelines, *other.timelines)[-TIMELINES:]
        self.runtime = runtime_limits(self.runtimes)
        self._pace = None

    def withhold(self, run: EndedRun, accept: int) -> bool:
        """Record a run that was not healthy; True if the last `accept` of them agree with each other."""
        self.withheld = [*self.withheld, run][-accept:] if accept else []
        return accept > 0 and len(self.withheld) == accept and self._agree()

    def accept(self) -> list[int]:
        """Close the regime of the runs and of every class, and learn the withheld runs. Returns the class ids."""
        runs, self.withheld = self.withheld, []
        self._runtimes = self.runs = self.timelines = ()
        self.runtime, self._pace = None, None
        for interval in self.intervals.values():
            if interval.moments.count:
                interval.close(interval.until)
            interval.bands = ()
        for run in runs:
            self._add_run(run)
        return list(self.intervals)

    def _agree(self) -> bool:
        """Whether the withheld runs differ less from each other than from the history, in pace or in runtime.

        Not if it is the same node in all of them that is to blame: then it is the node that has changed.
        """
        if frozenset.intersection(*(run.blamed for run in self.withheld)):
            return False
        pace = self.pace
        paces = [] if pace is None else [pace.log_ratio(_whole(run.pace)).log for run in self.withheld]
        usual = self.runtime.expected if self.runtime is not None else math.nan
        runtimes = [math.log((run.runtime_seconds or math.nan) / usual) for run in self.withheld]
        return any(_are_alike(logs) for logs in (paces, runtimes))

    @property
    def pace(self) -> Pace | None:
        """Of the healthy runs: fitted where there are further runs since the last access, and decoded at each."""
        if self._pace is None and self.runs:
            pace = fit_pace([PackedRun.decoded(one) for one in self.runs])
            progress = fit_progress([PackedTimeline.decoded(one) for one in self.timelines])
            self._pace = zlib.compress(msgspec.msgpack.encode(replace(pace, progress=progress).columns()), 1)
        return None if self._pace is None else Pace.from_row(msgspec.msgpack.decode(zlib.decompress(self._pace)))

    @property
    def has_pace(self) -> bool:
        """Whether there is a pace."""
        return bool(self.runs)

    @property
    def runtimes(self) -> list[float]:
        """Seconds of the healthy runs of the usual length, oldest first."""
        if not self._runtimes:
            return []
        length = self._length
        return [seconds for seconds, intervals in self._runtimes if length.has(intervals)]

    @property
    def _length(self) -> Length:
        return Length.of_runs([intervals for _, intervals in self._runtimes])

    def _add_runtime(self, seconds: float, intervals: int) -> None:
        self._runtimes = (*self._runtimes, (seconds, intervals))[-RUNS:]
        self.runtime = runtime_limits(self.runtimes)

    def _add_run(self, run: EndedRun) -> None:
        if run.runtime_seconds is not None:
            self._add_runtime(run.runtime_seconds, run.intervals)
        if run.pace.windows.number:
            self.runs = (*self.runs, run.pace.encoded())[-RUNS:]
            self.timelines = (*self.timelines, run.timeline.encoded())[-TIMELINES:]
            self._pace = None


def _are_alike(logs: Sequence[float]) -> bool:
    """Whether log ratios to a reference differ from each other by less than the nearest of them from 0."""
    return bool(logs) and all(map(math.isfinite, logs)) and max(logs) - min(logs) < min(map(abs, logs))


def _mean_interval(encoded: bytes) -> float:
    run = PackedRun.decoded(encoded)
    return math.fsum(run.seconds.values()) / run.counts.total()


def _distance(a: Sequence[float], b: Sequence[float]) -> float:
    """Between the means of two samples, as logarithms; infinite if a value is not above 0."""
    if min(*a, *b) <= 0:
        return math.inf
    return abs(math.fsum(map(math.log, a)) / len(a) - math.fsum(map(math.log, b)) / len(b))


def _whole(run: PackedRun) -> Window:
    return Window(run.counts, run.seconds, 0.0, 0.0)


def _by_class(batch: BlockBatch) -> Iterator[tuple[int, Blocks, Floats]]:
    order = np.argsort(batch.intervals.class_ids, kind="stable")
    ids, starts = np.unique(batch.intervals.class_ids[order], return_index=True)
    blocks = batch.blocks
    for class_id, rows in zip(ids.tolist(), np.split(order, starts[1:]), strict=True):
        yield class_id, blocks.select(rows), batch.intervals.ended_at[rows]
