"""Statistics of the ranks of one world on this node, over blocks of sync points: last arrivals, own work, waiting.

The same records, by class of intervals and over the whole run, are summed in `phases`.

Sync point i is the same collective on every rank, so ranks and nodes are aligned by its number and not by clocks. Ranks
of one node share a clock. Nodes are compared by the wait of their last rank: on the node that delays all others, the
last rank does not wait.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from barograph_agent.reduce.intervals import ClassIds, Cursor
from barograph_agent.reduce.library import Block
from barograph_agent.reduce.phases import pop_phases
from barograph_agent.reduce.workers import WorkerSums
from barograph_agent.ring.reader import Ring


class Member(NamedTuple):
    """One rank's ring and its read position."""

    ring: Ring
    cursor: Cursor


class NodeReducer:
    """Reads the rings of one world's ranks on this node, starting at their cursors."""

    def __init__(self, world: int, members: list[Member]) -> None:
        self._world = world
        self._members = sorted(members, key=lambda member: member.cursor.rank)
        self._ranks = [member.cursor.rank for member in self._members]
        self._block = Block([member.ring for member in self._members])
        self._workers = WorkerSums(world, self._ranks)
        self._is_whole = not any(member.cursor.node_position for member in members)
        self._classes = ClassIds(self._members[0].ring)

    def has(self, members: list[Member]) -> bool:
        """Whether these are the ranks that are read."""
        return {member.ring.path for member in members} == {member.ring.path for member in self._members}

    def pop_phases(self) -> dict[str, Any] | None:
        """The columns of `phases` (without job, host and time), once; None if they would not be of the whole run."""
        return pop_phases(self._block, self._world, self._classes.__getitem__) if self._is_whole else None

    def read(self, *, final: bool) -> list[dict[str, Any]]:
        """Complete blocks as rows of `node_blocks` (without job and host). Advances the cursors.

        A block has 2^m sync points and begins at a multiple of 2^m, so blocks of different nodes nest for any m. It is
        complete once it spans some seconds, early in a run less, or MAX_POINTS, or at the end of the run. Raises
        RingError if a ring is inconsistent.
        """
        rows: list[dict[str, Any]] = []
        block, positions, is_first = self._block, self._block.members["position"], True
        positions[:] = [member.cursor.node_position for member in self._members]
        try:
            while block.read(final=final, first=is_first):
                is_first = False
                if block.now.count and self._members[0].cursor.size > 1:
                    if block.now.is_training:
                        own, wait, _, used, updated, *_ = block.sums.T
                        exits = block.now.first_exit, block.now.last_exit
                        self._workers.add(
                            np.stack([own, used, updated, wait]), block.now.count, exits, block.now.last_bytes
                        )
                    rows.append(self._row())
        finally:
            for member, position in zip(self._members, positions.tolist(), strict=True):
                member.cursor.node_position = position
        return rows

    def pop_workers(self) -> dict[str, Any] | None:
        """The columns of `workers` (without job and host) that are due; None if none are."""
        return self._workers.take(self._members[0].ring)

    def _row(self) -> dict[str, Any]:
        block, ring = self._block.now, self._members[0].ring
        own, wait, p2p, _, _, arrivals, late = self._block.sums.T
        busiest, latest = int(own.argmax()), int(arrivals.argmax())
        return {
            "world": self._world,
            "ranks": len(self._ranks),
            "first_index": block.first,
            "length": block.length,
            "count": block.count,
            "last_rank": self._ranks[latest],
            "last_count": int(arrivals[latest]),
            "late_seconds": int(late[latest]) * 1e-9,
            "own_rank": self._ranks[busiest],
            "own_rank_seconds": float(own[busiest]) * 1e-9,
            "own_seconds": float(own.sum()) * 1e-9,
            "p2p_seconds": float(p2p.sum()) * 1e-9,
            "wait_seconds": float(wait.sum()) * 1e-9,
            "least_wait_seconds": block.least_wait * 1e-9,
            "ended_at": (block.last_exit - ring.started_ns + ring.started_unix_ns) * 1e-9,
        }
