"""Sums over rows of `pressures`, before and during a disturbance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from barograph_alerts.attribution.cause import Beside
from barograph_alerts.attribution.kernel.pressure import FIGURES, NODE, Pressure

RANKS: Final = 4096
"""Ranks and nodes whose sums are kept."""
MIN_OVERLAP: Final = 0.5
"""Seconds of a span within a disturbance from which on it counts, as far as it is within."""


class Sum:
    """Sums over the rows of one rank or node."""

    __slots__ = ("beside", *FIGURES, "unknown")

    def __init__(self) -> None:
        self.run = self.delay = self.stopped = self.blocked = 0.0
        self.faults = self.memory = self.swapped = self.steal = 0.0
        self.compute = self.reading = self.measured = self.transfer = self.transferred = 0.0
        self.unknown = False
        """Whether the kernel does not count delays."""
        self.beside: Counter[Beside] = Counter()
        """Processor time of the busiest processes beside it."""

    def add(self, row: Pressure) -> None:
        """Add a row."""
        self.unknown = self.unknown or math.isnan(row.delay)
        for name in FIGURES:
            value = getattr(row, name)
            if math.isfinite(value):
                setattr(self, name, getattr(self, name) + value)
        if row.beside is not None and math.isfinite(row.beside_seconds):
            self.beside[row.beside] += row.beside_seconds  # type: ignore[assignment]


NOTHING: Final = Sum()


class Account:
    """Sums over rows of a time."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        """Known time of each node."""
        self.sums: dict[tuple[str, int], Sum] = {}

    def add(self, rows: Iterable[Pressure]) -> Account:
        """Add rows."""
        for row in rows:
            key = row.host, row.rank
            if not row.ended_at > row.began_at:
                continue
            if row.rank == NODE:
                self.seconds[row.host] += row.ended_at - row.began_at  # type: ignore[assignment]
            if key in self.sums or len(self.sums) < RANKS:
                self.sums.setdefault(key, Sum()).add(row)
        return self

    def joined(self, rows: Iterable[Pressure]) -> Account:
        """This and further rows."""
        both = Account()
        both.seconds = self.seconds.copy()
        for key, old in self.sums.items():
            both.sums[key] = copy = Sum()
            for name in Sum.__slots__:
                setattr(copy, name, getattr(old, name))
        return both.add(rows)

    def node(self, host: str) -> Sum:
        """The sums of a node; of nothing if it was not known."""
        return self.sums.get((host, NODE), NOTHING)

    def share(self, host: str, rank: int, figure: Callable[[Sum], float]) -> float:
        """A figure per second; 0 if the node was not known."""
        seconds = self.seconds[host]
        return figure(self.sums.get((host, rank), NOTHING)) / seconds if seconds > 0 else 0.0


def middle(row: Pressure) -> float:
    """The time in the middle of a row, Unix seconds."""
    return 0.5 * (row.began_at + row.ended_at)


def within(row: Pressure, onset_at: float, until: float, before: Account) -> Pressure | None:
    """What a row has lost within a disturbance; None if they overlap by less than MIN_OVERLAP.

    A span may begin before the disturbance and end after it. Outside of it the usual is lost, and the rest within.
    """
    began_at, ended_at = max(row.began_at, onset_at), min(row.ended_at, until)
    inside = ended_at - began_at
    if inside < MIN_OVERLAP:
        return None
    span = row.ended_at - row.began_at
    if inside >= span:
        return row

    def rest(value: float, figure: Callable[[Sum], float]) -> float:
        return max(value - before.share(row.host, row.rank, figure) * (span - inside), 0.0)

    return row._replace(
        began_at=began_at,
        ended_at=ended_at,
        run=rest(row.run, lambda one: one.run),
        delay=min(rest(row.delay, lambda one: one.delay), inside),
        stopped=min(rest(row.stopped, lambda one: one.stopped), inside),
        blocked=min(rest(row.blocked, lambda one: one.blocked), inside),
        memory=min(rest(row.memory, lambda one: one.memory), inside),
        steal=min(rest(row.steal, lambda one: one.steal), inside),
        faults=rest(row.faults, lambda one: one.faults),
        swapped=rest(row.swapped, lambda one: one.swapped),
        compute=row.compute * inside / span,
        reading=row.reading * inside / span,
        measured=row.measured * inside / span,
        transfer=row.transfer * inside / span,
        transferred=row.transferred * inside / span,
        beside_seconds=min(row.beside_seconds, inside),
    )
