"""Collectives of all ranks, as one rank makes them: how often they come, and whether many iterations are between two.

What is remembered of them is bounded, and a look costs what has come since the last one, whatever is remembered.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_agent.loops.anchors import MAX_PAUSE_TIME, MIN_ITERATIONS, RARE, SHARES, Anchor, occurrences
from barograph_agent.loops.newest import Newest
from barograph_agent.ring.reader import Records, Ring

MIN_QUIET_SECONDS: Final = 2.0
"""Time without a collective from which on an anchor is sought."""
QUIET_GAPS: Final = 4.0
"""The same as a multiple of the median time between the last GAPS collectives: rare ones are intervals too."""
GAPS: Final = 3
MAX_QUIET_SECONDS: Final = 30.0
"""Limit on that time. Collectives that are farther apart leave iterations between them."""
MIN_CALLS: Final = 2.0
"""Calls for each collective, from which on there may be iterations between them."""
WEIGH_SECONDS: Final = 1.0
"""How long after iterations were compared with collectives, in vain, they are again; doubled by each time."""
MAX_WEIGH_SECONDS: Final = 8.0
"""Limit on that."""
MAX_REST_SECONDS: Final = 300.0
"""The same where an anchor was sought in vain, which takes 10 ms, of a rank whose intervals are not told: of many."""
MAX_POINTS: Final = 4096
"""Collectives that are remembered."""
MAX_HELD: Final = 1 / 8
"""Collectives that are held back, as a share of their table."""
MIN_ROUNDS: Final = 2
"""Complete rounds of iterations between collectives, from which on it is clear that these are rarer."""
ENOUGH_ROUNDS: Final = 8
"""The same from which on no more time is needed."""
MIN_RATIO: Final = 2.0
"""Iterations for each collective, from which on they are many."""
MIN_IN_ROUNDS: Final = 0.85
"""Share of the iterations that are in rounds of more than MIN_ITERATIONS: another solver may come first."""
MIN_CHECKED: Final = 0.1
"""Share of the iterations with a collective each, and of those without."""
MIN_REGULAR: Final = 0.5
"""Median time of iterations between collectives, as a share of their mean: those on coarser grids are shorter."""
MIN_SAME: Final = 3
"""Iterations at the same place of a round, of which the median counts."""
MIN_REPEATED: Final = 0.1
"""Share of the calls that come in most iterations exactly so."""

Integers = npt.NDArray[np.int64]


class Rounds(NamedTuple):
    """Of rounds between two collectives, the number of those with more than MIN_ITERATIONS calls, and calls in them.

    A program that writes something now and then may make some collectives there, with a few calls between two.
    """

    number: int = 0
    calls: int = 0
    others: int = 0
    """Calls in other rounds."""

    def add(self, calls: Integers) -> Rounds:
        """With others. calls: in each."""
        long = calls > MIN_ITERATIONS
        number, inside = int(np.count_nonzero(long)), int(calls[long].sum())
        return Rounds(self.number + number, self.calls + inside, self.others + int(calls.sum()) - inside)

    @property
    def are_most(self) -> bool:
        """Whether most calls are in such rounds, of some at least."""
        return self.number >= MIN_ROUNDS and self.calls >= MIN_IN_ROUNDS * (self.calls + self.others)


class Collectives:
    """Those of one ring. `look` is called once, `add` once or more in each step."""

    def __init__(self, ring: Ring, *, recalls: bool) -> None:
        """recalls: whether the rank's intervals are told."""
        self._ring, self._recalls = ring, recalls
        self._longest_rest = MAX_WEIGH_SECONDS if recalls else MAX_REST_SECONDS
        self._head: int | None = None
        self._noted = 0
        self._changed_at = math.nan
        self._gaps: deque[float] = deque(maxlen=GAPS)
        self._ends = Newest(MAX_POINTS, np.int64)
        self._rounds: deque[tuple[int, int]] = deque(maxlen=MIN_ROUNDS + 1)
        """Of the last rounds with calls, the number of the collective after it, and of the calls."""
        self._long = Rounds()
        self._grown = False
        """Whether there is a round of more than MIN_ITERATIONS calls since the last look."""
        self._calls_each: deque[float] = deque(maxlen=MIN_ROUNDS)
        self._weighs_from, self._rest = -math.inf, WEIGH_SECONDS
        self.flows = 0
        """Looks in a row in which there was one."""
        self.calls_since = 0
        """Calls since the last one."""
        self.held_since: float | None = None
        """Since when collectives are held back, as there may be iterations between them."""

    def look(self, now: float) -> float:
        """Seconds without a collective."""
        head = self._ring.head
        if self._head is None:
            self._head, self._changed_at = head, now
        if head != self._head:
            self._gaps.append(now - self._changed_at)
            self._head, self._changed_at = head, now
            self.flows += 1
        else:
            self.flows = 0
        return now - self._changed_at

    @property
    def limit(self) -> float:
        """Seconds without one, from which on there may be another loop."""
        typical = float(np.median(self._gaps)) if len(self._gaps) == GAPS else 0.0
        return min(max(QUIET_GAPS * typical, MIN_QUIET_SECONDS), MAX_QUIET_SECONDS)

    @property
    def are_regular(self) -> bool:
        """Whether they have come often enough since `begin`."""
        return len(self._gaps) == GAPS and max(self._gaps) < MAX_QUIET_SECONDS

    @property
    def last_ns(self) -> int:
        """End of the last one that is remembered; 0 if there is none."""
        return int(self._ends.newest()[-1]) if len(self._ends) else 0

    def between(self, times: Integers) -> int:
        """Those that are remembered between two times in nanoseconds."""
        return int(np.diff(np.searchsorted(self._ends.newest(), times))[0])

    def are_crowded(self, share: float) -> bool:
        """Whether those that are unread or not durable yet take this share of their table."""
        return self._ring.head - self._ring.tail > share * self._ring.capacity

    def begin(self) -> None:
        """An anchor has been named."""
        self._gaps.clear()
        self.held_since = None

    def add(self, times: Integers, made: int, *, remembers: bool) -> None:
        """Count calls that were read, and note collectives since the last time.

        times: nanoseconds, ascending. made: calls, with those that were not read. remembers: whether they are of use.
        """
        self.calls_since += made
        before, self._noted = self._noted, self._ring.head
        if not remembers:
            return
        first = max(before, self._noted - MAX_POINTS, self._ring.tail)
        if self._noted > before:
            self._calls_each.append(self.calls_since / (self._noted - before))
            self.calls_since = 0
        if self._noted > first:
            self._ends.append(self._ring.records(first, self._noted)["exit_ns"].astype(np.int64))
        after, counts = np.unique(np.searchsorted(self._ends.newest(), times), return_counts=True)
        self._add_to_rounds(self._ends.dropped + after[after > 0], counts[after > 0])

    def _add_to_rounds(self, numbers: Integers, calls: Integers) -> None:
        """numbers: of the collective after each round, ascending. calls: in each."""
        if not len(numbers):
            return
        if self._rounds and self._rounds[-1][0] == numbers[0]:
            calls[0] += self._rounds.pop()[1]
        elif self._rounds:
            self._long = self._long.add(np.array([self._rounds[-1][1]]))
        self._long = self._long.add(calls[:-1])
        self._rounds.extend(zip(numbers.tolist(), calls.tolist(), strict=True))
        self._grown |= bool((calls > MIN_ITERATIONS).any())

    def _complete(self) -> list[int]:
        """Calls in each of the last rounds between two collectives."""
        end = self._ends.dropped + len(self._ends)
        return [calls for number, calls in self._rounds if number < end][-MIN_ROUNDS:]

    @property
    def are_rare(self) -> bool:
        """Whether there are as many calls between them as between some iterations."""
        return self._are_rare(self._ended)

    def _are_rare(self, ended: Rounds) -> bool:
        complete = self._complete()
        return (len(complete) == MIN_ROUNDS and min(complete) > MIN_ITERATIONS) or ended.are_most

    @property
    def are_surely_rare(self) -> bool:
        """Whether that has been so again and again."""
        return self._ended.number >= ENOUGH_ROUNDS

    @property
    def _ended(self) -> Rounds:
        """The rounds that have ended."""
        end = self._ends.dropped + len(self._ends)
        last = [calls for number, calls in list(self._rounds)[-1:] if number < end]
        return self._long.add(np.array(last, np.int64))

    def weigh(self, now: float, calls: int, *, may_search: bool) -> bool:
        """Whether iterations are to be sought that outnumber the collectives. Those are held back while it is likely.

        calls: how many are remembered.
        """
        since, self.held_since = self.held_since, None
        if self.rests(now) or not len(self._ends):
            return False
        if max(self._calls_each, default=0.0) <= MIN_CALLS and self.calls_since <= MIN_ITERATIONS:
            return False
        ended = self._ended
        are_rare = self._are_rare(ended)
        likely = self._grown or are_rare or (calls > MIN_ITERATIONS and not self._complete())
        self._grown = False
        since = now if since is None else since
        if not likely and self._recalls:
            return False  # what is told first is not told again: the next round may be one
        is_over = now - since > MAX_QUIET_SECONDS or (ended.number >= MIN_ROUNDS and not are_rare)
        if not likely or is_over or self.are_crowded(MAX_HELD):
            self.rest(now)
            return False
        self.held_since = since
        return are_rare and may_search

    def rests(self, now: float) -> bool:
        """Whether nothing is compared at this time."""
        return now < self._weighs_from

    def rest(self, now: float, *, searched: bool = False) -> None:
        """Compare nothing for a while."""
        self.held_since, self._weighs_from, self._long = None, now + self._rest, Rounds()
        if searched or self._rest < MAX_WEIGH_SECONDS:
            self._rest = min(2 * self._rest, self._longest_rest)

    def rest_shortly(self) -> None:
        """The next rest is a short one."""
        self._rest = WEIGH_SECONDS

    def are_outnumbered(self, times: Integers) -> bool:
        """Whether iterations that end at these times outnumber those that are remembered."""
        return outnumber(times, self._ends.newest())

    def are_checks(self, times: Integers) -> bool:
        """Whether iterations that end at these times have those that are remembered, but not all."""
        return are_checked(times, self._ends.newest())

    def forget(self) -> None:
        """Forget when they ended."""
        self._ends.clear()
        self._rounds.clear()
        self._long = Rounds()


def outnumber(times: Integers, points: Integers) -> bool:
    """Whether iterations that end at these times are many between collectives of all ranks, and alike in length.

    times, points: nanoseconds, ascending. Then the collectives are no ends of iterations: a program prints each tenth
    step. The passes of a solver through coarser and coarser grids are no iterations, nor are messages of several fields
    one after the other. It may be so of all rounds between collectives, or of the newest: the loop has begun with them.
    """
    numbers = np.searchsorted(points, times)
    found = np.unique(numbers[(numbers > 0) & (numbers < len(points))])
    if len(found) < MIN_ROUNDS:
        return False
    newest = [found[-max(int(share * len(found)), MIN_ROUNDS)] for share in SHARES]
    return any(_are_many(times[numbers >= first], numbers[numbers >= first], len(points)) for first in newest)


def are_checked(times: Integers, points: Integers) -> bool:
    """Whether each of many iterations that end at these times has one of these collectives, or several together, and
    there are many between two again and again: a program tests in each step whether there is more to do, but not soon
    after it had.

    times, points: nanoseconds, ascending.
    """
    numbers = np.searchsorted(points, times)
    counts = np.unique(numbers[(numbers > 0) & (numbers < len(points))], return_counts=True)[1]
    single, long = counts[counts == 1].sum(), counts[counts > MIN_ITERATIONS]
    enough = len(long) >= MIN_ROUNDS and min(single, long.sum()) >= MIN_CHECKED * counts.sum()
    return bool(enough and single + long.sum() >= MIN_IN_ROUNDS * counts.sum())


def _are_many(times: Integers, numbers: Integers, end: int) -> bool:
    """The same of all. numbers: collectives before each. end: all of these."""
    inner, seconds = numbers[1:] == numbers[:-1], np.diff(times)
    counts = np.unique(numbers[(numbers > 0) & (numbers < end)], return_counts=True)[1]
    if len(times) < MIN_RATIO * (numbers[-1] - numbers[0]):
        return False
    if counts[counts > MIN_ITERATIONS].sum() < MIN_IN_ROUNDS * counts.sum():
        return False
    usual = _usual(seconds, numbers)
    if usual[~inner].sum() > MAX_PAUSE_TIME * usual.sum():
        return False
    return bool(np.median(usual[inner]) >= MIN_REGULAR * usual[inner].mean())


def _usual(seconds: Integers, numbers: Integers) -> npt.NDArray[np.float64]:
    """What iterations at the same place of their rounds usually take: a rank that waits for a core is late anywhere.

    numbers: collectives before each end. That is the median of those as many after the begin of a round, if there are
    MIN_SAME.
    """
    begins = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    places = (np.arange(len(numbers)) - np.repeat(begins, np.diff(begins, append=len(numbers))))[1:]
    order = np.argsort(places, kind="stable")
    found = seconds.astype(np.float64)
    for at in np.split(order, np.flatnonzero(np.diff(places[order])) + 1):
        if len(at) >= MIN_SAME:
            found[at] = np.median(seconds[at])
    return found


def repeats(calls: Records, anchor: Anchor) -> bool:
    """Whether iterations consist of the same calls, with the same ranks and tags, as far as these are known.

    Those of a sweep through a grid do not: each has messages for some directions.
    """
    at = occurrences(calls, anchor)
    at = at[len(at) // 2 :]
    if len(at) < 2:
        return False
    segment = np.repeat(np.arange(len(at) - 1), np.diff(at))
    inner = calls[at[0] : at[-1]]
    exact = inner["site"].astype(np.int64) << 24 | inner["op"].astype(np.int64) << 16 | inner["detail"]
    of_ranks = inner["detail"] > 0
    if not of_ranks.any():
        return True
    keys, which, counts = np.unique(exact[of_ranks], return_inverse=True, return_counts=True)
    pairs = np.unique(which * len(at) + segment[of_ranks])
    presence = np.bincount(pairs // len(at), minlength=len(keys)) / (len(at) - 1)
    return bool(counts[presence >= RARE].sum() >= MIN_REPEATED * len(which))
