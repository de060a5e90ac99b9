"""How fast each producer may go: one bucket for each, which fills at a steady rate."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

BURST_SECONDS: Final = 10.0
"""A bucket holds what flows into it in this time: a spool that was filled while the collector was away goes fast."""
_SWEEP: Final = 10_000


class TokenBuckets:
    """What each producer may still send, in rows or messages. Not thread-safe."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        """`clock` gives seconds that only grow."""
        self._rate = per_second
        self._full = per_second * BURST_SECONDS
        self._clock = clock
        self._levels: dict[Hashable, tuple[float, float]] = {}
        self._sweep_at = _SWEEP

    def is_empty(self, producer: Hashable) -> bool:
        """Whether `take` would give nothing now."""
        return producer in self._levels and self._level(producer, self._clock()) <= 0

    def take(self, producer: Hashable, amount: float) -> bool:
        """Take that much out if the bucket holds any; says whether. One message may overdraw it: the next waits."""
        now = self._clock()
        level = self._level(producer, now)
        if level <= 0:
            return False
        self._levels[producer] = (level - amount, now)
        if len(self._levels) > self._sweep_at:
            self._forget_full(now)
        return True

    def _level(self, producer: Hashable, now: float) -> float:
        level, at = self._levels.get(producer, (self._full, now))
        return min(level + (now - at) * self._rate, self._full)

    def _forget_full(self, now: float) -> None:
        """Drop what says nothing: a full bucket is as good as none."""
        self._levels = {who: held for who, held in self._levels.items() if self._level(who, now) < self._full}
        self._sweep_at = max(_SWEEP, 2 * len(self._levels))

    def fill_at(self, per_second: float) -> None:
        """Fill at another rate from now on."""
        self._rate = per_second
        self._full = per_second * BURST_SECONDS
