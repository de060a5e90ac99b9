"""Stalls: no sync point for much longer than the longest interval so far."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

FEWEST_SECONDS: Final = 30.0
COLD_SECONDS: Final = 300.0
"""Least silence that is a stall, with and without a history. Nothing is known of the phases of a first run: minutes of
output, or of work without MPI, may follow its loop."""


class SilentSpan(NamedTuple):
    """A row of `silences`: its ranks lived, and no interval ended after `since` until `at`, by the node's clock."""

    since: float
    at: float


class Stall:
    """A test of the current silence, with a bound on false alarms.

    A silence is what a sidecar reports. That no rows arrive is none: they may be in a spool. Times are those of the
    node, compared with each other only.

    If the longest of N intervals took m seconds, and the tail beyond decreases at least as fast as 1 / t**2 (the mean
    exists), a further interval exceeds c m with probability at most 1 / (N c**2). A job has at most about N further
    intervals, so c = 1 / sqrt(risk) keeps the share of healthy jobs that ever alarm below risk.

    risk: between 0 and 1. known_seconds: the longest usual interval of the history, 0 without one.
    """

    __slots__ = ("_factor", "_fewest", "_last", "_longest", "_until")

    def __init__(self, risk: float, known_seconds: float = 0.0) -> None:
        self._factor = 1 / math.sqrt(risk)
        self._longest = known_seconds
        self._fewest = FEWEST_SECONDS if known_seconds > 0 else COLD_SECONDS
        self._last = self._until = math.nan

    def add(self, ended_at: float, longest_seconds: float) -> None:
        """Add new intervals: the end of the last, and the longest duration."""
        self._last = max(ended_at, self._last)
        self._longest = max(self._longest, longest_seconds)

    def add_silence(self, silence: SilentSpan) -> None:
        """Add a silence. It is void if an interval has ended since, and before the first interval."""
        self._last = max(self._last, silence.since)
        self._until = silence.at

    @property
    def began_at(self) -> float:
        """End of the last interval, in Unix seconds; NaN before the first."""
        return self._last

    @property
    def score(self) -> float:
        """Silence over the allowed silence: above 1 is a stall. 0 if unknown."""
        if math.isnan(self._last) or math.isnan(self._until):
            return 0.0
        return max(0.0, self._until - self._last) / max(self._fewest, self._factor * self._longest)
