"""Silence: the time in which no interval ends, as far as a sidecar has seen it, and when to report it."""

from __future__ import annotations

from typing import Final

import msgspec

FIRST_SECONDS: Final = 5.0
"""The silence that is reported first, and the least distance of reports."""
GROWTH: Final = 0.25
"""The distance to the next report, as a share of the silence so far."""
MAX_SECONDS: Final = 60.0
"""Limit on that distance."""


class Silence(msgspec.Struct):
    """A silence, as last reported; part of the spool's mark, from which a later sidecar continues.

    since: the end of the last interval, in the time of its ring. seconds: without a further interval while a sidecar
    lived, a lower bound.
    """

    since: float = 0.0
    seconds: float = 0.0

    @property
    def at(self) -> float:
        """Up to when no further interval was seen, in the time of the ring."""
        return self.since + self.seconds


class Silences:
    """The current silence of a run, seen step by step."""

    def __init__(self, reported: Silence, now: float) -> None:
        """reported: by an earlier sidecar. now: monotonic seconds, as below."""
        self.current = msgspec.structs.replace(reported)
        self._due = _next(reported.seconds)
        self._count = -1
        self._stepped_at = now

    def step(self, count: int, since: float, now: float) -> bool:
        """Whether a report is due, after a step that has read all rings.

        count: intervals so far, with those that were dropped. since: the end of the last one.
        """
        # What has stopped the sidecar, a suspended job or machine, has probably stopped the ranks.
        passed, self._stepped_at = min(now - self._stepped_at, FIRST_SECONDS), now
        if since != self.current.since or count > self._count >= 0:
            self.current = Silence(since)
            self._due = _next(0.0)
        elif self._count >= 0:
            self.current.seconds += passed
        self._count = count
        if self.current.seconds < self._due:
            return False
        self._due = _next(self.current.seconds)
        return True


def _next(seconds: float) -> float:
    return seconds + min(max(FIRST_SECONDS, GROWTH * seconds), MAX_SECONDS)
