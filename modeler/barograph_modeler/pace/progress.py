"""Progress of the runs of a workload: how long they have taken when so many of their sync points are reached."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Self, TypeAlias

import msgspec
import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.pace.packed import PackedTimeline
from barograph_modeler.pace.remaining import PaceSpread
from barograph_modeler.pace.timeline import Timeline

ALIKE: Final = 0.75
"""Share of the runs that have the same number of intervals of a class for it to be a measure of progress."""
MOST_CLASSES: Final = 256
FEWEST_POINTS: Final = 5
EXCURSION: Final = 64
SLOPES: Final = tuple(math.log1p(slowdown) for slowdown in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5))
"""Slowdowns, as logarithms, about which the delays of healthy runs are known: common margins are among them."""
LEAST_SECONDS: Final = 0.5
LEAST_SHARE: Final = 0.008
"""Delays that matter are longer than this time, and than this share of the usual one."""
PAUSE: Final = 0.6
PAUSE_SHARE: Final = 0.5
LONG_PAUSE: Final = 0.05
"""A single pause is no slowdown: a part adds at most PAUSE of the least delay that matters, or PAUSE_SHARE of what it
should take, unless it adds LONG_PAUSE of the usual time."""
KNOWN_SHARE: Final = 0.1
KNOWN_SECONDS: Final = 5.0
"""A run's own pace is known after this share of the usual time, or after this time if that is later."""


COMPLETE: Final = 0.99
"""Share of the intervals of a class that a run has had once earlier runs had all."""

ClassSpan: TypeAlias = tuple[int, int, int]
UNKNOWN: Final = PaceSpread(math.nan, math.nan)


class Delay:
    """Page's CUSUM of a run's time beyond what its progress may take, in seconds.

    For each part of the run, with a the time that it took and e the expected time of the same progress,

        C = max(0, C + a - exp(slope) level e)

    (Page 1954, Biometrika 41). `level` is 1, or, if `own`, the run's pace so far: actual over expected time of all that
    was before the current excursion of C, but at least 1. A run's own pace is unknown at its begin, and C is 0. What a
    part can add is limited (PAUSE).

    usual_seconds: of a run.
    """

    __slots__ = (
        "_before",
        "_factor",
        "_known_seconds",
        "_long_pause",
        "_own",
        "_pause",
        "_spent",
        "highest",
        "onset_at",
        "parts",
        "seconds",
    )

    def __init__(self, slope: float, usual_seconds: float, *, own: bool) -> None:
        self.seconds = self.highest = 0.0
        self.onset_at = math.nan
        """Begin of the excursion, in Unix seconds; NaN while C is 0."""
        self.parts: list[tuple[float, float, float]] = []
        """The first EXCURSION parts of the excursion: begin, actual and expected seconds."""
        self._factor = math.exp(slope)
        self._own = own
        self._pause = PAUSE * least_delay(usual_seconds)
        self._long_pause = LONG_PAUSE * usual_seconds
        self._known_seconds = max(KNOWN_SHARE * usual_seconds, KNOWN_SECONDS)
        self._before = (0.0, 0.0)
        self._spent = (0.0, 0.0)

    def slowdown(self, actual: float = 0.0, expected: float = 0.0) -> float:
        """Actual over expected time of the excursion and one more part; NaN without any.

        Of three parts and more the first does not count if the others are slower: the onset is somewhere in it.
        """
        spent = self._spent[0] + actual, self._spent[1] + expected
        whole = spent[0] / spent[1] if spent[1] > 0 else math.nan
        if len(self.parts) <= 2:
            return whole
        _, first_actual, first_expected = self.parts[0]
        left = spent[1] - first_expected
        return max(whole, (spent[0] - first_actual) / left) if left > 0 else whole

    def add(self, actual: float, expected: float, started_at: float = math.nan) -> None:
        """Add a part of the run: its seconds, the expected ones, and its begin in Unix seconds."""
        after = self.after(actual, expected)
        if after > 0:
            if self.seconds == 0:
                self.onset_at = started_at
            if len(self.parts) < EXCURSION:
                self.parts.append((started_at, actual, expected))
            self._spent = self._spent[0] + actual, self._spent[1] + expected
        else:
            self._before = self._before[0] + self._spent[0] + actual, self._before[1] + self._spent[1] + expected
            self.reset()
        self.seconds = after
        self.highest = max(self.highest, after)

    def after(self, actual: float, expected: float) -> float:
        """C after one more part."""
        if self._own and self._before[1] < self._known_seconds:
            return 0.0
        excess = actual - self._factor * self._level * expected
        if excess <= self._long_pause:
            excess = min(excess, max(self._pause, PAUSE_SHARE * expected))
        return max(0.0, self.seconds + excess)

    def reset(self) -> None:
        """End the excursion. What it took is not part of the run's own pace."""
        self.seconds = 0.0
        self.onset_at = math.nan
        self.parts.clear()
        self._spent = (0.0, 0.0)

    def trim(self, first: int) -> None:
        """Remove so many of the `parts` from the front of the excursion; at least one remains."""
        for _, actual, expected in self.parts[:first]:
            self._spent = self._spent[0] - actual, self._spent[1] - expected
        del self.parts[:first]
        self.onset_at = self.parts[0][0]

    @property
    def _level(self) -> float:
        return max(1.0, self._before[0] / self._before[1]) if self._own and self._before[1] > 0 else 1.0


def least_delay(usual_seconds: float) -> float:
    """The least delay that matters for runs of so many seconds."""
    return max(LEAST_SECONDS, LEAST_SHARE * usual_seconds)


class DelaysOfRuns(msgspec.Struct, frozen=True):
    """The longest delays of healthy runs, in seconds, each against the others, for each of SLOPES."""

    history: list[list[float]]
    own: list[list[float]]


@dataclass(frozen=True, eq=False)
class ProgressProfile:
    """Elapsed time of healthy runs at equal progress.

    classes: the classes whose intervals are counted: from which number of these to which each occurs, and how often.
    points: ascending numbers of them; seconds: mean elapsed time at each since the first interval began. runs: how many
    were averaged. delays: of these runs, empty lists for one. spread: of their elapsed times. tail_seconds: median
    from the last interval to the end of the run, NaN if unknown.
    """

    classes: Mapping[int, ClassSpan]
    points: Floats
    seconds: Floats
    runs: int
    delays: DelaysOfRuns
    spread: PaceSpread = UNKNOWN
    tail_seconds: float = math.nan

    @property
    def usual_seconds(self) -> float:
        """Elapsed time at the end."""
        return float(self.seconds[-1])

    def count(self, counts: Mapping[int, int]) -> int:
        """The progress of intervals by class id."""
        return sum(count for class_id, count in counts.items() if class_id in self.classes)

    def is_in_order(self, counts: Mapping[int, int], had: Mapping[int, int]) -> bool:
        """Whether a run may be compared that had some intervals by class, the latest of them `counts`.

        Earlier runs had these where it has them, and it has had all of what they had before.
        """
        until = self.count(had)
        since = until - self.count(counts)
        spans = [self.classes[class_id] for class_id in counts if class_id in self.classes]
        return all(first <= until and since <= last for first, last, _ in spans) and all(
            had.get(class_id, 0) >= COMPLETE * number
            for class_id, (_, last, number) in self.classes.items()
            if last <= until
        )

    def text(self) -> str:
        """The progress as a JSON object, seconds to 6 digits."""
        return msgspec.json.encode(
            {
                "classes": self.classes,
                "points": [int(point) for point in self.points],
                "seconds": _short(self.seconds),
                "runs": self.runs,
                "history": [_short(delays) for delays in self.delays.history],
                "own": [_short(delays) for delays in self.delays.own],
                "spread": [_known(one) for one in self.spread],
                "tail": _known(self.tail_seconds),
            }
        ).decode()

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """The inverse of `text`; None for an empty one. Raises ValueError."""
        if not text:
            return None
        try:
            one = msgspec.json.decode(text, type=_Text)
        except msgspec.MsgspecError as error:
            raise ValueError(f"progress is {text[:140]!r}, expected the JSON object of a profile: {error}") from None
        points, seconds = np.array(one.points, np.float64), np.array(one.seconds, np.float64)
        if (
            len(points) != len(seconds)
            or len(points) < 2
            or (np.diff(points) <= 0).any()
            or (np.diff(seconds) < 0).any()
        ):
            raise ValueError(f"progress is {text[:140]!r}, expected as many ascending points as seconds")
        return cls(
            one.classes,
            points,
            seconds,
            one.runs,
            DelaysOfRuns(one.history, one.own),
            PaceSpread(*(math.nan if value is None else value for value in one.spread)),
            math.nan if one.tail is None else one.tail,
        )


_AtLeastZero: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class _Text(msgspec.Struct):
    classes: dict[int, ClassSpan]
    points: list[Annotated[int, msgspec.Meta(ge=0)]]
    seconds: list[Annotated[float, msgspec.Meta(ge=0)]]
    runs: Annotated[int, msgspec.Meta(ge=1)]
    history: Annotated[list[list[float]], msgspec.Meta(min_length=len(SLOPES), max_length=len(SLOPES))]
    own: Annotated[list[list[float]], msgspec.Meta(min_length=len(SLOPES), max_length=len(SLOPES))]
    spread: tuple[_AtLeastZero | None, _AtLeastZero | None] = (None, None)
    tail: _AtLeastZero | None = None


def fit_progress(timelines: Sequence[Timeline | PackedTimeline]) -> ProgressProfile | None:
    """The progress of healthy runs; None unless they have FEWEST_POINTS comparable points.

    Progress is the number of intervals of those classes that occur equally often in ALIKE of the runs, so that programs
    which iterate until something converges are aligned by their outer steps. Runs that differ in one of these classes
    are left out.
    """
    runs = [one.packed() for one in timelines]
    totals = [run.counts() for run in runs]
    classes = _alike(totals)
    kept = [run for run, total in zip(runs, totals, strict=True) if all(total[c] == n for c, n in classes.items())]
    if not kept:
        return None
    curves = [_curve(run, classes) for run in kept]
    points = curves[-1][0]
    if len(points) < FEWEST_POINTS:
        return None
    elapsed = np.array([np.interp(points, *curve) for curve in curves])
    tails = [run.tail_seconds for run in kept if run.tail_seconds >= 0]
    return ProgressProfile(
        _spans(kept, classes),
        points,
        elapsed.mean(axis=0),
        len(kept),
        _delays(elapsed),
        PaceSpread.of_runs(elapsed),
        float(np.median(tails)) if tails else math.nan,
    )


def _alike(totals: Sequence[Counter[int]]) -> dict[int, int]:
    """The classes that measure progress, and how often each occurs."""
    usual = {}
    for class_id in set().union(*totals):
        number, runs = Counter(total[class_id] for total in totals).most_common(1)[0]
        if number and runs >= ALIKE * len(totals):
            usual[class_id] = number
    kept = sorted(usual, key=lambda c: (-usual[c], c))[:MOST_CLASSES]
    return {c: usual[c] for c in kept}


def _spans(runs: Sequence[PackedTimeline], classes: Mapping[int, int]) -> dict[int, ClassSpan]:
    """Progress before the first and after the last segment with each class, of all runs."""
    spans: dict[int, ClassSpan] = {}
    for run in runs:
        ends = np.append(0, np.cumsum(run.segments.number(classes)))
        lengths = run.segments.lengths.array.astype(np.int64)
        segments = np.repeat(np.arange(len(lengths)), lengths)
        for place, class_id in enumerate(run.segments.classes.array.tolist()):
            if class_id in classes:
                within = segments[run.segments.places.array == place]
                first, last, number = spans.get(class_id, (int(ends[-1]), 0, classes[class_id]))
                spans[class_id] = min(first, int(ends[within[0]])), max(last, int(ends[within[-1] + 1])), number
    return spans


def _curve(run: PackedTimeline, classes: Mapping[int, int]) -> tuple[Floats, Floats]:
    """Ascending progress of a run, and the elapsed seconds at which it was reached."""
    counts = np.append(0, run.segments.number(classes))
    elapsed = np.maximum.accumulate(np.append(0.0, run.elapsed.array.astype(np.float64)))
    further = np.append(True, counts[1:] > 0)
    return np.cumsum(counts)[further].astype(np.float64), elapsed[further]


def _delays(elapsed: Floats) -> DelaysOfRuns:
    """The delays of each run (a row of `elapsed`) against the mean of the others."""
    history: list[list[float]] = [[] for _ in SLOPES]
    own: list[list[float]] = [[] for _ in SLOPES]
    for run in range(len(elapsed)) if len(elapsed) > 1 else ():
        others = np.delete(elapsed, run, axis=0).mean(axis=0)
        parts = list(zip(np.diff(elapsed[run]).tolist(), np.diff(others).tolist(), strict=True))
        for number, slope in enumerate(SLOPES):
            for found, is_own in ((history, False), (own, True)):
                delay = Delay(slope, float(others[-1]), own=is_own)
                for actual, expected in parts:
                    delay.add(actual, expected)
                found[number].append(delay.highest)
    return DelaysOfRuns(history, own)


def _known(value: float) -> float | None:
    """To 6 digits, None for NaN."""
    return None if math.isnan(value) else float(f"{value:.6g}")


def _short(values: Floats | Sequence[float]) -> list[float]:
    return [float(f"{value:.6g}") for value in values]
