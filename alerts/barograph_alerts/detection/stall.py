"""Stalls: no sync point for much longer than the longest interval so far."""

from __future__ import annotations

import math
from typing import Final

FEWEST_SECONDS: Final = 30.0
COLD_SECONDS: Final = 60.0
"""Least silence that is a stall, with and without a history."""
TIMELY_SECONDS: Final = 60.0
"""Intervals older than this on arrival come from a spool: the silence is due to the network, not to the job."""


class Stall:
    """A test of the current silence, with a bound on false alarms.

    If the longest of N intervals took m seconds, and the tail beyond decreases at least as fast as 1 / t**2 (the mean
    exists), a further interval exceeds c m with probability at most 1 / (N c**2). A job has at most about N further
    intervals, so c = 1 / sqrt(risk) keeps the share of healthy jobs that ever alarm below risk.

    risk: between 0 and 1. known_seconds: the longest usual interval of the history, 0 without one.
    """

    __slots__ = ("_factor", "_fewest", "_last", "_longest", "_timely")

    def __init__(self, risk: float, known_seconds: float = 0.0) -> None:
        self._factor = 1 / math.sqrt(risk)
        self._longest = known_seconds
        self._fewest = FEWEST_SECONDS if known_seconds > 0 else COLD_SECONDS
        self._last = math.nan
        self._timely = False

    def add(self, ended_at: float, longest_seconds: float, now: float) -> None:
        """Add new intervals: the end of the last, the longest duration, and the time of arrival."""
        self._last = ended_at
        self._longest = max(self._longest, longest_seconds)
        self._timely = now - ended_at < TIMELY_SECONDS

    @property
    def began_at(self) -> float:
        """End of the last interval, in Unix seconds; NaN before the first."""
        return self._last

    def score(self, now: float) -> float:
        """Silence over the allowed silence: above 1 is a stall. 0 if unknown."""
        if not self._timely or math.isnan(self._last):
            return 0.0
        return max(0.0, now - self._last) / max(self._fewest, self._factor * self._longest)
