"""All rings of one run on this node: found, sorted into MPI worlds, and read on from where the last commit left off.

Rank 0 of a world gives its intervals; all its ranks on this node together give what each of them did.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from barograph_agent.reduce.blocks import ROWS_PER_SECOND, Budget, reduce
from barograph_agent.reduce.intervals import Cursor, IntervalReader
from barograph_agent.reduce.ranks import Member, NodeReducer
from barograph_agent.ring.reader import Ring, RingError
from barograph_agent.ring.writer import PREFIX

JOIN_NS: Final = 30 * 10**9
"""Ranks of one world leave MPI_Init within so much of each other."""


class Progress(msgspec.Struct):
    """How far the rings of a run were read; part of the spool's mark."""

    cursors: dict[str, Cursor] = {}
    budget: Budget = msgspec.field(default_factory=Budget)
    ranks: int = 0
    program: str = ""


class TableRows(NamedTuple):
    """Rows for one table. intervals: how many of the shim's intervals they stand for."""

    table: str
    length: int
    values: dict[str, Any]
    intervals: int = 0


class RingSet:
    """Reads rings into rows and moves `progress` on; `release` once the rows are durable."""

    def __init__(self, directory: Path, progress: Progress, rows_per_second: float = ROWS_PER_SECOND) -> None:
        self.progress = progress
        self.unreadable: dict[str, RingError] = {}
        """Rings that were given up, by name."""
        self._directory = directory
        self._rate = rows_per_second
        self._rings: dict[str, Ring] = {}
        self._harvests: dict[str, IntervalReader] = {}
        self._nodes: dict[int, NodeReducer] = {}

    @property
    def known(self) -> bool:
        """True once there is a ring."""
        return bool(self._rings)

    @property
    def has_first_rank(self) -> bool:
        """True once there is, or was, a ring of a rank 0."""
        return any(cursor.rank == 0 for cursor in self.progress.cursors.values())

    def find(self) -> None:
        """Open rings that have appeared. One that is none is given up."""
        fresh: list[Ring] = []
        # Names alone: this is done five times a second, and a hundred paths take a millisecond to make.
        names = os.listdir(self._directory) if self._directory.is_dir() else []  # noqa: PTH208
        for name in sorted(set(names) - self._rings.keys() - self.unreadable.keys()):
            if not name.endswith(".ring"):
                continue
            try:
                fresh.append(Ring(self._directory / name))
            except RingError as error:
                self.unreadable[name] = error
        for ring in sorted(fresh, key=lambda ring: (ring.started_ns, ring.rank)):
            self._adopt(ring)
        if fresh:
            self._arrange()

    def take(self, *, final: bool) -> Iterator[TableRows]:
        """One batch of every ring, as rows without job and host. A ring that contradicts itself is given up."""
        for name, harvest in list(self._harvests.items()):
            try:
                intervals, sites = harvest.take()
            except RingError as error:
                self._give_up(name, error)
                continue
            if sites:
                yield TableRows("sites", len(sites["class_id"]), sites)
            if intervals is not None and len(intervals.class_ids):
                budget = self.progress.budget
                blocks = reduce(intervals, budget.allow(float(intervals.ended_at[-1]), self._rate))
                budget.spend(len(blocks["count"]))
                values = {"world": harvest.cursor.world, **blocks}
                yield TableRows("blocks", len(blocks["count"]), values, len(intervals.class_ids))
        for world, node in list(self._nodes.items()):
            try:
                if found := node.take(final=final):
                    columns = {name: np.array([row[name] for row in found]) for name in found[0]}
                    yield TableRows("node_blocks", len(found), columns)
            except RingError as error:
                self._give_up_member(world, error)

    @property
    def half_full(self) -> bool:
        """True where the shim has room for no more than half a ring."""
        return any(_unread(ring, ring.tail) > ring.capacity // 2 for ring in self._rings.values())

    @property
    def backlog(self) -> int:
        """Intervals that wait in rings."""
        return sum(_unread(harvest.ring, harvest.cursor.position) for harvest in self._harvests.values())

    @property
    def position(self) -> int:
        """Grows with whatever is read."""
        return sum(cursor.position + cursor.looked_at for cursor in self.progress.cursors.values())

    def release(self) -> None:
        """What was taken so far is durable: the shim may overwrite it."""
        for name, position in self._releasable():
            if position > self._rings[name].tail:
                self._rings[name].release(position)

    def _releasable(self) -> Iterator[tuple[str, int]]:
        """How far each ring was read."""
        for name in self._rings:
            cursor = self.progress.cursors[name]
            # The last one looked at is still needed: the next sync point's gap begins at its end.
            looked = cursor.looked_at - 1 if cursor.world in self._nodes else cursor.position
            yield name, min(cursor.position, looked) if name in self._harvests else looked

    def counted(self) -> tuple[int, int]:
        """Intervals that the shim has counted, and how many of them never became part of a row."""
        seen = lost = 0
        for name, cursor in self.progress.cursors.items():
            # A ring that became unreadable has shown what its cursor counted, and nobody knows more.
            harvest = self._harvests.get(name)
            try:
                counted, dropped = (harvest.seen, harvest.ring.dropped) if harvest else (cursor.rows + cursor.lost, 0)
            except RingError:
                counted, dropped = cursor.rows + cursor.lost, 0
            seen += counted
            lost += cursor.lost + dropped
        return seen, lost

    @property
    def rows(self) -> int:
        """Intervals that became part of a row."""
        return sum(cursor.rows for cursor in self.progress.cursors.values())

    def close(self) -> None:
        """Let go of the rings."""
        for ring in self._rings.values():
            ring.close()
        self._rings.clear()
        self._harvests.clear()
        self._nodes.clear()

    def _adopt(self, ring: Ring) -> None:
        name, progress = ring.path.name, self.progress
        if name not in progress.cursors:
            rank, size = max(ring.rank, 0), max(ring.size, 1)
            progress.cursors[name] = Cursor(self._world_of(rank, size, ring.started_ns), rank, size, ring.started_ns)
        cursor = progress.cursors[name]
        self._rings[name] = ring
        if cursor.rank == 0:
            self._harvests[name] = IntervalReader(ring, cursor)
        progress.ranks = progress.ranks or cursor.size
        progress.program = progress.program or ring.program

    def _world_of(self, rank: int, size: int, started_ns: int) -> int:
        """The newest world of this size that began together with this ring and has no such rank yet; else a new one."""
        worlds: dict[int, list[Cursor]] = {}
        for cursor in self.progress.cursors.values():
            worlds.setdefault(cursor.world, []).append(cursor)
        for world in sorted(worlds, reverse=True):
            members = worlds[world]
            near = abs(started_ns - members[0].started_ns) <= JOIN_NS
            if near and members[0].size == size and rank not in {member.rank for member in members}:
                return world
        return len(worlds)

    def _arrange(self) -> None:
        """Sort rings into worlds. A world of one rank has nobody to wait for."""
        members: dict[int, list[Member]] = {}
        for name, ring in self._rings.items():
            cursor = self.progress.cursors[name]
            if cursor.size > 1 and not name.startswith(PREFIX):
                members.setdefault(cursor.world, []).append(Member(ring, cursor))
        self._nodes = {world: NodeReducer(world, those) for world, those in members.items()}

    def _give_up(self, name: str, error: RingError) -> None:
        self.unreadable[name] = error
        self._harvests.pop(name, None)
        self._rings.pop(name).close()
        self._arrange()

    def _give_up_member(self, world: int, error: RingError) -> None:
        """Give up the ring of this world that the error is about; the error names its file."""
        names = [name for name in self._rings if self.progress.cursors[name].world == world]
        self._give_up(next((name for name in names if name in str(error)), names[0]), error)


def _unread(ring: Ring, position: int) -> int:
    """Records behind this one; none where the ring contradicts itself: it is given up where it is read."""
    try:
        return max(ring.head - position, 0)
    except RingError:
        return 0
