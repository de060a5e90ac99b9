"""How often a program's loops have been passed through, where a pass has several intervals, or there are others."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

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
MIN_OUTER_TIME: Final = 0.02
"""The same of the loop around all others: of time steps, most time is in the solvers that they have."""
MIN_SPAN: Final = 0.5
"""Share of that time from the first to the last of them."""
MAX_LOOPS: Final = 3
"""Loops in loops that are told: the inner ones, and the one around all, which is that of time steps."""
MAX_TOKENS: Final = 8192
"""Tokens that are counted; beyond that, one of each site and operation."""
HASH: Final = 0x9E37_79B9_7F4A_7C15
ITERATIONS: Final = 0x8000
"""Added to the site of iterations: those between collectives may end at the same one."""
FIRST_ITERATION: Final = ITERATIONS << 32
"""Tokens of iterations are not below it."""

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Passes:
    """Counts and times of the intervals of one rank by the token at their end: site, operation and bytes.

    By classes, which have the site before too, a branch in the loop would make several of an end that comes once. All
    calls of Python have one site: of the newest intervals the loop is sought as in calls, where bytes tell them apart.
    """

    def __init__(self) -> None:
        self._tokens = np.empty(0, np.int64)
        """Those that have come, ascending."""
        self._rows = np.empty((4, 0))
        """Counts and seconds of each, and the time of all intervals before its first one and until its last one."""
        self._ends = Newest(MAX_CALLS, CALL)
        self._seconds = 0.0

    def add(self, records: Records, is_iteration: npt.NDArray[np.bool_], seconds: Floats) -> None:
        """Intervals that end so, in order, and have taken so long."""
        if not len(records):
            return
        ends = np.zeros(len(records), CALL)
        ends["exit_ns"], ends["op"] = records["exit_ns"], records["op"]
        ends["site"] = records["site"] + ITERATIONS * is_iteration
        sizes = np.where(is_iteration, 0, records["bytes"]).astype(np.uint64)  # iterations have one anchor
        ends["detail"] = sizes * np.uint64(HASH) >> np.uint64(48)
        self._ends.append(ends)
        until = self._seconds + np.cumsum(seconds)
        which = self._places(_tokens(ends), until - seconds)
        self._rows[0] += np.bincount(which, minlength=len(self._tokens))
        self._rows[1] += np.bincount(which, seconds, len(self._tokens))
        self._rows[3][which] = until  # of equal ones, the last one that is assigned stays
        self._seconds = float(until[-1])

    def _places(self, tokens: Integers, begins: Floats) -> Integers:
        """Where these are among all tokens. Those that are new become some. begins: time before each."""
        new = ~self._are_known(tokens)
        if new.any():
            if len(self._tokens) + len(np.unique(tokens[new])) > MAX_TOKENS:
                tokens = np.where(new, tokens & ~0xFFFF, tokens)
                new = ~self._are_known(tokens)
            fresh, first = np.unique(tokens[new], return_index=True)
            rows = np.zeros((4, len(fresh)))
            rows[2] = begins[new][first]
            at = np.searchsorted(self._tokens, fresh)
            self._tokens, self._rows = np.insert(self._tokens, at, fresh), np.insert(self._rows, at, rows, axis=1)
        return np.searchsorted(self._tokens, tokens).astype(np.int64)

    def _are_known(self, tokens: Integers) -> npt.NDArray[np.bool_]:
        at = np.searchsorted(self._tokens, tokens)
        found: npt.NDArray[np.bool_] = np.append(self._tokens, -1)[at] == tokens
        return found

    def numbers(self, around: Passes | None = None, checked: int = 0) -> list[int]:
        """Passes of the loops, the most first; none if there is none, or each interval is a pass.

        Of loops in loops those that last and that much time ends in, and the one that is told as from calls.
        around: the same of all collectives, where those between iterations are no ends of intervals. checked:
        iterations, where collectives that some of them have are the ends.

        >>> passes = Passes()
        >>> records = np.zeros(301, [("exit_ns", "u8"), ("site", "u4"), ("op", "u2"), ("bytes", "u8")])
        >>> records["site"], records["exit_ns"] = [1, *[2, 3, 4] * 100], np.arange(301)
        >>> passes.add(records, np.zeros(301, bool), np.ones(301))
        >>> passes.numbers()
        [100]
        """
        limit, found = (1 - SAME) * self._rows[0].sum(), self._found(self._tokens >= 0)
        if around is not None and (others := around._found(around._tokens < FIRST_ITERATION)):
            limit, found = math.inf, [int(self._rows[0, self._tokens >= FIRST_ITERATION].sum()), *others]
        if checked:
            limit, found = math.inf, [checked, *found]
        known: list[int] = []
        for one in sorted(found, reverse=True):
            if MIN_ITERATIONS < one < limit and not (known and one >= (1 - SAME) * known[-1] - EDGE):
                known.append(one)
        return known if len(known) <= MAX_LOOPS else [*known[: MAX_LOOPS - 1], known[-1]]

    def _found(self, kept: npt.NDArray[np.bool_]) -> list[int]:
        """Passes of the loops of these tokens."""
        tokens, rows, ends = self._tokens[kept], self._rows[:, kept], self._ends.newest()
        sites = _sites(tokens, rows)
        ends = ends[np.isin(_tokens(ends) >> 16, tokens >> 16)]
        return _by_counts(sites) + _by_calls(tokens, rows[0], _until_most(sites, ends))


class _Sites(NamedTuple):
    """Sites, with their operations, at which more than MIN_ITERATIONS intervals end."""

    keys: Integers
    counts: Floats
    seconds: Floats
    first: Floats
    last: Floats


def _sites(tokens: Integers, rows: Floats) -> _Sites:
    """rows: of each token."""
    keys, which = np.unique(tokens >> 16, return_inverse=True)
    counts: Floats = np.bincount(which, rows[0], len(keys)).astype(float)
    seconds: Floats = np.bincount(which, rows[1], len(keys)).astype(float)
    first, last = np.full(len(keys), math.inf), np.zeros(len(keys))
    np.minimum.at(first, which, rows[2])
    np.maximum.at(last, which, rows[3])
    loops = counts > MIN_ITERATIONS
    return _Sites(keys[loops], counts[loops], seconds[loops], first[loops], last[loops])


def _by_counts(sites: _Sites) -> list[int]:
    """Counts of sites that come equally often, where these last and much time ends in them."""
    if not len(sites.keys):
        return []
    same = np.abs(sites.counts - sites.counts[:, None]) <= np.maximum(SAME * sites.counts, EDGE)[:, None]
    lasts = sites.last - sites.first >= MIN_SPAN * (sites.last.max() - sites.first.min())
    outermost = same[sites.counts[lasts].argmin()] if lasts.any() else lasts
    shares = np.where(lasts, same @ sites.seconds, 0) / max(sites.seconds.sum(), 1e-9)
    return [int(sites.counts[one].max()) for one in same[shares >= np.where(outermost, MIN_OUTER_TIME, MIN_TIME)]]


def _until_most(sites: _Sites, ends: Records) -> Records:
    """These until the last one at the site that most time ends in: what comes after that loop is another one."""
    if not len(sites.keys):
        return ends
    at_most = _tokens(ends) >> 16 == sites.keys[sites.seconds.argmax()]
    return ends[: int(np.flatnonzero(at_most).max(initial=-1)) + 1]


def _by_calls(tokens: Integers, counts: Floats, ends: Records) -> list[int]:
    """The count of the loop in these ends, found as in calls."""
    anchor = find(ends)
    if anchor is None:
        return []
    shift = 0 if anchor.match else 16
    chosen = _tokens(ends[occurrences(ends, anchor._replace(every=1))]) >> shift
    return [int(counts[np.isin(tokens >> shift, chosen)].sum()) // anchor.every]


def _tokens(ends: Records) -> Integers:
    """Site, operation and bytes of each."""
    found: Integers = ends["site"].astype(np.int64) << 32
    found |= ends["op"].astype(np.int64) << 16 | ends["detail"]
    return found
