"""The loop of one rank without collectives of all ranks: the anchor that ends its iterations.

The shim writes calls until the intervals of the rank are decided:

- Iterations, once no collective has come for some seconds (MIN_QUIET_SECONDS, or longer where collectives are rare), or
  once many iterations are between two collectives again and again. The anchor is named to the shim, which records each
  iteration from then on; those before are recalled from the calls. Collectives between iterations end no interval.
- Collectives, otherwise. While iterations may be found between them they are deferred, for DEFER_SECONDS at most.

An anchor is dropped when collectives come regularly and are not outnumbered, and another one is sought when it stays
away. A run that ends before a decision is decided by all its calls.

State is in memory only. A sidecar that continues after one that was killed finds in the ring what that one asked for.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_agent.loops.anchors import MAX_CALLS, Anchor, find, is_inner, occurrences, repeats
from barograph_agent.loops.call_trace import MAX_CALL_RATE, MAX_FLOWING_CALL_RATE, CallTrace, spaced
from barograph_agent.loops.collectives import GAPS, MAX_POINTS, MAX_QUIET_SECONDS, Collectives
from barograph_agent.ring.reader import RECORD, Records, Ring

MAX_HISTORY: Final = 2**18
"""Calls that are remembered: 4 MB."""
FLOWS: Final = 3
"""Steps in a row with a collective after which fewer calls are written."""
MIN_SEARCH_SECONDS: Final = 0.5
"""Time between two searches; doubled by each that finds nothing, up to MAX_QUIET_SECONDS."""
MANY_CALLS_SECONDS: Final = 2.0
"""Time without a collective after which half of MAX_CALLS decide."""
MAX_JOIN_SECONDS: Final = 10.0
"""Time within which the first record of an anchor comes; longer where iterations are long."""
JOIN_INTERVALS: Final = 4.0
"""The same in multiples of the longest interval."""
DEFER_SECONDS: Final = 10.0
"""Time for which collectives are deferred while iterations are sought between them."""
ENOUGH_ROUNDS: Final = 8
"""Rounds of many calls between collectives after which no more time is needed."""
MAX_DEFERRED: Final = 1 / 8
"""Share of their table that deferred collectives fill."""
REST_SECONDS: Final = 1.0
MAX_REST_SECONDS: Final = 8.0
"""Pause after iterations were sought between collectives in vain; doubled by each time."""
MIN_LOOP_SECONDS: Final = 1.0
"""Time of a loop that is found at the end of a run; half of a shorter run."""

NO_RECORDS: Final = np.empty(0, RECORD)


class Loop:
    """The loop of one ring. `step` is called before each read of the ring."""

    def __init__(self, ring: Ring) -> None:
        self.trace = CallTrace(ring, MAX_HISTORY)
        self._ring = ring
        self._collectives = Collectives(ring)
        self._joins_at: int | None = None
        """First record of an anchor whose earlier iterations are not recalled yet."""
        self._named_at = self._searched_at = self._rests_until = -math.inf
        self._pause, self._rest = MIN_SEARCH_SECONDS, REST_SECONDS
        self._longest = 0.0
        self._deferred_since: float | None = None
        self._outnumbers = False
        """Whether iterations of the anchor were seen to outnumber collectives."""
        self.absorbs = False
        """Whether collectives between iterations end no interval."""
        self.has_searched = False
        """Whether the last step has searched for an anchor, which takes some 10 ms."""

    @property
    def readable(self) -> int:
        """Number of recorded iterations that may be read."""
        return self._ring.iterations.head if self._joins_at is None else self._joins_at

    @property
    def defers(self) -> bool:
        """Whether collectives are deferred: iterations before them may not be known yet."""
        return self._deferred_since is not None or self._joins_at is not None

    def seeks(self, now: float) -> bool:
        """Whether iterations may become the intervals soon."""
        return self.defers or self._collectives.is_quiet(now)

    def step(self, now: float, after_ns: int, *, may_search: bool = True, final: bool = False) -> Records:
        """Decide what the shim writes. Returns recalled iterations, as records.

        now: monotonic seconds. after_ns: end of the last interval that was read. final: the run has ended.
        Raises RingError if the ring is inconsistent.
        """
        self.has_searched = False
        if not self._ring.call_capacity:
            return NO_RECORDS
        trace, collectives = self.trace, self._collectives
        trace.read(now, MAX_CALL_RATE if collectives.steps < FLOWS else MAX_FLOWING_CALL_RATE)
        collectives.read(now, remembers=len(trace.calls) > 0 or trace.anchor is not None)
        self.absorbs = trace.anchor is not None
        final = final or self._ring.finalized
        if self._joins_at is not None:
            return self._join(now, after_ns, final=final)
        if final:
            return self._end(after_ns)
        if trace.anchor is not None:
            self._follow(now, may_search=may_search)
        elif not trace.is_too_fast:
            trace.write_calls(now, on=True)
            self._seek(now, may_search=may_search)
        return NO_RECORDS

    def _seek(self, now: float, *, may_search: bool) -> None:
        """Name an anchor if iterations are the intervals."""
        collectives = self._collectives
        rounds = collectives.rounds(_ends(self.trace.calls[-MAX_CALLS:]))
        many = min(MAX_CALLS, self._ring.call_capacity) / 2
        has_many = rounds.last >= many and collectives.quiet_seconds(now) >= MANY_CALLS_SECONDS
        if collectives.is_quiet(now) or has_many:
            self._search(now, may_search=may_search)
            return
        if now < self._rests_until or not rounds.are_recent:
            self._deferred_since = None
            return
        self._deferred_since = now if self._deferred_since is None else self._deferred_since
        is_over = now - self._deferred_since >= DEFER_SECONDS or collectives.fill(MAX_DEFERRED)
        if not (is_over or rounds.long >= ENOUGH_ROUNDS) or not may_search:
            return
        self.has_searched = True
        if (anchor := self._outnumbering()) is not None:
            self._name(anchor, now)
            self._outnumbers, self._rest = True, REST_SECONDS
            return
        self._deferred_since, self._rests_until = None, now + self._rest
        self._rest = min(2 * self._rest, MAX_REST_SECONDS)
        collectives.restart_rounds()

    def _search(self, now: float, *, may_search: bool) -> None:
        """Name the anchor of the calls since the last collective, or of a loop that has begun later."""
        if not may_search or now - self._searched_at < self._pause:
            return
        self._searched_at, self.has_searched = now, True
        anchor = find(calls := self.trace.calls[-MAX_CALLS:])
        is_full = len(self.trace.calls) > MAX_HISTORY / 2
        may_wait = not is_full and self._collectives.quiet_seconds(now) < MAX_QUIET_SECONDS
        if anchor is None or _is_same(anchor, self.trace.anchor) or (may_wait and is_inner(calls, anchor)):
            self._pause = min(2 * self._pause, MAX_QUIET_SECONDS)
        else:
            self._name(anchor, now)

    def _outnumbering(self) -> Anchor | None:
        """The anchor whose iterations outnumber collectives."""
        calls = self.trace.calls[-MAX_CALLS:]
        anchor = find(calls)
        if anchor is None or is_inner(calls, anchor) or not repeats(calls, anchor):
            return None
        return anchor if self._collectives.are_outnumbered(_ends(calls[occurrences(calls, anchor)])) else None

    def _name(self, anchor: Anchor, now: float) -> None:
        calls = self.trace.calls
        self._longest = float(np.diff(_ends(calls[occurrences(calls, anchor)])).max(initial=0)) * 1e-9
        self._joins_at, self._named_at, self._deferred_since = self._ring.iterations.head, now, None
        self._pause, self._outnumbers = MIN_SEARCH_SECONDS, False
        self.trace.record(anchor, now)
        self._collectives.restart()

    def _join(self, now: float, after_ns: int, *, final: bool) -> Records:
        """Recall the iterations before the first recorded one, once that is there, or all if the loop has ended."""
        assert self._joins_at is not None
        trace, anchor = self.trace, self.trace.anchor
        fresh = self._ring.iterations.records(self._joins_at, self._ring.iterations.head)
        if anchor is not None and not (len(fresh) or final) and self._may_come(now):
            return NO_RECORDS
        self._joins_at = None
        if anchor is None:  # too fast
            return NO_RECORDS
        if len(fresh):
            trace.read(now)
            recalled = _iterations(trace.calls, anchor, after_ns, int(fresh[0]["exit_ns"]))
            trace.write_calls(now, on=False)
            trace.drop_calls()
            return recalled
        recalled = _iterations(trace.calls, anchor, after_ns)
        trace.drop_calls()
        trace.drop_anchor()
        return recalled

    def _may_come(self, now: float) -> bool:
        return now - self._named_at < max(MAX_JOIN_SECONDS, JOIN_INTERVALS * self._longest)

    def _follow(self, now: float, *, may_search: bool) -> None:
        """Drop an anchor whose iterations are the intervals no more, or name another one."""
        trace, collectives = self.trace, self._collectives
        if collectives.are_regular and not trace.is_away(now):
            self._outnumbers = self._outnumbers or self._outnumber()
        is_over = trace.is_away(now) or not self._outnumbers
        if collectives.fill(1 / 2) or (collectives.are_regular and is_over):
            trace.drop_anchor()
            trace.write_calls(now, on=True)
            self.absorbs = False
        elif not trace.lacks_anchor(now):
            trace.write_calls(now, on=False)
        else:
            trace.write_calls(now, on=True)
            if trace.is_away(now) and collectives.is_quiet(now):
                self._search(now, may_search=may_search)

    def _outnumber(self) -> bool:
        """Whether the recorded iterations outnumber collectives."""
        head = self._ring.iterations.head
        records = self._ring.iterations.records(max(self._ring.iterations.tail, head - MAX_POINTS), head)
        return self._collectives.are_outnumbered(_ends(records))

    def _end(self, after_ns: int) -> Records:
        """Recall the iterations of the last loop of a run, if it was not decided before."""
        self._deferred_since = None
        anchor = find(calls := self.trace.calls[-MAX_CALLS:])
        if anchor is None or self.trace.is_too_fast or _is_same(anchor, self.trace.anchor):
            return NO_RECORDS
        ends = _ends(calls[occurrences(calls, anchor)])
        first, last = int(ends[0]), int(ends[-1])
        run_ns = max(self.trace.called_ns - self._ring.started_ns, 0)
        is_most = last - first >= min(MIN_LOOP_SECONDS * 1e9, run_ns / 2)
        if not (is_most and self._collectives.between(first, last) < GAPS) and self._outnumbering() is None:
            return NO_RECORDS
        self.absorbs = True
        recalled = _iterations(self.trace.calls, spaced(anchor, ends * 1e-9), after_ns)
        self.trace.drop_calls()
        return recalled


class FollowingLoop:
    """The loop of a ring whose intervals are not the job's: it has an anchor while the rank's leader has one."""

    defers: Final = False
    absorbs: Final = False

    def __init__(self, ring: Ring) -> None:
        self.trace = CallTrace(ring, MAX_CALLS)
        self._ring = ring
        self._searched_at = -math.inf
        self.has_searched = False

    @property
    def readable(self) -> int:
        """As of Loop."""
        return self._ring.iterations.head

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
        is_wanted = trace.lacks_anchor(now) and not trace.is_too_fast
        trace.write_calls(now, on=is_wanted)
        is_due = trace.is_away(now) and now - self._searched_at >= MIN_SEARCH_SECONDS
        if is_wanted and has_anchor and may_search and is_due:
            self._searched_at, self.has_searched = now, True
            if (anchor := find(trace.calls)) is not None:
                trace.record(anchor, now)


def _ends(records: Records) -> npt.NDArray[np.int64]:
    """When calls or iterations ended, in nanoseconds."""
    return records["exit_ns"].astype(np.int64)


def _is_same(anchor: Anchor, named: Anchor | None) -> bool:
    """Whether the shim records these calls, however many for a record."""
    return named is not None and anchor._replace(every=1) == named._replace(every=1)


def _iterations(calls: Records, anchor: Anchor, after_ns: int, until_ns: int | None = None) -> Records:
    """Iterations in these calls as records, those that end after a time.

    until_ns: end of the first one that the shim has recorded; None if it has recorded none.
    """
    at = occurrences(calls, anchor._replace(every=1))
    ends = _ends(calls[at])
    ends = ends[(ends > after_ns) & (ends <= (ends[-1:].max(initial=0) if until_ns is None else until_ns))]
    ends = ends[::-1][0 if until_ns is None else anchor.every :: anchor.every][::-1]
    records = np.zeros(len(ends), RECORD)
    records["exit_ns"] = records["enter_ns"] = ends
    records["site"], records["op"], records["flags"] = anchor.site, anchor.op, anchor.every
    return records
