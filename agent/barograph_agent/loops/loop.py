"""The loop of one rank without collectives of all ranks: when its calls are asked for, and which one is the anchor.

A rank is quiet while it makes no synchronizing collective. Then the shim is asked for its calls, and after
MIN_QUIET_SECONDS an anchor is sought in them. From then on the shim writes a record for each iteration. Those before,
as far back as calls are known, are recalled from these.

A loop that has ended before its anchor is found is recalled too, and forgotten, so that the next one is found.

Iterations are held back until TRIAL_SECONDS have passed without a collective, the table is half full or the run ends.
If GAPS collectives come before that, these are the intervals, and the iterations are discarded: a program that has
collectives has the same intervals on a slow day. Calls are written meanwhile, and an anchor is sought again in all of
them: the first seconds may have been those of an inner loop. While the best one is of a loop that is interrupted again
and again, iterations are held back for up to MAX_QUIET_SECONDS.

Where collectives come, but many iterations between them that take as long as another, the iterations are the intervals,
and these collectives are no ends of any (`collectives.py`). While that is found out, collectives are held back too;
once it has been so eight times, iterations are held back no longer. Where it is not so,
calls of other ranks, or of many, are not written for WEIGH_SECONDS, and then for longer and longer.

State is in memory only. A sidecar that continues after one that was killed finds in the ring what that one wanted.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_agent.loops.anchors import (
    MAX_CALLS,
    MAX_EVERY,
    Anchor,
    find,
    is_inner,
    lasts,
    loops,
    occurrences,
)
from barograph_agent.loops.collectives import GAPS, MAX_HELD, MAX_POINTS, MAX_QUIET_SECONDS, Collectives, repeats
from barograph_agent.loops.newest import Newest
from barograph_agent.ring.reader import CALL, RECORD, Records, Ring, Want

FLOWS: Final = 3
"""Steps in a row with a collective of all ranks, from which on calls are not written until there is one without."""
SLOW_CALLS: Final = 40_000.0
"""Calls per second of which writing takes 0.1 % of a core: those of a rank whose intervals are told are written on."""
TRIAL_SECONDS: Final = 10.0
"""Time without a collective after which iterations are told; sooner where they outnumber collectives many times."""
MAX_HISTORY: Final = 2**18
"""Calls that are remembered, 4 MB, of a rank whose intervals are told; of others MAX_CALLS."""
FIND_SECONDS: Final = 0.5
"""Least time between two searches; doubled by each that finds nothing, up to MAX_QUIET_SECONDS."""
MAX_CALLS_FILLED: Final = 1 / 4
"""Calls since the last look, as a share of their table, from which on the next look is sooner."""
MAX_PENDING_SECONDS: Final = 10.0
"""How long the first record of a new anchor is waited for."""
MAX_CALL_RATE: Final = 400_000.0
"""Calls per second of which writing takes 1 % of a core, at 25 ns each. Beyond it, they are written now and then."""
REST: Final = 10.0
"""Then, how often as long as they are written they are not."""
AWAY_SECONDS: Final = 2.0
"""An anchor that has not come for so long, and for AWAY_INTERVALS of the longest interval, is sought again."""
AWAY_INTERVALS: Final = 4.0
MISSED_SECONDS: Final = 0.25
"""Time without the anchor from which on calls are written: another anchor has all its iterations since then."""
MIN_FILLED: Final = 0.5
"""Share of a run in a loop that was not seen before its end, from which on that has the intervals."""
MIN_FILLED_SECONDS: Final = 0.1
"""Such a loop takes as long at least."""
MIN_DISTANCE_SECONDS: Final = 50e-6
"""Of iterations that are shorter, one record is several."""
MAX_RECORD_RATE: Final = 250_000.0
"""Records or comparisons of an anchor per second that take 1 % of a core. Beyond it there are no iterations."""

NONE: Final = np.empty(0, CALL)
"""Calls where none were read."""

Times = npt.NDArray[np.float64]


class Loop:
    """The loop of one ring. `step` is called before each read of the ring."""

    def __init__(self, ring: Ring, *, recalls: bool = True) -> None:
        """recalls: whether iterations before the anchor was named are of use, for which calls are remembered."""
        self.ring = ring
        self._recalls = recalls
        self._collectives = Collectives(ring, recalls=recalls)
        self._calls = Newest(MAX_HISTORY if recalls else MAX_CALLS, CALL)
        self._counted: tuple[Anchor, int] | None = None
        """An anchor that has not won over collectives, and how often it came since the begin of the run.

        It is sought while all calls are remembered.
        """
        self._position = 0
        self._stepped_at = self._searched_at = self._rests_until = self._came_at = math.nan
        self._called_at = math.nan
        self._pause = FIND_SECONDS
        self._iterations, self._compared, self._dropped, self._longest = 0, 0, 0, 0.0
        self._held_from: int | None = None
        self._awaits = self._is_trial = self._is_replaced = False
        self._made = self._made_last = 0
        self._is_slow = True
        self._recalled = np.empty(0, RECORD)
        self._discarded: int | None = None
        self._held_since = math.nan
        self._named: Anchor | None = None
        self._named_from = 0
        self._repeats = False
        self.absorbs = False
        """Whether collectives between iterations are no ends of intervals."""
        self.called_ns = 0
        """End of the newest call that was read, by the ring's clock: who calls MPI is not silent."""
        self.has_searched = False
        """Whether the last step has searched."""
        self.checked = 0
        """Iterations of a run that has ended, if only some of them have a collective that is the end of an interval."""
        self.is_too_fast = False
        """Whether there are no iterations because recording them would take more than 1 % of a core."""
        wanted = ring.wanted
        self._want = wanted if wanted.op else Want(calls=wanted.calls)

    @property
    def readable(self) -> int:
        """Iterations of the ring that may be read: those that are not held back."""
        return self.ring.iteration_head if self._held_from is None else self._held_from

    @property
    def holds(self) -> bool:
        """Whether no collective may be read: there may be iterations before it that are not known yet."""
        return self._collectives.held_since is not None or self._held_from is not None

    @property
    def fills(self) -> bool:
        """Whether calls have come so fast that some may be overwritten before the next look."""
        return self._want.calls and self._made_last > MAX_CALLS_FILLED * self.ring.call_capacity

    def take_discarded(self) -> int | None:
        """The iteration before which all are to be passed over, once; None if none is."""
        found, self._discarded = self._discarded, None
        return found

    def step(self, now: float, after_ns: int, *, may_search: bool = True, final: bool = False) -> Records:
        """Look at the ring, and ask for what is needed. Returns recalled iterations, as records.

        after_ns: the end of the last interval that was read. may_search: a search takes some 10 ms. final: the run has
        ended.
        Raises RingError if the ring is inconsistent.
        """
        if not self.ring.call_capacity:
            return np.empty(0, RECORD)
        if math.isnan(self._stepped_at):
            self._stepped_at = self._searched_at = self._rests_until = self._came_at = now
            self._compared = self.ring.compared
            self._iterations, self._dropped = self.ring.iteration_head, self.ring.iterations_dropped
            self._named_from = self._iterations
            self._collectives.look(now)
            self._note(NONE)
        if final or self.ring.finalized:
            self._finish(now, after_ns)
            return self._release()
        passed, self._stepped_at, self.has_searched = now - self._stepped_at, now, False
        quiet = self._collectives.look(now)
        self._watch(now, passed)
        if self._want.calls:
            self._read_calls(now, passed)
        else:
            self._called_at = now  # calls that are not written may come
            self._note(NONE)
        if may_search and self._counted is None and not self._want.op and self._knows_half:
            self.has_searched = True
            self._count(self._find()[1])
        self._recall(after_ns)
        if self._is_replaced:
            self._is_replaced = False
            self._discard()
        self._decide(now, after_ns, quiet, may_search=may_search)
        if self.absorbs:
            quiet = now - self._held_since
        return self._release() if self._is_decided(now, quiet, may_search=may_search) else np.empty(0, RECORD)

    def _decide(self, now: float, after_ns: int, quiet: float, *, may_search: bool) -> None:
        """Ask for what is needed."""
        self.absorbs = self.absorbs and not (self._seeks(now) or self._collectives.are_crowded(0.5))
        self._weigh(now, may_search=may_search)
        if self._want.op and not self.absorbs and self._collectives.are_regular:
            if self._repeats and not self._seeks(now) and self._outnumber():
                self.absorbs = True
            else:
                self._ask(Want(generation=self._want.generation))
                self._discard()
        elif not (self._want.op or self.holds) and self._collectives.flows >= FLOWS and not self._is_written_on:
            self._rest_from_calls(now)
        elif not self.is_too_fast and not self._awaits and self._is_missed(now):
            if (
                may_search
                and self._held_from is None
                and self._seeks(now)
                and (quiet >= self._collectives.limit or self._collectives.calls_since > MAX_HISTORY / 2)
                and now - self._searched_at >= self._pause
            ):
                self._search(now, after_ns, may_return=not self._want.op and quiet < TRIAL_SECONDS)
            if now >= self._rests_until and not self._want.calls:
                self._forget()
                self._ask(self._want._replace(calls=True))

    @property
    def _is_written_on(self) -> bool:
        """Whether calls are written though collectives come: few ones, of a rank whose intervals are told."""
        return self._recalls and self._is_slow

    def _rest_from_calls(self, now: float) -> None:
        """While collectives come, calls are written now and then only."""
        if self._want.calls:
            self._ask(Want(generation=self._want.generation))
            self._forget()
            if not self._collectives.rests(now):
                self._collectives.rest(now)
        elif not self._collectives.rests(now):
            self._collectives.flows = 0
            self._ask(self._want._replace(calls=True))

    def _is_decided(self, now: float, quiet: float, *, may_search: bool) -> bool:
        """Whether iterations that are held back, if any, are to be read now."""
        if self._held_from is None:
            return True
        if self._awaits:
            return False
        if not self._is_trial or self._seeks(now):
            return True
        filled = (self.ring.iteration_head - self._held_from) / self.ring.iteration_capacity
        if filled > 0.5 or self._collectives.are_crowded(MAX_HELD):
            return not (may_search and self._has_all and self._finds_better(now))
        is_sure = self.absorbs and self._collectives.are_surely_rare
        return (is_sure or quiet >= TRIAL_SECONDS) and not (
            self._has_all and self._is_doubtful(now, quiet, may_search=may_search)
        )

    def _note(self, calls: Records, made: int = 0) -> None:
        """Count calls between collectives, while these may be compared with iterations."""
        remembers = self._want.calls or self._want.op != 0
        self._collectives.add(calls["exit_ns"].astype(np.int64), made, remembers=remembers)

    def _weigh(self, now: float, *, may_search: bool) -> None:
        """While there is no anchor, find one whose iterations outnumber the collectives. Those are held back then."""
        collectives = self._collectives
        if self._want.op or not self._want.calls or self.is_too_fast:
            collectives.held_since = None
        elif collectives.weigh(now, len(self._calls), may_search=may_search):
            self.has_searched = True
            calls = self._calls.newest(MAX_CALLS)
            anchor = find(calls)
            if anchor is None or not self._outnumbers(calls, anchor):
                collectives.rest(now, searched=True)
                return
            self._held_since = now if collectives.held_since is None else collectives.held_since
            self._name(anchor, calls, now, is_trial=True)
            collectives.rest_shortly()
            self.absorbs = True

    def _outnumbers(self, calls: Records, anchor: Anchor) -> bool:
        """Whether there are many iterations between collectives, by calls."""
        if is_inner(calls, anchor) or not repeats(calls, anchor):
            return False
        return self._collectives.are_outnumbered(calls["exit_ns"][occurrences(calls, anchor)].astype(np.int64))

    def _outnumber(self) -> bool:
        """The same by what is recorded since the anchor was named."""
        head = self.ring.iteration_head
        first = max(self._named_from, self.ring.iteration_tail, head - MAX_POINTS)
        return self._collectives.are_outnumbered(self.ring.iterations(first, head)["exit_ns"].astype(np.int64))

    @property
    def _has_all(self) -> bool:
        """Whether all calls since the begin of the loop are remembered."""
        return self._made <= MAX_HISTORY

    def _is_doubtful(self, now: float, quiet: float, *, may_search: bool) -> bool:
        """Whether another anchor may be better, by all calls since the begin of the loop."""
        if quiet >= MAX_QUIET_SECONDS:
            return False  # also where the searches of other ranks come first
        if not may_search or now - self._searched_at < self._pause:
            return True
        if self._finds_better(now):
            return True
        self._wait_longer()
        return is_inner(self._calls.newest(MAX_CALLS), _anchor(self._want))

    def _finds_better(self, now: float) -> bool:
        """Whether there is a better anchor, which is named next."""
        self._searched_at, self.has_searched = now, True
        _, anchor = self._find()
        if anchor is None or self._is_named(anchor):
            return False
        if self.absorbs:
            self._collectives.held_since = self._held_since
        # First the shim stops to record the one that was named: its records would be among those of the other.
        self._is_replaced, self._pause = True, 0.0
        self._ask(Want(calls=True, generation=self._want.generation))
        return True

    def _release(self) -> Records:
        found, self._recalled = self._recalled, np.empty(0, RECORD)
        self._held_from, self._awaits, self._held_since = None, False, math.nan
        return found

    def _discard(self) -> None:
        if self._held_from is not None:
            self._release()
            self._discarded = self.ring.iteration_head

    def _watch(self, now: float, passed: float) -> None:
        """Note when iterations come, and give up where they come too often."""
        came = self.ring.iteration_head - self._iterations
        if came:
            self._longest = max((now - self._came_at) / came, self._longest)
            self._iterations, self._came_at = self._iterations + came, now
        dropped = self.ring.iterations_dropped
        if dropped > self._dropped and self._want.op and 2 * self._want.every <= MAX_EVERY:
            self._ask(self._want._replace(every=2 * self._want.every))
        self._dropped = dropped
        compared = self.ring.compared - self._compared
        self._compared += compared
        if self._want.op and not self._want.calls and passed > 0 and (came + compared) / passed > MAX_RECORD_RATE:
            self.is_too_fast = True
            self._ask(Want(generation=self._want.generation))

    def _is_missed(self, now: float) -> bool:
        """Whether there is no anchor, or it has not come for some time."""
        return self._is_away(now, MISSED_SECONDS)

    def _seeks(self, now: float) -> bool:
        """Whether another anchor is sought."""
        return self._is_away(now, max(AWAY_SECONDS, AWAY_INTERVALS * self._longest))

    def _is_away(self, now: float, seconds: float) -> bool:
        return not self._want.op or now - self._came_at >= seconds

    def _read_calls(self, now: float, passed: float) -> None:
        """passed: seconds since the last time, 0 at first. Calls that come too often are not written for a while."""
        first, calls = self.ring.calls(self._position)
        if first > self._position:
            self._calls.clear()
            self._counted = None
            # Another anchor cannot replace one whose iterations are held back, if some of them cannot be recalled.
            self._made = MAX_HISTORY if self._held_from is not None else self._position - first
        made, self._position = first + len(calls) - self._position, first + len(calls)
        self._made += made
        self._made_last = made
        self._is_slow = passed <= 0 or made / passed <= SLOW_CALLS
        if len(calls):
            self._calls.append(calls)
            if self._counted is not None:
                anchor, number = self._counted
                self._counted = anchor, number + len(occurrences(calls, anchor))
            self.called_ns, self._called_at = int(calls["exit_ns"][-1]), now
        self._note(calls, made)
        if not passed and len(calls):
            passed = (int(calls[-1]["exit_ns"]) - self.ring.started_ns) * 1e-9
        if passed > 0 and made / passed > MAX_CALL_RATE and not self._awaits:
            self._rests_until = now + REST * passed
            self._ask(self._want._replace(calls=False))

    def _forget(self) -> None:
        self._calls.clear()
        self._counted = None
        self._collectives.forget()
        self._made = 0

    def _finish(self, now: float, after_ns: int) -> None:
        """Recall what is known of calls only, at the end of the run: first what is held back, then the last loop."""
        self._collectives.held_since = None
        if self._want.calls:
            self._read_calls(now, math.inf)
        if self._held_from is not None:
            self._recall(after_ns, final=True)
            better = self._find()[1] if self._is_trial and self._has_all else None
            if better is None or self._is_named(better):
                self.absorbs = self.absorbs or (self._repeats and self._outnumber())
                return
            self._discard()
            self._ask(Want(generation=self._want.generation))
        is_quiet = self._collectives.look(now) >= self._collectives.limit
        is_likely = self._collectives.are_rare or self._fills(self._calls.newest()) or self._counted is not None
        may_be = is_quiet or (not self._want.op and is_likely)
        if not self.is_too_fast and may_be:
            calls, anchor = self._find()
            is_among = anchor is not None and self._outnumbers(calls, anchor)
            is_it = anchor is not None and (is_among or (is_quiet and lasts(calls, anchor)) or self._is_run(anchor))
            if anchor is not None and is_it and not _is_same(anchor, self._want):
                times = calls["exit_ns"][occurrences(calls, anchor)] * 1e-9
                self._end_loop(_spaced(anchor, times), after_ns, is_recorded=False)
                self.absorbs = self.absorbs or is_among
            elif anchor is not None:
                self._count_checked(anchor)
        self._calls.clear()

    @property
    def _knows_half(self) -> bool:
        """Whether all calls of the run are remembered, and half as many as can be."""
        return self._recalls and MAX_HISTORY / 2 < len(self._calls) == self._position

    def _count(self, anchor: Anchor | None) -> None:
        """Count how often an anchor comes, from the begin of the run on, if all its calls are remembered."""
        calls = self._calls.newest()
        if len(calls) == self._position:
            one = (anchor or Anchor(0, 0))._replace(every=1)
            self._counted = one, len(occurrences(calls, one))

    def _count_checked(self, anchor: Anchor) -> None:
        """Count iterations of this anchor, of a run that has ended."""
        self._count(anchor)
        calls = self._calls.newest()
        times = calls["exit_ns"][occurrences(calls, anchor)].astype(np.int64)
        is_it = self._counted is not None and self._counted[0] == anchor._replace(every=1)
        if self._counted is not None and is_it and self._collectives.are_checks(times):
            self.checked = self._counted[1] // anchor.every

    def _fills(self, calls: Records) -> bool:
        """Whether a run that has ended consists of these for the most part."""
        begin, end = (int(calls["exit_ns"][at]) if len(calls) else 0 for at in (0, -1))
        last = max(self.called_ns, self._collectives.last_ns)
        return end - begin >= max(MIN_FILLED * (last - self.ring.started_ns), MIN_FILLED_SECONDS * 1e9)

    def _is_run(self, anchor: Anchor) -> bool:
        """Whether a loop is most of a run that was too short to see it, with fewer collectives than would win."""
        calls = self._calls.newest()
        calls = calls[occurrences(calls, anchor)]
        return self._fills(calls) and self._collectives.between(calls["exit_ns"][[0, -1]].astype(np.int64)) < GAPS

    def _search(self, now: float, after_ns: int, *, may_return: bool) -> None:
        """Seek an anchor. may_return: whether collectives may still win."""
        self._searched_at, self.has_searched = now, True
        calls, anchor = self._find()
        if anchor is None:
            self._wait_longer()
            return
        times = calls["exit_ns"][occurrences(calls, anchor)] * 1e-9
        longest = float(np.diff(times).max(initial=0.0))
        is_named, found = _is_same(anchor, self._want), anchor
        anchor = _spaced(anchor, times)
        # The ring's clock may be another one than that of `now`.
        if now - self._called_at + self.called_ns * 1e-9 - times[-1] > max(AWAY_SECONDS, AWAY_INTERVALS * longest):
            if may_return:
                self._wait_longer()
            else:
                self._end_loop(anchor, after_ns, is_recorded=is_named)
            return
        if is_named:
            self._wait_longer()
            return
        self._name(found, calls, now, is_trial=not self._want.op)

    def _is_named(self, anchor: Anchor) -> bool:
        """Whether it is the one that was named, of whichever thread: several may call as often."""
        return self._named is not None and anchor._replace(thread=self._named.thread) == self._named

    def _find(self) -> tuple[Records, Anchor | None]:
        """The best anchor in the newest calls, and these: more where it may be a part of another loop."""
        calls = self._calls.newest(MAX_CALLS)
        anchor = find(calls)
        if len(calls) < len(self._calls) and anchor is not None and is_inner(calls, anchor):
            history = self._calls.newest()
            better = find(history, MAX_HISTORY)
            return (history, better) if better is not None else (calls, anchor)
        return calls, anchor

    def _name(self, found: Anchor, calls: Records, now: float, *, is_trial: bool) -> None:
        """Ask for records of an anchor that was found in these calls."""
        times = calls["exit_ns"][occurrences(calls, found)] * 1e-9
        self._repeats = not is_inner(calls, found) and repeats(calls, found)
        anchor, longest, self._named = _spaced(found, times), float(np.diff(times).max(initial=0.0)), found
        self._pause, self._searched_at = FIND_SECONDS, now
        generation = self._want.generation % 255 + 1
        want = Want(True, anchor.op, anchor.site, anchor.match, anchor.value, anchor.every, generation, anchor.thread)
        self._held_from, self._awaits, self._is_trial = self.ring.iteration_head, True, is_trial
        self._held_since = now if math.isnan(self._held_since) else self._held_since
        self._named_from, self._longest, self._came_at = self.ring.iteration_head, longest, now
        self._collectives.begin()
        self._ask(want)

    def _wait_longer(self) -> None:
        self._pause = min(2 * self._pause, MAX_QUIET_SECONDS)

    def _end_loop(self, anchor: Anchor, after_ns: int, *, is_recorded: bool) -> None:
        """Recall the iterations of a loop that has ended, unless the ring has them, and forget its calls."""
        calls = self._calls.newest()
        at = occurrences(calls, anchor._replace(every=1))
        if not len(at):
            return  # its calls were overwritten before they were read
        last = int(calls["exit_ns"][at[-1]])
        if not is_recorded:
            self._recalled = _iterations(calls[(calls["exit_ns"] > after_ns) & (calls["exit_ns"] <= last)], anchor)
        self._calls.drop(int(np.count_nonzero(calls["exit_ns"] <= last)))
        self._pause = FIND_SECONDS

    def _recall(self, after_ns: int, *, final: bool = False) -> None:
        """Recall iterations before the first record of a new anchor, once that is there, or all at the end."""
        if not self._awaits or self._held_from is None:
            is_tried = self._held_from is not None and self._is_trial
            if self._want.calls and self._want.op and not is_tried and not self._is_missed(self._stepped_at):
                self._ask(self._want._replace(calls=False))
            return
        fresh = self.ring.iterations(self._held_from, self.ring.iteration_head)
        anchor = _anchor(self._want)
        if not len(fresh):
            waited = self._stepped_at - self._searched_at
            if final or waited >= max(MAX_PENDING_SECONDS, AWAY_INTERVALS * self._longest):
                self._end_loop(anchor, after_ns, is_recorded=False)
                self._awaits = False
            return
        self._awaits = False
        self._read_calls(self._stepped_at, math.inf)
        calls = self._calls.newest()
        if not (self._is_trial and self._has_all):
            self._calls.clear()
            self._ask(self._want._replace(calls=False))
        calls = calls[(calls["exit_ns"] > after_ns) & (calls["exit_ns"] <= fresh[0]["exit_ns"])]
        self._recalled = _iterations(calls, anchor, is_recorded=True)

    def _ask(self, want: Want) -> None:
        if want != self._want:
            self.ring.want(want)
            self._want = want


def _anchor(want: Want) -> Anchor:
    """Its operation is 0 if there is none."""
    return Anchor(want.op, want.site, want.match, want.value, want.every, want.thread)


def _is_same(anchor: Anchor, want: Want) -> bool:
    """Whether the shim records these calls, however many for a record."""
    return anchor._replace(every=1) == _anchor(want)._replace(every=1)


def _spaced(anchor: Anchor, times: Times) -> Anchor:
    """The same, but each n-th of it where it comes too often. times: when it came, in seconds."""
    distance = float(np.median(np.diff(times))) if len(times) > 1 else MIN_DISTANCE_SECONDS
    factor = 1
    while factor * distance < MIN_DISTANCE_SECONDS and 2 * factor * anchor.every <= MAX_EVERY:
        factor *= 2
    return anchor._replace(every=factor * anchor.every)


def _iterations(calls: Records, anchor: Anchor, *, is_recorded: bool = False) -> Records:
    """Iterations in these calls, as records, of the loop of an anchor and of those before it.

    is_recorded: the last one of the anchor is the first that the shim has recorded.
    """
    found = [np.empty(0, RECORD)]
    for sought, at in loops(calls, anchor):
        is_last = sought is anchor
        times = calls["exit_ns"][at[sought.every - 1 :: sought.every]] * 1e-9
        one = sought if is_last else _spaced(sought, times)
        ends = at[::-1][one.every if is_last and is_recorded else 0 :: one.every][::-1]
        records = np.zeros(len(ends), RECORD)
        records["exit_ns"] = records["enter_ns"] = calls["exit_ns"][ends]
        records["site"], records["op"], records["flags"] = one.site, one.op, one.every
        found.append(records)
    return np.concatenate(found)
