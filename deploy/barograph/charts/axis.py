"""Axes: the pixel of a value, and the values that get a tick."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from barograph.views.words import round_seconds
from barograph_agent.protocol.tables import MAX_TIME

TIME_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
ROUND: Final = tuple(lead * 10.0**power for power in range(-9, 10) for lead in (1, 2, 5))
MINUTES: Final = (10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000, 72000, 180000, 360000, 720000)
DURATIONS: Final = (*(value for value in ROUND if value < 10), *MINUTES)
GAP: Final = 30
"""Least pixels between ticks of a logarithmic axis."""
RANKS_GAP: Final = 45
"""The same for numbers of ranks, which are written side by side."""
WIDE: Final = 10
"""Ratio of the largest to the smallest value above which an axis is logarithmic."""
MIN_TICKS: Final = 3
MAX_STEPS: Final = 8
"""Of a logarithmic axis of durations: fewer ticks are replaced by multiples of a duration, at most so many."""
MARGIN: Final = 0.08
"""Free share of a linear axis beyond the smallest and the largest value."""

Texts = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Axis:
    """Maps values from `low` to `high` to pixels from `start` to `end`. ticks: values with their texts.

    divisions: parts into which minor rules divide the space between two ticks.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False
    ticks: tuple[tuple[float, str], ...] = ()
    divisions: int = 1

    def __call__(self, value: float) -> float:
        """The pixel of a value, clipped to the ends of the axis."""
        value = min(max(value, self.low), self.high)
        if self.log:
            share = (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)

    def minor(self) -> list[float]:
        """The values of the minor rules."""
        pairs = zip(self.ticks, self.ticks[1:], strict=False)
        steps = [step / self.divisions for step in range(1, self.divisions)]
        return [low + (high - low) * step for (low, _), (high, _) in pairs for step in steps]


def linear(low: float, high: float, start: float, end: float, text: Texts, count: int = 5) -> Axis:
    """A linear axis with about `count` ticks at 1, 2 or 5 times a power of ten; with room if low is not below high."""
    if not high > low:
        low, high = min(low, high) - (abs(low) or 1.0) / 10, max(low, high) + (abs(high) or 1.0) / 10
    least = (high - low) / count
    power = 10.0 ** math.floor(math.log10(least))
    step = power * next(lead for lead in (1, 2, 5, 10) if lead * power >= least * 0.9999)
    steps = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return Axis(low, high, start, end, ticks=tuple((k * step, text(k * step)) for k in steps), divisions=4)


def logarithmic(
    low: float, high: float, start: float, end: float, text: Texts, candidates: Iterable[float], gap: float = GAP
) -> Axis:
    """A logarithmic axis with ticks at those ascending candidates that are at least `gap` pixels apart."""
    axis = Axis(low, high, start, end, log=True)
    ticks: list[float] = []
    for value in candidates:
        if low <= value <= high and (not ticks or abs(axis(value) - axis(ticks[-1])) >= gap):
            ticks.append(value)
    return replace(axis, ticks=tuple((value, text(value)) for value in ticks))


def fitted(values: Iterable[float], start: float, end: float, text: Texts, candidates: Iterable[float] = ROUND) -> Axis:
    """An axis for these values: logarithmic with ticks at candidates where they range over more than WIDE."""
    known = list(values) or [0.0, 1.0]
    low, high = min(known), max(known)
    if low > 0 and high > WIDE * low:
        return logarithmic(low / 1.1, high * 1.1, start, end, text, candidates)
    margin = MARGIN * (high - low)
    return linear(low - margin, high + margin, start, end, text)


def durations(values: Iterable[float], start: float, end: float) -> Axis:
    """An axis for durations in seconds, as `fitted` chooses it."""
    return fitted(values, start, end, round_seconds, DURATIONS)


def log_durations(low: float, high: float, start: float, end: float) -> Axis:
    """A logarithmic axis of durations in seconds above 0."""
    if high / low < 1.5:
        low, high = low / 1.3, high * 1.3
    axis = logarithmic(low, high, start, end, round_seconds, DURATIONS)
    if len(axis.ticks) >= MIN_TICKS:
        return axis
    step = next((one for one in DURATIONS if (high - low) / one <= MAX_STEPS), high)
    steps = (step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1))
    return logarithmic(low, high, start, end, round_seconds, steps)


def ranks(values: Iterable[int], start: float, end: float) -> Axis:
    """A logarithmic axis of numbers of ranks, with ticks at these numbers."""
    scales = sorted(set(values))
    margin = 1.15 if len(scales) > 1 else 2
    return logarithmic(scales[0] / margin, scales[-1] * margin, start, end, "{:,}".format, scales, RANKS_GAP)


def categories(names: Sequence[str], start: float, end: float, gap: float) -> Axis:
    """Positions 0, 1, 2, … with their names, as many of them as are at least `gap` pixels apart."""
    step = max(1, math.ceil(len(names) * gap / abs(end - start)))
    return Axis(-0.6, len(names) - 0.4, start, end, ticks=tuple(enumerate(names))[::step])


def time_axis(low: float, high: float, start: float, end: float) -> Axis:
    """An axis of Unix seconds with at most 8 ticks at full local times."""
    low, high = (min(max(at, 0.0), MAX_TIME) for at in (low, high))
    high = max(high, low + 1.0)
    days = 86400 * math.ceil((high - low) / 7 / 86400)
    step = next((step for step in TIME_STEPS if (high - low) / step <= 7), days)
    shift = time.localtime(low).tm_gmtoff
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%d %b"
    steps = range(math.ceil((low + shift) / step), math.floor((high + shift) / step) + 1)
    ticks = tuple((at, time.strftime(form, time.localtime(at))) for at in (k * step - shift for k in steps))
    return Axis(low, high, start, end, ticks=ticks, divisions=4)
