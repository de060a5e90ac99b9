"""The loop of a rank whose intervals are not the job's: its iterations are compared with those of other ranks."""

from __future__ import annotations

import math
from typing import Final

from barograph_agent.loops.anchors import MAX_CALLS, find
from barograph_agent.loops.call_trace import CallTrace
from barograph_agent.loops.loop import MIN_SEARCH_SECONDS, Loop
from barograph_agent.ring.reader import Ring


class FollowingLoop:
    """The loop of one ring, which has an anchor while the rank's leader has one. `step` is as of Loop."""

    defers: Final = False
    absorbs: Final = False

    def __init__(self, ring: Ring) -> None:
        self.trace = CallTrace(ring, MAX_CALLS)
        self._ring = ring
        self._searched_at = -math.inf
        self.has_searched = False

    @property
    def readable(self) -> int:
        """Number of recorded iterations that may be read."""
        return self._ring.iteration_head

    def step(self, now: float, leader: Loop | None, *, may_search: bool) -> None:
        """Decide what the shim writes. Raises RingError if the ring is inconsistent."""
        trace, self.has_searched = self.trace, False
        if not self._ring.call_capacity:
            return
        has_anchor = leader is not None and leader.trace.anchor is not None
        if leader is None or not (has_anchor or leader.seeks(now)):
            if trace.anchor is not None:
                trace.drop_anchor()
            trace.write_calls(now, on=False)
            return
        trace.read(now)
        if not trace.lacks_anchor(now) or trace.is_too_fast:
            trace.write_calls(now, on=False)
            return
        trace.write_calls(now, on=True)
        if has_anchor and may_search and trace.is_away(now) and now - self._searched_at >= MIN_SEARCH_SECONDS:
            self._searched_at, self.has_searched = now, True
            if (anchor := find(trace.calls.newest())) is not None:
                trace.record(anchor, now)
