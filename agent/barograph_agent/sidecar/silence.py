"""Silence: the time in which no interval ends, as far as a sidecar has seen it, and when to report it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from barograph_agent.protocol.rows import TableRows
from barograph_agent.reduce.ring_set import RingSet

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


class SilenceRows:
    """Source of rows of `silences`: what is late in the log tells nothing about a silence."""

    def __init__(self, rings: RingSet, reported: Silence, now: float) -> None:
        """reported: what was reported last; part of the mark. now: monotonic seconds."""
        self.silences = Silences(reported, now)
        self._rings, self._reported = rings, reported

    def read(self, now: float, *, final: bool) -> Iterator[TableRows]:
        """A row if no interval has ended for some time, and ranks live."""
        if final or (silence := self._rings.silence) is None or not self.silences.step(*silence, now):
            return
        if ranks := self._rings.living:
            current = self.silences.current
            self._reported.since, self._reported.seconds = current.since, current.seconds
            yield TableRows("silences", 1, {"since": current.since, "time": current.at, "ranks": ranks})


def _next(seconds: float) -> float:
    return seconds + min(max(FIRST_SECONDS, GROWTH * seconds), MAX_SECONDS)
