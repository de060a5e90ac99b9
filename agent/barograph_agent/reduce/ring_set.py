"""All rings of one run on this node: finds them, sorts them into MPI worlds and reads them from the last commit on.

Intervals are read from the ring of rank 0 of a world; what each rank did, from the rings of all its ranks on the node.
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
"""Ranks of one world leave MPI_Init within this time of each other."""


class Progress(msgspec.Struct):
    """How far the rings of a run have been read; part of the spool's mark."""

    cursors: dict[str, Cursor] = {}
    budget: Budget = msgspec.field(default_factory=Budget)
    ranks: int = 0
    program: str = ""


class TableRows(NamedTuple):
    """Rows for one table. intervals: how many of the shim's intervals they represent."""

    table: str
    length: int
    values: dict[str, Any]
    intervals: int = 0


class RingSet:
    """Reads rings into rows and advances `progress`. Call `release` once the rows are durable."""

    def __init__(self, directory: Path, progress: Progress, rows_per_second: float = ROWS_PER_SECOND) -> None:
        self.progress = progress
        self.unreadable: dict[str, RingError] = {}
        """Why rings are not read any more, by name."""
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
        """True once a ring of a rank 0 was found."""
        return any(cursor.rank == 0 for cursor in self.progress.cursors.values())

    def find(self) -> None:
        """Open new rings. Files that are not valid rings are added to `unreadable`."""
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
            self._add(ring)
        if fresh:
            self._arrange()

    def read(self, *, final: bool) -> Iterator[TableRows]:
        """One batch of every ring, as rows without job and host. Rings that contradict themselves become unreadable."""
        for name, harvest in list(self._harvests.items()):
            try:
                intervals, sites = harvest.read()
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
                if found := node.read(final=final):
                    columns = {name: np.array([row[name] for row in found]) for name in found[0]}
                    yield TableRows("node_blocks", len(found), columns)
            except RingError as error:
                self._give_up_member(world, error)

    @property
    def half_full(self) -> bool:
        """True where a ring has no more than half of its records free."""
        return any(_unread(ring, ring.tail) > ring.capacity // 2 for ring in self._rings.values())

    @property
    def backlog(self) -> int:
        """Intervals in rings that have not been read."""
        return sum(_unread(harvest.ring, harvest.cursor.position) for harvest in self._harvests.values())

    @property
    def position(self) -> int:
        """Sum of all cursors: grows with every record read."""
        return sum(cursor.position + cursor.looked_at for cursor in self.progress.cursors.values())

    def release(self) -> None:
        """Let the shim overwrite everything read so far: it is durable."""
        for name, position in self._releasable():
            if position > self._rings[name].tail:
                self._rings[name].release(position)

    def _releasable(self) -> Iterator[tuple[str, int]]:
        """How far each ring may be released, by name."""
        for name in self._rings:
            cursor = self.progress.cursors[name]
            # The last record looked at is still needed: the gap of the next sync point begins at its end.
            looked = cursor.looked_at - 1 if cursor.world in self._nodes else cursor.position
            yield name, min(cursor.position, looked) if name in self._harvests else looked

    def counted(self) -> tuple[int, int]:
        """Intervals that the shim has counted, and how many of them are in no row."""
        seen = lost = 0
        for name, cursor in self.progress.cursors.items():
            # Of a ring that became unreadable only what its cursor has counted is known.
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
        """Close the rings."""
        for ring in self._rings.values():
            ring.close()
        self._rings.clear()
        self._harvests.clear()
        self._nodes.clear()

    def _add(self, ring: Ring) -> None:
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
        """The newest world of this size that began at the same time and has no ring of this rank; else a new one."""
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
        """Sort rings into worlds. In a world of one rank there are no ranks to compare."""
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
        """Give up the ring of this world that the error names."""
        names = [name for name in self._rings if self.progress.cursors[name].world == world]
        self._give_up(next((name for name in names if name in str(error)), names[0]), error)


def _unread(ring: Ring, position: int) -> int:
    """Records from this one on; 0 where the ring contradicts itself, which is reported when it is read."""
    try:
        return max(ring.head - position, 0)
    except RingError:
        return 0
