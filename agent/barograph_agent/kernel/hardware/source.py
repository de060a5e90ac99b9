"""What a source is, counters as one, and how figures of several times are one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from barograph_agent.system.processes import Processes

COUNTS: Final = ("throttles", "memory_errors", "link_errors", "accelerator_errors")
"""Figures that are growth since the last read: those of several times are added. Of others the mean counts."""

MEMORY_ERRORS: Final = "/sys/devices/system/edac/mc/mc*/[cu]e_count"
"""What controllers of memory have seen, corrected or not (EDAC)."""

Figures: TypeAlias = dict[str, float]
"""By column of `pressures`; what a node does not have is absent or NaN."""


class HardwareSource(Protocol):
    """Figures of one kind of hardware. Never raises: what is missing or strange is unknown."""

    def read(self, cores: Sequence[int]) -> Figures:
        """Figures now, and growth since the last call. cores: on which ranks run."""
        ...


class CounterSource:
    """`name`: how much counters grew together since each was read last, 0 for the first time; NaN without any.

    A counter that is smaller than before was reset, and counts from 0. patterns: of paths, as a shell has them.
    """

    def __init__(self, processes: Processes, name: str, *patterns: str) -> None:
        self._processes, self._name = processes, name
        self._paths = [path for pattern in patterns for path in processes.matching(pattern)]
        self._before: dict[str, float] = {}

    def read(self, cores: Sequence[int] = (), *more: str) -> Figures:
        """As of a source. more: paths beside those of the patterns."""
        total = math.nan
        for path in (*self._paths, *more):
            now = self._processes.number(path)
            if math.isnan(now):
                continue
            before, self._before[path] = self._before.get(path, now), now
            total = (0.0 if math.isnan(total) else total) + (now - before if now >= before else now)
        return {self._name: total}


def joined(one: Figures, other: Figures, share: float) -> Figures:
    """Those of two times. share: of the other in both."""
    found = dict(one)
    for name, value in other.items():
        before = found.get(name, math.nan)
        if math.isnan(before + value):
            found[name] = value if math.isnan(before) else before
        else:
            found[name] = before + value if name in COUNTS else (1 - share) * before + share * value
    return found
