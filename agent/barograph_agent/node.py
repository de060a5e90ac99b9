"""What the ranks of one world did on this node: who came last, who worked most, reduced over runs of sync points.

Sync point i is the same collective on every rank, so ranks and nodes are aligned by its number and not by clocks.
Ranks of one node share a clock; nodes are compared by how long their last rank still waited: nobody waits for the node
that everybody waits for.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_agent.harvest import Cursor
from barograph_agent.ring import Ring, RingError

BLOCK_SECONDS: Final = 2.0
LONGEST: Final = 8192
"""Sync points in a block at most; also a quarter of a ring's records, so that none ever waits for its ring to fill."""

Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Member(NamedTuple):
    """One rank's ring, and how far it was read."""

    ring: Ring
    cursor: Cursor


class Node:
    """The ranks of one world on this node, read together from their cursors."""

    def __init__(self, world: int, members: list[Member]) -> None:
        self._world = world
        self._members = sorted(members, key=lambda member: member.cursor.rank)

    def take(self, *, final: bool) -> list[dict[str, Any]]:
        """Blocks that are complete by now, as rows of `node_blocks` (without job and host); the cursors move on.

        A block is 2^m sync points and begins at a multiple of 2^m, so blocks of different nodes nest, whatever m each
        had found right. It is taken once it spans BLOCK_SECONDS, or as many as LONGEST, or at the end of the run.
        Raises RingError where a ring contradicts itself.
        """
        rows = []
        while (at := self._align()) is not None and (length := self._due(at, final)):
            seen = [_read(member, at, length) for member in self._members]
            if known := self._row(at, length, *(np.stack(parts) for parts in zip(*seen, strict=True))):
                rows.append(known)
        return rows

    def _align(self) -> int | None:
        """The next sync point that every ring has, with all cursors at it; None while a ring has no more."""
        at = 0
        while True:
            aligned = True
            for ring, cursor in self._members:
                cursor.looked_at = max(cursor.looked_at, ring.tail)
                if cursor.looked_at >= ring.head:
                    self._leave_behind()
                    return None
                index = _index(ring, cursor.looked_at)
                cursor.looked_at = min(cursor.looked_at + max(at - index, 0), ring.head)
                aligned &= index == at
                at = max(at, index)
            if aligned:
                return at

    def _leave_behind(self) -> None:
        """Where one rank has stopped, the rings of the others are not let fill up until it goes on."""
        for ring, cursor in self._members:
            cursor.looked_at = max(cursor.looked_at, ring.head - ring.capacity // 2)

    def _due(self, at: int, final: bool) -> int:
        """Length of the block that begins at sync point `at`, 0 where it is not complete."""
        ready = min(_index(ring, ring.head - 1) for ring, _ in self._members) + 1 - at
        longest = min(LONGEST, *(ring.capacity // 4 for ring, _ in self._members))
        full = any(ring.head - cursor.looked_at > ring.capacity // 2 for ring, cursor in self._members)
        if ready <= 0 or not (final or full or ready >= longest or self._span() >= BLOCK_SECONDS):
            return 0
        return min(1 << (min(ready, longest).bit_length() - 1), (at & -at) or longest)

    def _span(self) -> float:
        """Seconds that the unread records of one of the rings took: all are the same sync points."""
        ring, cursor = self._members[0]
        places = max(cursor.looked_at - 1, ring.tail), ring.head - 1
        begin, end = (int(ring.records(at, at + 1)["exit_ns"][0]) for at in places)
        return (end - (begin if cursor.looked_at else ring.started_ns)) * 1e-9

    def _row(
        self, at: int, length: int, known: Flags, enter: Times, exits: Times, gap: Times, p2p: Times
    ) -> dict[str, Any] | None:
        """Arrays of ranks x sync points; nanoseconds."""
        whole = known.all(axis=0)
        if not whole.any():
            return None
        enter, exits, gap, p2p = (part[:, whole] for part in (enter, exits, gap, p2p))
        own, wait = gap - p2p, exits - enter
        ranks = [member.cursor.rank for member in self._members]
        order = np.sort(enter, axis=0)
        late = order[-1] - order[-2] if len(ranks) > 1 else np.zeros(enter.shape[1], np.int64)
        last = enter.argmax(axis=0)
        times_last = np.bincount(last, minlength=len(ranks))
        latest, busiest = int(times_last.argmax()), int(own.sum(axis=1).argmax())
        ring = self._members[0].ring
        return {
            "world": self._world,
            "ranks": len(ranks),
            "first_index": at,
            "length": length,
            "count": int(whole.sum()),
            "last_rank": ranks[latest],
            "last_count": int(times_last[latest]),
            "late_seconds": float(late[last == latest].sum()) * 1e-9,
            "own_rank": ranks[busiest],
            "own_rank_seconds": float(own[busiest].sum()) * 1e-9,
            "own_seconds": float(own.sum()) * 1e-9,
            "p2p_seconds": float(p2p.sum()) * 1e-9,
            "wait_seconds": float(wait.sum()) * 1e-9,
            "least_wait_seconds": float(wait.min(axis=0).sum()) * 1e-9,
            "ended_at": (int(exits[0].max()) - ring.started_ns + ring.started_unix_ns) * 1e-9,
        }


def _index(ring: Ring, position: int) -> int:
    """Which sync point record `position` is: as many as were dropped before it are missing."""
    return int(ring.records(position, position + 1)["index"][0]) if ring.dropped else position


def _read(member: Member, at: int, length: int) -> tuple[Flags, Times, Times, Times, Times]:
    """known, enter, exit, gap and point-to-point time of sync points at..at+length-1; the cursor moves behind them."""
    ring, cursor = member
    # One more in front: the gap begins where the sync point before ended.
    begin = max(cursor.looked_at - 1, ring.tail)
    records = ring.records(begin, min(cursor.looked_at + length, ring.head))
    index = records["index"].astype(np.int64)
    fresh_from = cursor.looked_at - begin
    if index[fresh_from] != at:
        raise RingError(f"ring {ring.path}: record {cursor.looked_at} is number {index[fresh_from]}, expected {at}")
    times = np.stack([records[name].astype(np.int64) for name in ("enter_ns", "exit_ns", "exit_ns", "p2p_ns")])
    before = np.append(ring.started_ns, times[1, :-1])
    times[2] = times[0] - before
    inside = (index >= at) & (index < at + length)
    fresh = (np.diff(index, prepend=-1) == 1) & inside
    cursor.looked_at += int((index[fresh_from:] < at + length).sum())
    known, out = np.zeros(length, bool), np.zeros((4, length), np.int64)
    known[index[fresh] - at] = True
    out[:, index[fresh] - at] = times[:, fresh]
    return known, *out
