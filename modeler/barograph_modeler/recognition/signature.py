"""What a run communicates per interval, whatever its speed: bytes of collectives, messages, and bytes of messages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from barograph_agent.reduce import traffic

LOOKS: Final = (0.0, *traffic.LOOKS)
"""Ages at which runs are compared, in seconds: sidecars report then, and at the end of a shorter run."""
FEWEST: Final = 10
"""Intervals of classes in common, for two runs to be compared."""
ALIKE: Final = 0.1
"""Runs of like work differ by this at most, as logarithms: particles move between ranks, meshes have another size."""
LITTLE: Final = 0.05
"""What is added per interval, in bytes and messages, before ratios are formed."""


class ClassTotals(NamedTuple):
    """Of the intervals of one class: their number, bytes of the collectives that end them, messages sent, their bytes.

    All are totals.
    """

    intervals: int
    bytes: int
    messages: int
    message_bytes: int


class Difference(NamedTuple):
    """The quantity in which two runs differ most, and by how many times."""

    what: str
    ratio: float

    def __str__(self) -> str:
        """In words.

        >>> str(Difference("bytes of messages", 2.31))
        '2.3 times the bytes of messages per interval'
        """
        return f"{self.ratio:.2g} times the {self.what} per interval"


class Signature(dict[int, ClassTotals]):
    """The traffic of one rank by class id, from the begin of a run on."""

    def is_comparable(self, other: Mapping[int, ClassTotals]) -> bool:
        """Whether enough is known of both to say that they are alike, or that they are not."""
        return bool(self._common(other))

    def difference(self, other: Mapping[int, ClassTotals]) -> Difference | None:
        """How this run differs from another of the same age; None if it does not, or if that cannot be told.

        Compared is the sum over the classes of both with what it were at the other's traffic per interval.
        """
        if not (common := self._common(other)):
            return None
        mine = sum(self[c].intervals for c in common)
        found = Difference("", 1.0)
        for what, name in (("bytes of collectives", 1), ("messages", 2), ("bytes of messages", 3)):
            actual = math.fsum(self[c][name] for c in common)
            expected = math.fsum(self[c].intervals * other[c][name] / other[c].intervals for c in common)
            ratio = (actual + LITTLE * mine) / (expected + LITTLE * mine)
            if abs(math.log(ratio)) > max(ALIKE, abs(math.log(found.ratio))):
                found = Difference(what, ratio)
        return found if found.what else None

    def _common(self, other: Mapping[int, ClassTotals]) -> list[int]:
        """The classes of both; none where too little is known of them."""
        common = [c for c, one in other.items() if c in self and one.intervals]
        known = min(sum(one[c].intervals for c in common) for one in (self, other))
        return common if known >= FEWEST else []


def look(elapsed_seconds: float) -> float:
    """The latest of LOOKS that a run of so many seconds has passed."""
    return max((one for one in LOOKS if one <= elapsed_seconds), default=LOOKS[0])


def signatures(columns: Mapping[str, Any]) -> Iterator[tuple[str, float, Signature]]:
    """The signatures in rows of the table of that name: job, elapsed seconds, signature."""
    names = ("job", "elapsed_seconds", "class_id", "intervals", "bytes", "messages", "message_bytes")
    found: dict[tuple[str, float], Signature] = {}
    for job, elapsed, class_id, *totals in zip(*(columns[name] for name in names), strict=True):
        found.setdefault((str(job), float(elapsed)), Signature())[int(class_id)] = ClassTotals(*map(int, totals))
    for (job, elapsed), signature in found.items():
        yield job, elapsed, signature
