"""Axes: where a value lies on the paper, and which values get a tick."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from barograph.views.words import round_seconds

TIME_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
SPANS: Final = (10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000, 72000, 180000, 360000, 720000)
APART: Final = 30
"""Pixels that ticks of a duration keep from each other; those of ranks are written side by side and need more."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from `low` to `high` on pixels from `start` to `end`, linear or logarithmic, with ticks and texts."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    ticks: tuple[tuple[float, str], ...] = ()

    def __call__(self, value: float) -> float:
        """The pixel of a value; values beyond the ends stay at them."""
        value = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def between(self) -> list[float]:
        """Where the paper has finer rules: three between each two ticks of a linear axis, none on a logarithmic one."""
        if self.log:
            return []
        pairs = zip(self.ticks, self.ticks[1:], strict=False)
        return [low + (high - low) * quarter / 4 for (low, _), (high, _) in pairs for quarter in (1, 2, 3)]


def linear(low: float, high: float, start: float, end: float, name: Callable[[float], str], count: int = 5) -> Axis:
    """A linear axis with about `count` ticks at 1, 2 or 5 times a power of ten."""
    if not high > low:
        low, high = low - (abs(low) or 1.0) / 10, high + (abs(high) or 1.0) / 10
    step = _nice((high - low) / count)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    ticks = tuple((k * step, name(k * step)) for k in range(first, last + 1))
    return Axis(low, high, start, end, ticks=ticks)


def spans(low: float, high: float, start: float, end: float) -> Axis:
    """A logarithmic axis of durations in seconds above 0, with ticks at those that people count in."""
    if high / low < 1.5:
        low, high = low / 1.3, high * 1.3
    bare = Axis(low, high, start, end, True)
    small = (lead * 10.0**power for power in range(-9, 1) for lead in (1, 2, 5))
    ticks: list[tuple[float, str]] = []
    for value in (*small, *SPANS):
        if low <= value <= high and (not ticks or abs(bare(value) - bare(ticks[-1][0])) >= APART):
            ticks.append((value, round_seconds(value)))
    return Axis(low, high, start, end, True, tuple(ticks))


def ranks(values: Sequence[int], start: float, end: float) -> Axis:
    """A logarithmic axis of scales, with ticks at those that were run as far as they keep apart."""
    low, high = float(min(values)), float(max(values))
    low, high = (low / 1.15, high * 1.15) if high > low else (low / 2, high * 2)
    bare = Axis(low, high, start, end, True)
    ticks: list[tuple[float, str]] = []
    for value in sorted(set(values)):
        if not ticks or bare(value) - bare(ticks[-1][0]) > 1.5 * APART:
            ticks.append((value, f"{value:,}"))
    return Axis(low, high, start, end, True, tuple(ticks))


def timeline(low: float, high: float, start: float, end: float, count: int = 7) -> Axis:
    """An axis of Unix seconds with ticks at full local times."""
    high = max(high, low + 1.0)
    step = next((step for step in TIME_STEPS if (high - low) / step <= count), _days((high - low) / count))
    shift = time.localtime(low).tm_gmtoff
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%d %b"
    first = math.ceil((low + shift) / step)
    last = math.floor((high + shift) / step)
    at = [k * step - shift for k in range(first, last + 1)]
    return Axis(low, high, start, end, ticks=tuple((t, time.strftime(form, time.localtime(t))) for t in at))


def durations(low: float, high: float, start: float, end: float, count: int = 5) -> Axis:
    """A linear axis of durations in seconds."""
    return linear(low, high, start, end, round_seconds, count)


def _nice(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return power * next(lead for lead in (1, 2, 5, 10) if lead * power >= step * 0.9999)


def _days(seconds_: float) -> int:
    return 86400 * max(1, math.ceil(seconds_ / 86400))
