"""Sums over rows of `pressures`, before and during a disturbance."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Final

import numpy as np

from barograph_alerts.attribution.cause import Beside
from barograph_alerts.attribution.kernel.pressure import FIGURES, LIMITED, NODE, WORK, Pressure

RANKS: Final = 4096
"""Ranks and nodes whose sums are kept."""
MIN_OVERLAP: Final = 0.5
"""Seconds of a span within a disturbance from which on it counts, as far as it is within."""


class LossTotals:
    """Sums of FIGURES over the rows of one rank or node, by name."""

    __slots__ = ("_figures", "beside", "unknown")

    def __init__(self) -> None:
        self._figures = np.zeros(len(FIGURES))
        self.unknown = False
        """Whether the kernel does not count delays."""
        self.beside: Counter[Beside] = Counter()
        """Processor time of the busiest processes beside it."""

    def __getitem__(self, name: str) -> float:
        return float(self._figures[FIGURES[name]])

    def mean(self, gauge: str) -> float:
        """The mean of one of GAUGES over the time in which it is known; NaN without any."""
        return self[gauge] / known if (known := self[f"known {gauge}"]) > 0 else math.nan

    def add(self, row: Pressure) -> None:
        """Add a row."""
        known = np.isfinite(row.figures)
        self.unknown = self.unknown or not known[FIGURES["delay"]]
        self._figures += np.where(known, row.figures, 0.0)
        if row.beside is not None and np.isfinite(row.beside_seconds):
            self.beside[row.beside] += row.beside_seconds  # type: ignore[assignment]

    def usual(self, seconds: float, known_seconds: float) -> np.ndarray:
        """What a rank or node loses in a span, if these are the sums over `known_seconds`."""
        return self._figures * (seconds / known_seconds if known_seconds > 0 else 0.0)


NOTHING: Final = LossTotals()


class Account:
    """Sums over rows of a time."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        """Known time of each node."""
        self.sums: dict[tuple[str, int], LossTotals] = {}

    def add(self, rows: Iterable[Pressure]) -> Account:
        """Add rows."""
        for row in rows:
            key = row.host, row.rank
            if not row.ended_at > row.began_at:
                continue
            if row.rank == NODE:
                self.seconds[row.host] += row.ended_at - row.began_at  # type: ignore[assignment]
            if key in self.sums or len(self.sums) < RANKS:
                self.sums.setdefault(key, LossTotals()).add(row)
        return self

    def joined(self, rows: Iterable[Pressure]) -> Account:
        """This and further rows."""
        return deepcopy(self).add(rows)

    def node(self, host: str) -> LossTotals:
        """The sums of a node; of nothing if it was not known."""
        return self.sums.get((host, NODE), NOTHING)

    def share(self, host: str, rank: int, figure: Callable[[LossTotals], float]) -> float:
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
    inside, span = ended_at - began_at, row.ended_at - row.began_at
    if inside < MIN_OVERLAP:
        return None
    if inside >= span:
        return row
    usual = before.sums.get((row.host, row.rank), NOTHING).usual(span - inside, before.seconds[row.host])
    figures = np.maximum(row.figures - usual, 0.0)
    figures[LIMITED] = np.minimum(figures[LIMITED], inside)
    figures[WORK] = row.figures[WORK] * inside / span
    beside_seconds = min(row.beside_seconds, inside)
    return row._replace(began_at=began_at, ended_at=ended_at, figures=figures, beside_seconds=beside_seconds)
