"""Stalls: a job that says nothing for much longer than it ever took from one sync point to the next."""

from __future__ import annotations

import math
from typing import Final

FEWEST_SECONDS: Final = 30.0
COLD_SECONDS: Final = 60.0
"""A silence shorter than this is no stall; the second where the job has no history."""
TIMELY_SECONDS: Final = 60.0
"""Intervals older than this on arrival come from a spool: their job's silence is the network's, not its own."""


class Stall:
    """When to call a silence a stall, at a risk of its own.

    Where the longest of N intervals took m seconds, and the tail beyond falls at least as fast as 1 / t**2 (means
    exist), a further interval exceeds c m with probability 1 / (N c**2) or less. A job has no more intervals than the
    N it is judged by, so c = 1 / sqrt(risk) keeps the share of healthy jobs that are ever called stalled below risk.

    risk: between 0 and 1. known_seconds: the longest interval that is usual in the history, 0 where there is none.
    """

    __slots__ = ("_factor", "_fewest", "_last", "_longest", "_timely")

    def __init__(self, risk: float, known_seconds: float = 0.0) -> None:
        self._factor = 1 / math.sqrt(risk)
        self._longest = known_seconds
        self._fewest = FEWEST_SECONDS if known_seconds > 0 else COLD_SECONDS
        self._last = math.nan
        self._timely = False

    def add(self, ended_at: float, longest_seconds: float, now: float) -> None:
        """Take the last end and the longest duration of some new intervals, which arrived at `now`."""
        self._last = ended_at
        self._longest = max(self._longest, longest_seconds)
        self._timely = now - ended_at < TIMELY_SECONDS

    @property
    def began_at(self) -> float:
        """When the last interval ended, in Unix seconds; NaN before the first."""
        return self._last

    def score(self, now: float) -> float:
        """Silence over what is allowed: above 1 it is a stall. 0 where nothing can be said."""
        if not self._timely or math.isnan(self._last):
            return 0.0
        return max(0.0, now - self._last) / max(self._fewest, self._factor * self._longest)
