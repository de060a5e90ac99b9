"""Collectives of all ranks as one rank makes them, and whether many iterations are between them."""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_agent.loops.anchors import MAX_PAUSE_TIME, SHARES
from barograph_agent.loops.arrays import distinct, median, newest
from barograph_agent.loops.tokens import MIN_ITERATIONS
from barograph_agent.ring.reader import Ring

MIN_QUIET_SECONDS: Final = 6.0
"""Time without a collective after which iterations are the intervals: the first seconds may be those of one sweep."""
QUIET_GAPS: Final = 4.0
"""The same in multiples of the median time between the last GAPS collectives."""
MAX_QUIET_SECONDS: Final = 30.0
"""Upper limit of that time."""
GAPS: Final = 3
MAX_POINTS: Final = 4096
"""Collectives that are remembered."""
MIN_ROUNDS: Final = 2
"""Rounds of iterations between two collectives after which collectives may be absorbed."""
RECENT_ROUNDS: Final = 8
MIN_SHARE: Final = 0.85
"""Share of iterations in rounds of more than MIN_ITERATIONS."""
MIN_RATIO: Final = 2.0
"""Iterations for each collective between the first and the last iteration."""
MIN_REGULAR: Final = 0.5
"""Median time of iterations as a share of their mean: levels of a multigrid solver are less alike."""
MIN_SAME: Final = 3
"""Iterations at the same place of a round of which the median counts."""

Integers = npt.NDArray[np.int64]


class Rounds(NamedTuple):
    """Calls between two collectives. long: rounds of more than MIN_ITERATIONS calls."""

    long: int
    are_recent: bool
    """Whether one of the last RECENT_ROUNDS is long."""
    last: int
    """Calls since the last collective."""


class Collectives:
    """Collectives of one ring. `read` is called once in each step."""

    def __init__(self, ring: Ring) -> None:
        self._ring, self._head = ring, ring.tail
        self._changed_at = -math.inf
        self._gaps: deque[float] = deque(maxlen=GAPS)
        self._ends: Integers = np.empty(0, np.int64)
        self._rounds_from = 0
        self.steps = 0
        """Steps in a row in which a collective came."""

    def read(self, now: float, *, remembers: bool) -> None:
        """Note collectives since the last step. remembers: whether their ends are of use. Raises RingError."""
        head = self._ring.head
        if self._changed_at == -math.inf:
            self._changed_at = now
        elif head != self._head:
            self._gaps.append(now - self._changed_at)
            self._changed_at = now
        if head == self._head:
            self.steps = 0
            return
        self.steps += 1
        if remembers:
            first = max(self._head, head - MAX_POINTS, self._ring.tail)
            ends = self._ring.records(first, head)["exit_ns"].astype(np.int64)
            self._ends = newest(self._ends, ends, MAX_POINTS)
        self._head = head

    def is_quiet(self, now: float) -> bool:
        """Whether no collective has come for longer than is usual."""
        typical = sorted(self._gaps)[GAPS // 2] if len(self._gaps) == GAPS else 0.0
        return self.quiet_seconds(now) >= min(max(QUIET_GAPS * typical, MIN_QUIET_SECONDS), MAX_QUIET_SECONDS)

    def quiet_seconds(self, now: float) -> float:
        """Time without a collective."""
        return now - self._changed_at

    @property
    def are_regular(self) -> bool:
        """Whether GAPS collectives have come since `restart`, at most MAX_QUIET_SECONDS apart."""
        return len(self._gaps) == GAPS and max(self._gaps) < MAX_QUIET_SECONDS

    def restart(self) -> None:
        """Begin to measure the time between collectives anew."""
        self._gaps.clear()

    def restart_rounds(self) -> None:
        """Count rounds from the last collective on."""
        self._rounds_from = int(self._ends[-1:].max(initial=0))

    def fill(self, share: float) -> bool:
        """Whether unreleased collectives fill more than this share of their table."""
        return self._ring.head - self._ring.tail > share * self._ring.capacity

    def rounds(self, times: Integers) -> Rounds:
        """Rounds since `restart_rounds`. times: ends of calls, nanoseconds, ascending."""
        ends = self._ends
        ends = ends[np.searchsorted(ends, self._rounds_from) :]
        times = times[np.searchsorted(times, self._rounds_from, "right") :]
        counts = np.bincount(np.searchsorted(ends, times), minlength=len(ends) + 1)
        long = counts > MIN_ITERATIONS
        return Rounds(int(long[1:-1].sum()), bool(long[-RECENT_ROUNDS:].any()), int(counts[-1]))

    def between(self, first_ns: int, last_ns: int) -> int:
        """Remembered collectives between two times."""
        return int(np.diff(np.searchsorted(self._ends, [first_ns, last_ns]))[0])

    def are_outnumbered(self, times: Integers) -> bool:
        """Whether iterations that end at these times outnumber the remembered collectives."""
        return outnumber(times, self._ends)


def outnumber(times: Integers, points: Integers) -> bool:
    """Whether many iterations, alike in length, are between collectives, so that these end none.

    times: ends of iterations; points: of collectives; nanoseconds, ascending. All rounds between collectives count, or
    the newest quarter where the loop has begun late.
    """
    numbers = np.searchsorted(points, times)
    rounds = distinct(numbers[(numbers > 0) & (numbers < len(points))])
    if len(rounds) < MIN_ROUNDS:
        return False
    newest = [rounds[-max(int(share * len(rounds)), MIN_ROUNDS)] for share in SHARES]
    return any(_are_many(times[numbers >= first], numbers[numbers >= first], len(points)) for first in newest)


def _are_many(times: Integers, numbers: Integers, end: int) -> bool:
    """The criterion for some rounds. numbers: collectives before each iteration. end: all collectives."""
    counts = np.unique(numbers[(numbers > 0) & (numbers < end)], return_counts=True)[1]
    if len(times) < MIN_RATIO * (numbers[-1] - numbers[0]):
        return False
    if counts[counts > MIN_ITERATIONS].sum() < MIN_SHARE * counts.sum():
        return False
    inner, usual = numbers[1:] == numbers[:-1], _usual(np.diff(times), numbers)
    if usual[~inner].sum() > MAX_PAUSE_TIME * usual.sum():
        return False
    return bool(median(usual[inner]) >= MIN_REGULAR * usual[inner].mean())


def _usual(seconds: Integers, numbers: Integers) -> npt.NDArray[np.float64]:
    """Usual time of iterations, by their place in a round: a rank that waits for a core is late anywhere.

    numbers: collectives before each end. Of MIN_SAME iterations or more at the same place the median counts.
    """
    begins = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    places = (np.arange(len(numbers)) - np.repeat(begins, np.diff(begins, append=len(numbers))))[1:]
    order = np.argsort(places, kind="stable")
    usual = seconds.astype(np.float64)
    for at in np.split(order, np.flatnonzero(np.diff(places[order])) + 1):
        if len(at) >= MIN_SAME:
            usual[at] = median(seconds[at])
    return usual
