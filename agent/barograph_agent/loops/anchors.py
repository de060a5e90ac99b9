"""The anchor of a loop: a call that ends each of its iterations."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from barograph_agent.loops.arrays import distinct, median
from barograph_agent.loops.tokens import MIN_ITERATIONS, RARE, Integers, Tokens, value_of
from barograph_agent.ring.reader import Records

MAX_CALLS: Final = 16_384
"""Newest calls in which an anchor is sought, which takes some 10 ms."""
SHARES: Final = (1.0, 0.25)
"""Parts of the calls, the newest, that are tried: the loop may have begun with them."""
MIN_PAUSE: Final = 3.0
"""Calls between two occurrences of an anchor, in multiples of the usual number, that interrupt its loop."""
MIN_PAUSES: Final = 2
MAX_PAUSE_TIME: Final = 0.4
"""Share of the time in MIN_PAUSES or more after which a loop is part of another one."""
MIN_REPEATED: Final = 0.1
"""Share of the calls that come in most iterations with the same rank and tag."""


class Anchor(NamedTuple):
    """A call that ends an iteration. The fields are those of `Want`."""

    op: int
    site: int
    match: int = 0
    value: int = 0
    every: int = 1


def find(calls: Records) -> Anchor | None:
    """The anchor of the loop in these calls of one rank, in order; None if there is none.

    A loop that is part of another one is the last choice.
    """
    inner = None
    for share in SHARES:
        part = calls[-max(int(len(calls) * share), 1) :]
        anchor = _anchor_of(part) if len(part) >= MIN_ITERATIONS else None
        if anchor is not None and not is_inner(calls, anchor):
            return anchor
        inner = inner or anchor
    return inner


def _anchor_of(calls: Records) -> Anchor | None:
    """The anchor by segments, or by the period if that has many of them."""
    tokens = Tokens(calls)
    token, periodic = tokens.by_segments(), tokens.by_period()
    segments = None if token is None else Anchor(*tokens.key(token))
    period = None if periodic is None else Anchor(*tokens.key(periodic[0]), every=periodic[1])
    if not segments or not period:
        return segments or period
    has_many = len(occurrences(calls, period)) > MIN_ITERATIONS * len(occurrences(calls, segments))
    return period if has_many and not is_inner(calls, period) else segments


def is_inner(calls: Records, anchor: Anchor) -> bool:
    """Whether the loop of this anchor is likely a part of another one.

    It is interrupted again and again, for a large part of the time, as a sweep through a grid that is followed by
    another one.
    """
    at = occurrences(calls, anchor)
    if len(at) < MIN_ITERATIONS:
        return False
    gaps = np.diff(at)
    pauses = gaps > MIN_PAUSE * median(gaps)
    seconds = np.diff(calls["exit_ns"][at].astype(np.int64))
    return bool(pauses.sum() >= MIN_PAUSES and seconds[pauses].sum() > MAX_PAUSE_TIME * seconds.sum())


def occurrences(calls: Records, anchor: Anchor) -> Integers:
    """Positions of the calls that end an iteration."""
    is_anchor = (calls["op"] == anchor.op) & (calls["site"] == anchor.site)
    if anchor.match:
        is_anchor &= value_of(calls, anchor.match) == anchor.value
    return np.flatnonzero(is_anchor).astype(np.int64)[anchor.every - 1 :: anchor.every]


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
    pairs = distinct(which * len(at) + segment[of_ranks])
    presence = np.bincount(pairs // len(at), minlength=len(keys)) / (len(at) - 1)
    return bool(counts[presence >= RARE].sum() >= MIN_REPEATED * len(which))
