"""All rings of one run on this node: finds them, assigns them to MPI worlds and reads them from the last commit on.

Intervals are read from the ring of a world's rank 0; statistics of ranks, from the rings of all its ranks on the node.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from barograph_agent.loops.loop import Loop
from barograph_agent.reduce.blocks import ROWS_PER_SECOND, Budget, reduce
from barograph_agent.reduce.intervals import Cursor, IntervalReader
from barograph_agent.reduce.iterations import IterationReducer
from barograph_agent.reduce.ranks import Member, NodeReducer
from barograph_agent.reduce.worlds import World, claim_in, claimed_in, is_of_application, join, new_number, on_this_node
from barograph_agent.ring.reader import Records, Ring, RingError
from barograph_agent.system.processes import Processes

SEARCHES: Final = 2
"""Searches for an anchor in one read, of 10 ms each."""


class Progress(msgspec.Struct):
    """Read position of all rings of a run; part of the spool's mark."""

    cursors: dict[str, Cursor] = {}
    budget: Budget = msgspec.field(default_factory=Budget)
    ranks: int = 0
    program: str = ""
    taken: list[int] = []
    """Numbers of worlds of the same run that an earlier sidecar had on this node."""


class TableRows(NamedTuple):
    """Rows for one table. intervals: number of the shim's intervals that they represent."""

    table: str
    length: int
    values: dict[str, Any]
    intervals: int = 0


class RingSet:
    """Reads rings into rows and advances `progress`. Call `release` once the rows are durable."""

    def __init__(
        self, directory: Path, progress: Progress, rows_per_second: float = ROWS_PER_SECOND, *, claims: bool = False
    ) -> None:
        """claims: launchers of the run take their numbers in this directory."""
        self.progress = progress
        self.unreadable: dict[str, RingError] = {}
        """Errors of rings that are no longer read, by file name."""
        self._directory = directory
        self._rate = rows_per_second
        self._claims = claims
        self._rings: dict[str, Ring] = {}
        self._readers: dict[str, IntervalReader] = {}
        self._nodes: dict[int, NodeReducer] = {}
        self._iterations: dict[int, IterationReducer] = {}
        self._loops: dict[str, Loop] = {}

    @property
    def known(self) -> bool:
        """True once there is a ring."""
        return bool(self._rings)

    @property
    def has_first_rank(self) -> bool:
        """True once the ring of a rank 0 was found."""
        return any(cursor.rank == 0 for cursor in self.progress.cursors.values())

    @property
    def first_number(self) -> int:
        """Number of the first world whose rank 0 is here; 0 without one."""
        return min((one.world for one in self.progress.cursors.values() if one.rank == 0), default=0)

    @property
    def launched(self) -> set[int]:
        """Numbers that launchers have taken on this node, or this sidecar for worlds whose launch is not known."""
        return claimed_in(self._directory)

    def find(self) -> None:
        """Open new rings. Files that are not valid rings are added to `unreadable`."""
        fresh: list[Ring] = []
        # listdir, because this runs several times a second, and creating a hundred Path objects takes a millisecond.
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
            self._group_by_world()

    def read(self, *, final: bool, now: float = 0.0) -> Iterator[TableRows]:
        """One batch of every ring, as rows without job and host. Inconsistent rings are added to `unreadable`.

        now: monotonic seconds.
        """
        recalled = self._step_loops(now, final=final)
        for name, reader in list(self._readers.items()):
            try:
                loop = self._loops[name]
                intervals, sites = reader.read(
                    recalled.get(name),
                    loop.readable,
                    holds=loop.holds and name not in recalled,
                    absorbs=loop.absorbs,
                    final=final,
                )
                traffic = reader.traffic(final=final)
            except RingError as error:
                self._drop_ring(name, error)
                continue
            if sites:
                yield TableRows("sites", len(sites["class_id"]), sites)
            if intervals is not None and len(intervals.class_ids):
                budget = self.progress.budget
                blocks = reduce(intervals, budget.allow(float(intervals.ended_at[-1]), self._rate))
                budget.spend(len(blocks["count"]))
                values = {"world": reader.cursor.world, **blocks}
                yield TableRows("blocks", len(blocks["count"]), values, len(intervals.class_ids))
            if traffic is not None:
                yield TableRows("signatures", len(traffic["class_id"]), traffic)
        for world, node in list(self._nodes.items()):
            try:
                if found := self._read_node(world, node, final=final):
                    columns = {name: np.array([row[name] for row in found]) for name in found[0]}
                    yield TableRows("node_blocks", len(found), columns)
                if (workers := node.take_workers()) is not None:
                    yield TableRows("workers", len(workers["rank"]), workers)
                if final and (phases := node.take_phases()):
                    yield TableRows("phases", len(phases["class_id"]), phases)
            except RingError as error:
                self._drop_member(world, error)

    @property
    def half_full(self) -> bool:
        """True if a ring is more than half full."""
        return any(_filled(ring) > 1 / 2 for ring in self._rings.values())

    @property
    def fills(self) -> bool:
        """True if a ring holds more than a sixteenth of its capacity, or calls have filled a quarter of their table."""
        return any(_filled(ring) > 1 / 16 for ring in self._rings.values()) or any(
            loop.fills for loop in self._loops.values()
        )

    @property
    def backlog(self) -> int:
        """Number of intervals in rings that were not read yet."""
        return sum(_unread_by(reader) for reader in self._readers.values())

    @property
    def too_fast(self) -> list[int]:
        """Ranks whose iterations are not recorded, because that would take more than 1 % of a core."""
        return sorted(self.progress.cursors[name].rank for name, loop in self._loops.items() if loop.is_too_fast)

    @property
    def silence(self) -> tuple[int, float] | None:
        """Intervals counted by the shim so far, and the end of the last recorded one or later call, in Unix seconds.

        The latter is the end of MPI_Init before the first; None without the ring of a rank 0.
        """
        ends = [
            max(reader.moved_at, reader.unix(self._loops[name].called_ns)) for name, reader in self._readers.items()
        ]
        return (self.counted()[0], max(ends)) if ends else None

    def living(self, processes: Processes) -> int:
        """Number of ranks on this node whose processes live, and which have neither finalized nor exited."""
        return sum(
            not ring.finalized and ring.exit_status is None and processes.born(ring.pid) >= 0
            for ring in self._rings.values()
        )

    @property
    def position(self) -> int:
        """Sum of all cursors: grows with every record read."""
        return sum(
            cursor.position + cursor.node_position + cursor.iteration_position + cursor.recalled + cursor.node_iteration
            for cursor in self.progress.cursors.values()
        )

    def ranks(self) -> dict[int, int]:
        """The numbers of the ranks that run on this node, by the ids of their processes."""
        return {
            ring.pid: self.progress.cursors[name].rank for name, ring in self._rings.items() if ring.exit_status is None
        }

    @property
    def first(self) -> tuple[int, str] | None:
        """Process and executable of the lowest rank of the first world that has a ring; None without one."""
        cursors = self.progress.cursors
        name = min(self._rings, key=lambda name: (cursors[name].world, cursors[name].rank), default=None)
        return (self._rings[name].pid, self._rings[name].program) if name is not None else None

    def release(self) -> None:
        """Let the shim overwrite everything read so far. To be called once it is durable."""
        for name, ring in self._rings.items():
            cursor = self.progress.cursors[name]
            # The last record read as a sync point is still needed: the next gap begins at its end.
            position = cursor.node_position - 1 if cursor.world in self._nodes else cursor.position
            if name in self._readers:
                position = min(cursor.position, position)
            if position > ring.tail:
                ring.release(position)
            # Likewise of iterations.
            iterations = cursor.node_iteration - 1 if cursor.world in self._iterations else cursor.iteration_position
            if name in self._readers:
                iterations = min(cursor.iteration_position, iterations)
            if iterations > ring.iteration_tail:
                ring.release_iterations(iterations)

    def counted(self) -> tuple[int, int]:
        """Number of intervals counted by the shim, and of those lost: part of no row."""
        each = [self._counted_of(name, cursor) for name, cursor in self.progress.cursors.items()]
        return sum(seen for seen, _ in each), sum(lost for _, lost in each)

    def passes(self) -> list[int]:
        """Passes of the program's loops, by the intervals of its only world; none of several, or if not known."""
        names = [name for name, cursor in self.progress.cursors.items() if cursor.rank == 0]
        reader = self._readers.get(names[0]) if len(names) == 1 else None
        return reader.loops(self._loops[names[0]].checked) if reader else []

    def _counted_of(self, name: str, cursor: Cursor) -> tuple[int, int]:
        # Of a ring that became unreadable only the counts of its cursor are known.
        reader = self._readers.get(name)
        try:
            counted, dropped = (reader.seen, reader.dropped) if reader else (cursor.rows + cursor.lost, 0)
        except RingError:
            counted, dropped = cursor.rows + cursor.lost, 0
        return counted, cursor.lost + dropped

    def worlds(self) -> dict[int, World]:
        """The worlds on this node, by number."""
        return on_this_node(self.progress.cursors, self._counted_of)

    @property
    def rows(self) -> int:
        """Intervals that became part of a row."""
        return sum(cursor.rows for cursor in self.progress.cursors.values())

    def close(self) -> None:
        """Close the rings."""
        for ring in self._rings.values():
            ring.close()
        self._rings.clear()
        self._readers.clear()
        self._nodes.clear()
        self._iterations.clear()
        self._loops.clear()

    def _read_node(self, world: int, node: NodeReducer, *, final: bool) -> list[dict[str, Any]]:
        """Rows of `node_blocks` of one world. Sync points between which there are iterations say less than these."""
        iterations = self._iterations[world]
        limits = {loop.ring.path: loop.readable for loop in self._loops.values()}
        found = iterations.read(limits, final=final)
        points = node.read(final=final)
        if points and iterations.take_count() > sum(row["count"] for row in points):
            return found
        return points + found

    def _step_loops(self, now: float, *, final: bool) -> dict[str, Records]:
        """Follow the loops of all rings; iterations that are recalled, by ring."""
        found, searches = {}, 0
        for name, loop in list(self._loops.items()):
            try:
                cursor = self.progress.cursors[name]
                recalled = loop.step(now, cursor.last_exit_ns, may_search=searches < SEARCHES, final=final)
                if (until := loop.take_discarded()) is not None:
                    cursor.node_iteration = max(until, cursor.node_iteration)
                    if name in self._readers:
                        self._readers[name].pass_over(until)
            except RingError as error:
                self._drop_ring(name, error)
                continue
            searches += loop.has_searched
            if len(recalled):
                found[name] = recalled
        return found

    def _add(self, ring: Ring) -> None:
        name, progress = ring.path.name, self.progress
        if name not in progress.cursors:
            rank, size, started_ns = max(ring.rank, 0), max(ring.size, 1), ring.started_ns
            progress.cursors[name] = Cursor(self._world_of(ring), rank, size, started_ns, launch=ring.launch)
        cursor = progress.cursors[name]
        self._rings[name] = ring
        self._loops[name] = Loop(ring, recalls=cursor.rank == 0)
        if cursor.rank == 0:
            self._readers[name] = IntervalReader(ring, cursor)
        progress.ranks = progress.ranks or cursor.size
        progress.program = progress.program or ring.program

    def _world_of(self, ring: Ring) -> int:
        cursors = self.progress.cursors
        if (number := join(ring, cursors)) is not None:
            return number
        used = {cursor.world for cursor in cursors.values()} | set(self.progress.taken)
        return new_number(ring, used, lambda number: not self._claims or claim_in(self._directory, number))

    def _group_by_world(self) -> None:
        """Group rings by world, except those of a program's own intervals."""
        members: dict[int, list[Member]] = {}
        for name, ring in self._rings.items():
            cursor = self.progress.cursors[name]
            if not is_of_application(name):
                members.setdefault(cursor.world, []).append(Member(ring, cursor))
        # A world whose ranks are the same keeps the sums of its phases.
        before = self._nodes
        self._nodes = {
            world: before[world] if world in before and before[world].has(group) else NodeReducer(world, group)
            for world, group in members.items()
        }
        self._iterations = {world: IterationReducer(world, group) for world, group in members.items()}

    def _drop_ring(self, name: str, error: RingError) -> None:
        self.unreadable[name] = error
        self._readers.pop(name, None)
        self._loops.pop(name, None)
        self._rings.pop(name).close()
        self._group_by_world()

    def _drop_member(self, world: int, error: RingError) -> None:
        """Stop reading the ring of this world that the error names."""
        names = [name for name in self._rings if self.progress.cursors[name].world == world]
        self._drop_ring(next((name for name in names if name in str(error)), names[0]), error)


def _unread(ring: Ring, position: int) -> int:
    """Number of records from `position` on; 0 if the ring is inconsistent, which is reported when it is read."""
    try:
        return max(ring.head - position, 0)
    except RingError:
        return 0


def _unread_by(reader: IntervalReader) -> int:
    try:
        return reader.unread
    except RingError:
        return 0


def _filled(ring: Ring) -> float:
    """The fuller one of the tables of a ring, as a share; 0 if it is inconsistent."""
    share = _unread(ring, ring.tail) / ring.capacity
    if not ring.iteration_capacity:
        return share
    try:
        return max(share, (ring.iteration_head - ring.iteration_tail) / ring.iteration_capacity)
    except RingError:
        return share
