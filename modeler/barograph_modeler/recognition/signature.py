"""What a run communicates per interval, whatever its speed: bytes of collectives, messages, and bytes of messages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

AGES: Final = (0.0, 3.0, 10.0, 30.0)
"""Ages at which runs are compared of which sidecars of earlier versions report, in seconds."""
MOVED_SECONDS: Final = 40.0
MOVED_INTERVALS: Final = 64
"""A run is not moved to another group at a higher age and with more intervals."""
MIN_INTERVALS: Final = 10
"""Intervals of classes in common, for two runs to be compared."""
LITTLE: Final = 0.05
"""What is added per interval, in bytes and messages, before ratios are formed."""
MAX_RUNS: Final = 16
"""The weight of all earlier runs of a group beside the next one."""
QUANTITIES: Final = ("bytes of collectives", "messages", "bytes of messages")


class ClassTotals(NamedTuple):
    """Of the intervals of one class: their number, bytes of the collectives that end them, messages sent, their bytes.

    All are totals; of the runs of a group they are weighted.
    """

    intervals: float
    bytes: float
    messages: float
    message_bytes: float


class Ratios(NamedTuple):
    """Logarithms of one run's QUANTITIES per interval over those of others."""

    bytes: float
    messages: float
    message_bytes: float


class Signature(dict[int, ClassTotals]):
    """The traffic of one rank by class id, from the begin of a run on."""

    @property
    def intervals(self) -> float:
        """Of all classes."""
        return math.fsum(one.intervals for one in self.values())

    def ratios(self, other: Mapping[int, ClassTotals]) -> Ratios | None:
        """This over another of the same age; None where too little is known of their common classes.

        Compared is the sum over these with what it were at the other's traffic per interval.
        """
        common = [c for c, one in other.items() if c in self and one.intervals]
        mine = sum(self[c].intervals for c in common)
        if min(mine, sum(other[c].intervals for c in common)) < MIN_INTERVALS:
            return None
        logs = []
        for name in range(1, len(QUANTITIES) + 1):
            actual = math.fsum(self[c][name] for c in common)
            expected = math.fsum(self[c].intervals * other[c][name] / other[c].intervals for c in common)
            logs.append(math.log((actual + LITTLE * mine) / (expected + LITTLE * mine)))
        return Ratios(*logs)


class PooledTraffic:
    """What the runs of a group communicate at one age: their totals together, the latest runs weighing most."""

    def __init__(self) -> None:
        self.runs = 0.0
        self.total = Signature()

    def add(self, signature: Mapping[int, ClassTotals], runs: float = 1.0) -> None:
        """Add a run, or the total of several."""
        weight = min(1.0, (MAX_RUNS - 1) / self.runs) if self.runs else 0.0
        kept = {c: ClassTotals(*(weight * value for value in one)) for c, one in self.total.items()}
        for class_id, totals in signature.items():
            before = kept.get(class_id, ClassTotals(0, 0, 0, 0))
            kept[class_id] = ClassTotals(*(a + b for a, b in zip(before, totals, strict=True)))
        self.runs, self.total = weight * self.runs + runs, Signature(kept)


def may_move(elapsed_seconds: float, intervals: float) -> bool:
    """Whether a run of this age and so many intervals is early enough to be moved to another group."""
    return elapsed_seconds <= MOVED_SECONDS or intervals <= MOVED_INTERVALS


class TrafficLook(NamedTuple):
    """What a job has communicated so far. when: after how many intervals, 0 at the end of a run that is shorter; of
    sidecars of earlier versions, the latest of AGES. Runs of which this is equal are compared.
    """

    job: str
    when: float
    elapsed_seconds: float
    signature: Signature


def looks(columns: Mapping[str, Any]) -> Iterator[TrafficLook]:
    """The looks in rows of `signatures`."""
    names = ("job", "elapsed_seconds", "class_id", "intervals", "bytes", "messages", "message_bytes")
    found: dict[tuple[str, float, int], Signature] = {}
    counts = columns.get("look", [0] * len(columns["job"]))
    for count, job, elapsed, class_id, *totals in zip(counts, *(columns[name] for name in names), strict=True):
        key = str(job), float(elapsed), int(count)
        found.setdefault(key, Signature())[int(class_id)] = ClassTotals(*map(int, totals))
    for (job, elapsed, count), signature in found.items():
        age = max((one for one in AGES if one <= elapsed), default=AGES[0])
        yield TrafficLook(job, float(count) or age, elapsed, signature)
