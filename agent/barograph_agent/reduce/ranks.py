"""What the ranks of one world did on this node: which came last, which worked most, over blocks of sync points.

Sync point i is the same collective on every rank, so ranks and nodes are aligned by its number and not by clocks.
Ranks of one node share a clock; nodes are compared by how long their last rank still waited: the node that delays all
others is the one whose last rank does not wait.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_agent.reduce.intervals import Cursor
from barograph_agent.ring.reader import RECORD, Ring, RingError

BLOCK_SECONDS: Final = 2.0
LONGEST: Final = 8192
"""Most sync points in a block; at most a quarter of a ring's records, so that no block waits for a full ring."""

WORDS: Final = RECORD.itemsize // 8
ENTER, EXIT, P2P, INDEX = (RECORD.fields[name][1] // 8 for name in ("enter_ns", "exit_ns", "p2p_ns", "index"))  # type: ignore[index]

Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Member(NamedTuple):
    """One rank's ring, and how far it has been read."""

    ring: Ring
    cursor: Cursor


class NodeReducer:
    """The ranks of one world on this node, read together from their cursors."""

    def __init__(self, world: int, members: list[Member]) -> None:
        self._world = world
        self._members = sorted(members, key=lambda member: member.cursor.rank)

    def read(self, *, final: bool) -> list[dict[str, Any]]:
        """Blocks that are complete by now, as rows of `node_blocks` (without job and host). Moves the cursors.

        A block is 2^m sync points and begins at a multiple of 2^m, so blocks of different nodes nest whatever their m.
        It is complete once it spans BLOCK_SECONDS or LONGEST sync points, or at the end of the run.
        Raises RingError where a ring contradicts itself.
        """
        rows: list[dict[str, Any]] = []
        if not (final or self._may_be_due()):
            return rows
        while (at := self._align()) is not None and (length := self._due(at, final)):
            times = np.zeros((len(self._members), 4, length), np.int64)
            known = np.zeros((len(self._members), length), bool)
            for member, into, flags in zip(self._members, times, known, strict=True):
                _read(member, at, into, flags)
            whole = known.all(axis=0)
            if whole.any():
                rows.append(self._row(at, length, times if whole.all() else times[:, :, whole]))
        return rows

    def _may_be_due(self) -> bool:
        """A fast check of one ring, and of whether any is half full: mostly nothing is due."""
        ring, cursor = self._members[0]
        unread = ring.head - max(cursor.looked_at, ring.tail)
        if unread > 0 and (unread >= min(LONGEST, ring.capacity // 4) or self._span() >= BLOCK_SECONDS):
            return True
        return any(ring.head - cursor.looked_at > ring.capacity // 2 for ring, cursor in self._members)

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
        """Skip records where one rank has stopped, so that the rings of the others do not fill up."""
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

    def _row(self, at: int, length: int, times: Times) -> dict[str, Any]:
        """times: nanoseconds, ranks x (enter, exit, gap, p2p) x sync points."""
        enter, exits, gap, p2p = times.swapaxes(0, 1)
        own, wait = gap - p2p, exits - enter
        ranks = [member.cursor.rank for member in self._members]
        # The two that arrived last.
        order = np.partition(enter, -2, axis=0)[-2:] if len(ranks) > 1 else None
        late = order[1] - order[0] if order is not None else np.zeros(enter.shape[1], np.int64)
        last = enter.argmax(axis=0)
        times_last = np.bincount(last, minlength=len(ranks))
        latest, busiest = int(times_last.argmax()), int(own.sum(axis=1).argmax())
        ring = self._members[0].ring
        return {
            "world": self._world,
            "ranks": len(ranks),
            "first_index": at,
            "length": length,
            "count": enter.shape[1],
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
    """The sync point of record `position`: larger than that by the records dropped before it."""
    return int(ring.records(position, position + 1)["index"][0]) if ring.dropped else position


def _read(member: Member, at: int, into: Times, known: Flags) -> None:
    """Enter, exit, gap and point-to-point time of the sync points from `at` on, as many as `into` has columns.

    Moves the cursor behind them. Raises RingError where the ring's numbers are not those of its places.
    """
    ring, cursor = member
    length = into.shape[1]
    # One more in front: the gap begins at the end of the sync point before.
    begin = max(cursor.looked_at - 1, ring.tail)
    first = cursor.looked_at - begin
    words = ring.records(begin, min(cursor.looked_at + length, ring.head)).view(np.int64).reshape(-1, WORDS)
    index = words[:, INDEX]
    if index[first] != at:
        raise RingError(f"ring {ring.path}: record {cursor.looked_at} is number {index[first]}, expected {at}")
    cursor.looked_at += int((index[first:] < at + length).sum())
    if first and len(words) == length + 1 and int(index[-1]) - int(index[0]) == length:
        # The common case: none is missing.
        known[:] = True
        into[0], into[1], into[3] = words[1:, ENTER], words[1:, EXIT], words[1:, P2P]
        np.subtract(words[1:, ENTER], words[:-1, EXIT], out=into[2])
        return
    fresh = (np.diff(index, prepend=-1) == 1) & (index >= at) & (index < at + length)
    gap = words[:, ENTER] - np.append(ring.started_ns, words[:-1, EXIT])
    columns = index[fresh] - at
    known[columns] = True
    for row, values in enumerate((words[:, ENTER], words[:, EXIT], gap, words[:, P2P])):
        into[row, columns] = values[fresh]
