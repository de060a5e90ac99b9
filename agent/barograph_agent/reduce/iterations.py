"""Statistics of the iterations of the ranks of one world on this node, over ranges of time: rows of `node_blocks`.

Ranks that exchange messages make as many iterations in any seconds, so they are compared over the same seconds: a range
is 2^m ticks (TICK_US) of Unix time from a multiple of 2^m on. Ranges of nodes nest for any m, as blocks of sync points
do.

Ranks that make fewer or more iterations than most, with another anchor, are not compared: a master, or ranks that do
other work. Workers that are given tasks have the same anchor, and are compared by a task.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from barograph_agent.loops.arrays import median
from barograph_agent.protocol.tables import ITERATIONS
from barograph_agent.reduce.ranks import Member
from barograph_agent.ring.reader import Records

TICK_US: Final = 16
"""Length of a tick in microseconds: numbers of a day's ticks fit into the log."""
RANGE_SECONDS: Final = 2.0
"""Length of a range, as of a block of sync points."""
MIN_COUNT: Final = 8
"""Iterations in a range of long ones."""
GRACE_SECONDS: Final = 2.0
"""Time for which the last iteration of a range is awaited from the other ranks."""
ALIKE: Final = 0.1
"""Share, or one, by which numbers of iterations of like ranks differ at most."""
MAX_RATIO: Final = 4.0
"""Ratio of these numbers of ranks with the same anchor: a worker whose tasks take longer is given fewer."""

Floats = npt.NDArray[np.float64]


class IterationReducer:
    """Reads the iterations in the rings of one world's ranks on this node, starting at their cursors."""

    def __init__(self, world: int, members: list[Member]) -> None:
        self._world = ITERATIONS + world
        self._members = sorted(members, key=lambda member: member.cursor.rank)
        self._count = self._until = 0
        self._limits: Mapping[Path, int] = {}

    def pop_count(self) -> int:
        """Iterations of a rank since the last call."""
        found, self._count = self._count, 0
        return found

    def read(self, limits: Mapping[Path, int], *, final: bool) -> list[dict[str, Any]]:
        """Complete ranges as rows of `node_blocks` (without job and host). Advances the cursors.

        limits: the iterations of each ring that may be read. Raises RingError if a ring is inconsistent.
        """
        rows: list[dict[str, Any]] = []
        self._limits = limits
        while found := self._range(final=final):
            self._until = sum(found)
            if row := self._row(*found):
                rows.append(row)
        return rows

    def _head(self, member: Member) -> int:
        return min(member.ring.iterations.head, self._limits.get(member.ring.path, 0))

    def _range(self, *, final: bool) -> tuple[int, int] | None:
        """Begin and length of the next range that is complete, in ticks."""
        unread = [member for member in self._members if self._head(member) > _position(member)]
        if not unread:
            return None
        firsts = [_exit_tick(member, _position(member)) for member in unread]
        lasts = [_exit_tick(member, self._head(member) - 1) for member in unread]
        at, until = min(firsts), max(lasts)
        length = _length(*max((self._head(m) - _position(m), until - at) for m in unread), unread)
        # No part of an earlier range, also where iterations have become longer, or come late.
        free = max(self._until, *(_read_tick(member) + 1 for member in self._members))
        at = max(at, free)
        while at // length * length < free:
            length //= 2
        begin = at // length * length
        end = begin + length
        is_full = any(self._head(m) - _position(m) > m.ring.iterations.capacity // 2 for m in unread)
        has_all = len(unread) == len(self._members) and min(lasts) >= end
        if not (final or is_full) and any(self._head(m) < m.ring.iterations.head for m in self._members):
            return None  # those of some ranks are held back
        if final or is_full or has_all or until >= end + GRACE_SECONDS * 1e6 / TICK_US:
            return begin, length
        return None

    def _row(self, begin: int, length: int) -> dict[str, Any] | None:
        ranks, sums, ended, anchors = [], [], [], []
        for member in self._members:
            records, previous = _take(member, self._head(member), begin + length)
            found = _sums(records, previous)
            if found[0]:
                ranks.append(member.cursor.rank)
                sums.append(found)
                anchors.append(member.ring.site(int(records[-1]["site"])))
                ended.append(_unix_us(member, int(records[-1]["exit_ns"])))
        if not ranks or self._members[0].cursor.size < 2:
            return None
        count, own, wait = np.array(sums).T
        alike = _alike(count, anchors)
        typical = median(count[alike])
        self._count += round(typical)
        ranks = [rank for rank, one in zip(ranks, alike.tolist(), strict=True) if one]
        # As if each had made as many.
        own, wait = (values[alike] * typical / count[alike] for values in (own, wait))
        order = np.argsort(wait, kind="stable")
        late = float(wait[order[1]] - wait[order[0]]) if len(order) > 1 else 0.0
        busiest = int(own.argmax())
        return {
            "world": self._world,
            "ranks": len(ranks),
            "first_index": begin,
            "length": length,
            "count": max(round(typical), 1),
            "last_rank": ranks[order[0]],
            "last_count": max(round(typical), 1),
            "late_seconds": late,
            "own_rank": ranks[busiest],
            "own_rank_seconds": float(own[busiest]),
            "own_seconds": float(own.sum()),
            "p2p_seconds": 0.0,
            "wait_seconds": float(wait.sum()),
            "least_wait_seconds": float(wait.min()),
            "ended_at": max(ended) * 1e-6,
        }


def _alike(count: Floats, anchors: list[str]) -> npt.NDArray[np.bool_]:
    """The largest set of ranks that are like one of them, by their numbers of iterations and their anchors."""
    near = np.abs(count[:, None] - count) <= np.maximum(ALIKE * count, 1.0)[:, None]
    ratio = count[:, None] / count
    same = np.array([[one == other for other in anchors] for one in anchors])
    near |= same & (ratio <= MAX_RATIO) & (ratio >= 1 / MAX_RATIO)
    return np.asarray(near[int(near.sum(axis=1).argmax())], bool)


def _length(count: int, ticks: int, members: list[Member]) -> int:
    """A power of two: some seconds, or more for MIN_COUNT iterations, but no more than fit into a quarter of a ring."""
    each = max(ticks / count, 1.0)
    most = min(member.ring.iterations.capacity for member in members) / 4 * each
    wanted = min(max(RANGE_SECONDS * 1e6 / TICK_US, MIN_COUNT * each), most)
    return 1 << max(int(wanted).bit_length() - 1, 0)


def _position(member: Member) -> int:
    return max(member.cursor.node_iteration, member.ring.iterations.tail)


def _unix_us(member: Member, exit_ns: int) -> int:
    ring = member.ring
    return (exit_ns - ring.started_ns + ring.started_unix_ns) // 1000


def _exit_tick(member: Member, position: int) -> int:
    return _unix_us(member, int(member.ring.iterations.records(position, position + 1)[0]["exit_ns"])) // TICK_US


def _read_tick(member: Member) -> int:
    """When the last iteration ended that was read, -1 if it is not there any more."""
    position = _position(member)
    return _exit_tick(member, position - 1) if position > member.ring.iterations.tail else -1


def _take(member: Member, head: int, end: int) -> tuple[Records, Records]:
    """The unread iterations before number `head` that end before this tick, and the one before them if it is there."""
    ring, cursor = member
    position = _position(member)
    first = max(position - 1, ring.iterations.tail)
    records = ring.iterations.records(first, max(head, first))
    ends = (records["exit_ns"].astype(np.int64) - ring.started_ns + ring.started_unix_ns) // (1000 * TICK_US)
    stop = max(int(np.searchsorted(ends, end)), position - first)
    cursor.node_iteration = first + stop
    return records[position - first : stop], records[: position - first]


def _sums(records: Records, previous: Records) -> tuple[int, float, float]:
    """Iterations whose begin is known, their own work, and their time in MPI, in seconds."""
    both = np.concatenate([previous, records])
    follows = np.diff(both["index"].astype(np.int64)) == 1
    exits, enters = both["exit_ns"].astype(np.int64), both["enter_ns"].astype(np.int64)
    gap = (enters[1:] - exits[:-1])[follows]
    p2p = both["p2p_ns"].astype(np.int64)[1:][follows]
    wait = (exits - enters)[1:][follows]
    return len(gap), float((gap - p2p).sum()) * 1e-9, float((p2p + wait).sum()) * 1e-9
