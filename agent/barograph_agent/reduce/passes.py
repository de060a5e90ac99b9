"""How often a program's loops have been passed through, where a pass has several intervals, or there are others."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_agent.loops.anchors import MAX_CALLS, MIN_ITERATIONS, find, occurrences
from barograph_agent.loops.newest import Newest
from barograph_agent.ring.reader import CALL, Records

SAME: Final = 0.02
"""Counts within this share of another one are equal, and those within EDGE: a loop is entered and left somewhere."""
EDGE: Final = 2
MIN_TIME: Final = 0.1
"""Share of the time in loops that ends at sites of one count, from which on that is one of a loop."""
MIN_SPAN: Final = 0.5
"""Share of that time from the first to the last of them."""
MAX_LOOPS: Final = 3
"""Loops in loops that are told."""
MAX_TOKENS: Final = 8192
"""Tokens that are counted; beyond that, one of each site and operation."""
HASH: Final = 0x9E37_79B9_7F4A_7C15
ITERATIONS: Final = 0x8000
"""Added to the site of iterations: those between collectives may end at the same one."""


class Passes:
    """Counts and times of the intervals of one rank by the token at their end: site, operation and bytes.

    By classes, which have the site before too, a branch in the loop would make several of an end that comes once. All
    calls of Python have one site: of the newest intervals the loop is sought as in calls, where bytes tell them apart.
    """

    def __init__(self) -> None:
        self._tokens: dict[int, list[float]] = {}
        """Of each its count and seconds, and the time of all intervals before its first one and until its last one."""
        self._ends = Newest(MAX_CALLS, CALL)
        self._seconds = 0.0

    def add(self, records: Records, is_iteration: npt.NDArray[np.bool_], seconds: npt.NDArray[np.float64]) -> None:
        """Intervals that end so, in order, and have taken so long."""
        ends = np.zeros(len(records), CALL)
        ends["exit_ns"], ends["op"] = records["exit_ns"], records["op"]
        ends["site"] = records["site"] + ITERATIONS * is_iteration
        sizes = np.where(is_iteration, 0, records["bytes"]).astype(np.uint64)  # iterations have one anchor
        ends["detail"] = sizes * np.uint64(HASH) >> np.uint64(48)
        self._ends.append(ends)
        until = self._seconds + np.cumsum(seconds)
        tokens, first, which = np.unique(_tokens(ends), return_index=True, return_inverse=True)
        last = len(ends) - 1 - np.unique(which[::-1], return_index=True)[1]
        counts, sums = np.bincount(which), np.bincount(which, seconds)
        for number, token in enumerate(tokens.tolist()):
            one = token if token in self._tokens or len(self._tokens) < MAX_TOKENS else token & ~0xFFFF
            known = self._tokens.setdefault(one, [0, 0.0, until[first[number]] - seconds[first[number]], 0.0])
            known[0] += int(counts[number])
            known[1] += sums[number]
            known[3] = until[last[number]]
        self._seconds = float(until[-1]) if len(until) else self._seconds

    def numbers(self) -> list[int]:
        """Passes of the loops, the most first; none if there is none, or each interval is a pass.

        Of loops in loops those that last and that much time ends in, and the one that is told as from calls.

        >>> passes = Passes()
        >>> records = np.zeros(301, [("exit_ns", "u8"), ("site", "u4"), ("op", "u2"), ("bytes", "u8")])
        >>> records["site"], records["exit_ns"] = [1, *[2, 3, 4] * 100], np.arange(301)
        >>> passes.add(records, np.zeros(301, bool), np.ones(301))
        >>> passes.numbers()
        [100]
        """
        tokens = np.array(list(self._tokens), np.int64)
        rows = np.array(list(self._tokens.values())).reshape(-1, 4)
        sites, which = np.unique(tokens >> 16, return_inverse=True)
        counts, seconds = (np.bincount(which, rows[:, column], len(sites)) for column in (0, 1))
        first, last = np.full(len(sites), math.inf), np.zeros(len(sites))
        np.minimum.at(first, which, rows[:, 2])
        np.maximum.at(last, which, rows[:, 3])
        total, loops = counts.sum(), counts > MIN_ITERATIONS
        spans = (last - first)[loops] >= MIN_SPAN * (last[loops].max(initial=0) - first[loops].min(initial=math.inf))
        counts, seconds = counts[loops], seconds[loops]
        same = np.abs(counts - counts[:, None]) <= np.maximum(SAME * counts, EDGE)[:, None]
        times = np.where(spans, same @ seconds, 0)
        found = [int(counts[one].max()) for one in same[times >= MIN_TIME * max(seconds.sum(), 1e-9)]]
        ends = self._ends.newest()
        if len(sites[loops]):
            # What comes after the loop that most time ends in is another one.
            at_most = ends["site"] == int(sites[loops][seconds.argmax()]) >> 16
            ends = ends[: int(np.flatnonzero(at_most).max(initial=-1)) + 1]
        if anchor := find(ends):
            shift = 0 if anchor.match else 16
            chosen = _tokens(ends[occurrences(ends, anchor._replace(every=1))]) >> shift
            found.append(int(rows[np.isin(tokens >> shift, chosen), 0].sum()) // anchor.every)
        known: list[int] = []
        for one in sorted(found, reverse=True):
            if MIN_ITERATIONS < one < (1 - SAME) * total and not (known and one >= (1 - SAME) * known[-1] - EDGE):
                known.append(one)
        return known[:MAX_LOOPS]


def _tokens(ends: Records) -> npt.NDArray[np.int64]:
    """Site, operation and bytes of each."""
    found: npt.NDArray[np.int64] = ends["site"].astype(np.int64) << 32
    found |= ends["op"].astype(np.int64) << 16 | ends["detail"]
    return found
