"""Rate limits: a token bucket for each producer or connection."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

BURST_SECONDS: Final = 10.0
"""So that a spool filled during an outage is sent fast."""
_SWEEP: Final = 10_000


class TokenBuckets:
    """Buckets by owner. A token is one row, one message or one byte. Not thread-safe."""

    def __init__(self, per_second: float, clock: Callable[[], float], burst_seconds: float = BURST_SECONDS) -> None:
        """`clock`: monotonic, in seconds. burst_seconds: a full bucket holds the tokens of this time."""
        self._burst_seconds = burst_seconds
        self.set_rate(per_second)
        self._clock = clock
        self._levels: dict[Hashable, tuple[float, float]] = {}
        self._sweep_at = _SWEEP

    def set_rate(self, per_second: float) -> None:
        """Fill at another rate from now on."""
        self._rate = per_second
        self._full = per_second * self._burst_seconds

    def is_empty(self, owner: Hashable) -> bool:
        """Whether `consume` would fail now."""
        return owner in self._levels and self._level(owner, self._clock()) <= 0

    def consume(self, owner: Hashable, tokens: float) -> bool:
        """Consume tokens; False where the bucket is empty. It may be overdrawn, which delays the next success."""
        now = self._clock()
        level = self._level(owner, now)
        if level <= 0:
            return False
        self._levels[owner] = (level - tokens, now)
        if len(self._levels) > self._sweep_at:
            # A full bucket need not be stored.
            self._levels = {key: level for key, level in self._levels.items() if self._level(key, now) < self._full}
            self._sweep_at = max(_SWEEP, 2 * len(self._levels))
        return True

    def _level(self, owner: Hashable, now: float) -> float:
        level, at = self._levels.get(owner, (self._full, now))
        return min(level + (now - at) * self._rate, self._full)
