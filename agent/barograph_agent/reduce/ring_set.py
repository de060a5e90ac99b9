"""All rings of one run on this node: finds them, assigns them to MPI worlds and reads them from the last commit on.

Intervals are read from the ring of a world's rank 0; statistics of ranks, from the rings of all its ranks on the node.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from barograph_agent.loops.following_loop import FollowingLoop
from barograph_agent.loops.loop import Loop
from barograph_agent.protocol.tables import ROWS_PER_SECOND
from barograph_agent.reduce.blocks import Budget, reduce
from barograph_agent.reduce.intervals import Cursor, IntervalReader
from barograph_agent.reduce.iterations import IterationReducer
from barograph_agent.reduce.library import RingTable
from barograph_agent.reduce.ranks import Member, NodeReducer
from barograph_agent.reduce.worlds import (
    MAX_REPORTED,
    World,
    claim_in,
    claimed_in,
    is_of_application,
    join,
    new_number,
    on_this_node,
)
from barograph_agent.ring.reader import Records, Ring, RingError
from barograph_agent.system.processes import PROCESSES, UNCERTAIN, Processes

SEARCHES: Final = 2
"""Searches for an anchor in one read, of 10 ms each."""

OWN: Final = -1
"""Among ended worlds: the intervals of processes' own beside worlds of MPI, which count with the first world."""


class Progress(msgspec.Struct):
    """Read position of all rings of a run; part of the spool's mark."""

    cursors: dict[str, Cursor] = {}
    budget: Budget = msgspec.field(default_factory=Budget)
    ranks: int = 0
    program: str = ""
    taken: list[int] = []
    """Numbers of worlds of the same run that an earlier sidecar had on this node."""
    ended: dict[int, World] = {}
    """Worlds that are read to their ends, by number: their rings are deleted."""


class RankProcess(NamedTuple):
    """A process that records. born: its start time; -1 if it was not visible when its ring was found."""

    ring: Ring
    born: int

    def lives(self, processes: Processes) -> bool:
        """True while the process exists and has not called exit(), and where that cannot be told."""
        if self.ring.exit_status is not None or self.born == -1:
            return False
        return processes.born(self.ring.pid) in (self.born, UNCERTAIN)

    def has_ended(self, processes: Processes) -> bool:
        """Whether the process is certain to record no more; False for one that was never visible and left no word."""
        is_over = self.ring.finalized and is_of_application(self.ring.path.name)
        return is_over or self.ring.exit_status is not None or (self.born != -1 and not self.lives(processes))


class TableRows(NamedTuple):
    """Rows for one table. intervals: number of the shim's intervals that they represent."""

    table: str
    length: int
    values: dict[str, Any]
    intervals: int = 0


class RingSet:
    """Reads rings into rows and advances `progress`. Call `release` once the rows are durable."""

    def __init__(
        self,
        directory: Path,
        progress: Progress,
        rows_per_second: float = ROWS_PER_SECOND,
        *,
        claims: bool = False,
        processes: Processes = PROCESSES,
    ) -> None:
        """claims: launchers of the run take their numbers in this directory."""
        self.progress = progress
        self.unreadable: dict[str, RingError] = {}
        """Errors of rings that are no longer read, by file name."""
        self._directory = directory
        self._rate = rows_per_second
        self._claims = claims
        self._processes = processes
        self._rings: dict[str, Ring] = {}
        self._table = RingTable()
        self.ranks_here: dict[str, RankProcess] = {}
        """Processes of the rings, by file name."""
        self.is_complete = False
        """Whether all rings are found; not before the first `find`, or where descriptors are lacking."""
        self._ended: set[int] = set()
        """Worlds whose processes had all ended before the last read."""
        self._retired: list[Ring] = []
        """Rings of these that are read to their ends, until that is durable."""
        self._readers: dict[str, IntervalReader] = {}
        self._nodes: dict[int, NodeReducer] = {}
        self._iterations: dict[int, IterationReducer] = {}
        self._loops: dict[str, Loop | FollowingLoop] = {}
        self._leaders: dict[int, Loop] = {}
        """Loops that others follow, by world: of rank 0, or of the first rank that was found."""

    @property
    def known(self) -> bool:
        """True once there is a ring."""
        return bool(self.progress.cursors or self.progress.ended)

    @property
    def has_first_rank(self) -> bool:
        """True once the ring of a rank 0 was found."""
        here = any(cursor.rank == 0 for cursor in self.progress.cursors.values())
        return here or any(not world.lowest for world in self.progress.ended.values())

    @property
    def launched(self) -> set[int]:
        """Numbers that launchers have taken on this node, or this sidecar for worlds whose launch is not known."""
        return claimed_in(self._directory)

    def fresh(self) -> list[str]:
        """The names of rings that have appeared since the last `find`."""
        names: list[str] = []
        with contextlib.suppress(FileNotFoundError):
            names = os.listdir(self._directory)  # noqa: PTH208 - a hundred Path objects take a millisecond
        unknown = [name for name in names if name not in self.ranks_here and name not in self.unreadable]
        return sorted(name for name in unknown if name.endswith(".ring"))

    def find(self) -> None:
        """Open new rings. Files that are not valid rings, or not any more, are added to `unreadable`."""
        fresh: list[Ring] = []
        while (cut := self._table.fill()[0]) >= 0:
            path = list(self._rings.values())[cut].path
            self._drop_ring(path.name, RingError(f"ring {path}: cut off, expected at least a header"))
        self.is_complete = True
        for name in self.fresh():
            try:
                fresh.append(Ring(self._directory / name))
            except RingError as error:
                self.unreadable[name] = error
            except OSError:  # no property of this ring: the next `find` tries again
                self.is_complete = False
                break
        for ring in sorted(fresh, key=lambda ring: (ring.started_ns, ring.rank)):
            self._add(ring)
        if fresh:
            self._group_by_world()

    def read(self, *, final: bool, now: float = 0.0) -> Iterator[TableRows]:
        """One batch of every ring, as rows without job and host. Inconsistent rings are added to `unreadable`.

        now: monotonic seconds.
        """
        ended = {one.world for one in self.progress.cursors.values()} if final else self._ended_worlds()
        recalled = self._step_loops(now, ended)
        for name, reader in list(self._readers.items()):
            is_last = final or reader.cursor.world in ended
            try:
                loop = self._loops[name]
                intervals, sites = reader.read(
                    recalled.get(name), loop.readable, defers=loop.defers, absorbs=loop.absorbs, final=is_last
                )
                traffic = reader.traffic(final=is_last)
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
                is_last = world in ended
                if found := self._read_node(world, node, final=is_last):
                    columns = {name: np.array([row[name] for row in found]) for name in found[0]}
                    yield TableRows("node_blocks", len(found), columns)
                if (workers := node.pop_workers()) is not None:
                    yield TableRows("workers", len(workers["rank"]), workers)
                if is_last and (phases := node.pop_phases()):
                    yield TableRows("phases", len(phases["class_id"]), phases)
            except RingError as error:
                self._drop_member(world, error)
        # Of the first world the processes say what was asked for: its rings are kept.
        worlds = {cursor.world for cursor in self.progress.cursors.values()}
        for world in () if final else ended - {min(worlds, default=0)}:
            if not sum(_unread_by(self._readers[name]) for name, _ in self._of(world) if name in self._readers):
                self._retire(world)

    @property
    def retires(self) -> bool:
        """Whether there are rings that `release` deletes."""
        return bool(self._retired)

    def _of(self, world: int) -> list[tuple[str, Cursor]]:
        """Rings of a world that are read, with their cursors."""
        cursors = self.progress.cursors
        return [(name, cursors[name]) for name in self._rings if cursors[name].world == world]

    def _ended_worlds(self) -> set[int]:
        """Worlds all of whose processes here had ended, and no ring has come, when this was last called, too."""
        before, processes = self._ended, self._processes
        self._ended = {
            world
            for world in {self.progress.cursors[name].world for name in self._rings}
            if all(self.ranks_here[name].has_ended(processes) for name, _ in self._of(world))
        }
        return before & self._ended

    def _retire(self, world: int) -> None:
        """Keep no more of a world than what it comes to."""
        known, found = self.progress.ended, self.worlds().get(world)
        number = world if len(known) < MAX_REPORTED else max(known)
        if found is None:  # of a process's own intervals, beside worlds of MPI
            number, found = OWN, World(0, 0, 1, *self._counted_of(*self._of(world)[0]))
        same = known.get(number, found._replace(seen=0, lost=0))
        known[number] = same._replace(seen=same.seen + found.seen, lost=same.lost + found.lost)
        for name, _ in self._of(world):
            self._retired.append(self._rings.pop(name))
            self._readers.pop(name, None)
            del self._loops[name], self.ranks_here[name], self.progress.cursors[name]
        self._leaders.pop(world, None)
        self._group_by_world()

    @property
    def half_full(self) -> bool:
        """True if a ring is more than half full."""
        return self._table.fill()[1] > 1 / 2

    @property
    def filled(self) -> float:
        """The share that is filled of the fullest ring, or that calls of the last step fill of their table."""
        return max(*self._table.fill()[1:], *(loop.trace.filled for loop in self._loops.values()))

    @property
    def backlog(self) -> int:
        """Number of intervals in rings that were not read yet."""
        return sum(_unread_by(reader) for reader in self._readers.values())

    @property
    def too_fast(self) -> list[int]:
        """Ranks whose iterations are not recorded, because that would take more than 1 % of a core."""
        names = [name for name, loop in self._loops.items() if loop.trace.is_too_fast]
        return sorted(self.progress.cursors[name].rank for name in names)

    @property
    def silence(self) -> tuple[int, float] | None:
        """Intervals counted by the shim so far, and the end of the last recorded one or later call, in Unix seconds.

        The latter is the end of MPI_Init before the first; None without the ring of a rank 0.
        """
        ends = [
            max(reader.moved_at, reader.unix(self._loops[name].trace.called_ns))
            for name, reader in self._readers.items()
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
    def first(self) -> Ring | None:
        """The ring of the lowest rank of the first world that has one; None without one."""
        cursors = self.progress.cursors
        name = min(self._rings, key=lambda name: (cursors[name].world, cursors[name].rank), default=None)
        return self._rings[name] if name is not None else None

    def release(self) -> None:
        """Let the shim overwrite everything read so far. To be called once it is durable."""
        for ring in self._retired:
            ring.close()
            ring.path.unlink(missing_ok=True)
        self._retired.clear()
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
        each += [(world.seen, world.lost) for world in self.progress.ended.values()]
        return sum(seen for seen, _ in each), sum(lost for _, lost in each)

    def _counted_of(self, name: str, cursor: Cursor) -> tuple[int, int]:
        # Of a ring that became unreadable only the counts of its cursor are known.
        reader = self._readers.get(name)
        counted, dropped = cursor.rows + cursor.lost, 0
        with contextlib.suppress(RingError):
            counted, dropped = (reader.seen, reader.dropped) if reader else (counted, 0)
        return counted, cursor.lost + dropped

    def worlds(self) -> dict[int, World]:
        """The worlds on this node, by number."""
        found = {**self.progress.ended, **on_this_node(self.progress.cursors, self._counted_of)}
        if (own := found.pop(OWN, None)) is not None:
            first = found[min(found)]
            found[min(found)] = first._replace(seen=first.seen + own.seen, lost=first.lost + own.lost)
        return dict(sorted(found.items()))

    @property
    def rows(self) -> int:
        """Intervals that became part of a row."""
        ended = sum(world.seen - world.lost for world in self.progress.ended.values())
        return ended + sum(cursor.rows for cursor in self.progress.cursors.values())

    def close(self) -> None:
        """Close the rings."""
        for ring in (*(rank.ring for rank in self.ranks_here.values()), *self._retired):
            ring.close()
        self._rings.clear()
        self._table = RingTable()
        self._retired.clear()
        self.ranks_here.clear()
        self._readers.clear()
        self._nodes.clear()
        self._iterations.clear()
        self._loops.clear()
        self._leaders.clear()

    def _read_node(self, world: int, node: NodeReducer, *, final: bool) -> list[dict[str, Any]]:
        """Rows of `node_blocks` of one world. Sync points between which there are iterations say less than these."""
        iterations = self._iterations[world]
        limits = {self._rings[name].path: loop.readable for name, loop in self._loops.items()}
        found = iterations.read(limits, final=final)
        points = node.read(final=final)
        if points and iterations.pop_count() > sum(row["count"] for row in points):
            return found
        return points + found

    def _step_loops(self, now: float, ended: set[int]) -> dict[str, Records]:
        """Step the loops of all rings; recalled iterations, by ring. ended: worlds."""
        recalled: dict[str, Records] = {}
        searches = 0
        for name, loop in list(self._loops.items()):
            cursor, may_search = self.progress.cursors[name], searches < SEARCHES
            try:
                if isinstance(loop, FollowingLoop):
                    loop.step(now, self._leaders.get(cursor.world), may_search=may_search)
                else:
                    is_last = cursor.world in ended
                    recalled[name] = loop.step(now, cursor.last_exit_ns, may_search=may_search, final=is_last)
            except RingError as error:
                self._drop_ring(name, error)
                continue
            searches += loop.has_searched
        return recalled

    def _add(self, ring: Ring) -> None:
        name, progress = ring.path.name, self.progress
        if name not in progress.cursors:
            rank, size, started_ns = max(ring.rank, 0), max(ring.size, 1), ring.started_ns
            progress.cursors[name] = Cursor(self._world_of(ring), rank, size, started_ns, launch=ring.launch)
        cursor = progress.cursors[name]
        self._rings[name] = ring
        self.ranks_here[name] = RankProcess(ring, self._processes.born(ring.pid))
        leads = cursor.rank == 0 or cursor.world not in self._leaders
        self._loops[name] = loop = Loop(ring) if leads else FollowingLoop(ring)
        if isinstance(loop, Loop):
            self._leaders[cursor.world] = loop
        if cursor.rank == 0:
            self._readers[name] = IntervalReader(ring, cursor)
        progress.ranks = progress.ranks or cursor.size
        progress.program = progress.program or ring.program

    def _world_of(self, ring: Ring) -> int:
        cursors = self.progress.cursors
        if (number := join(ring, cursors)) is not None:
            return number
        used = {cursor.world for cursor in cursors.values()} | {*self.progress.taken, *self.progress.ended}
        return new_number(ring, used, lambda number: not self._claims or claim_in(self._directory, number))

    def _group_by_world(self) -> None:
        """Group rings by world, except those of a program's own intervals."""
        members: dict[int, list[Member]] = {}
        self._table = RingTable(list(self._rings.values()))
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
        loop, world = self._loops.pop(name, None), self.progress.cursors[name].world
        if self._leaders.get(world) is loop:
            self._leaders.pop(world, None)
        del self._rings[name]  # its header still says whether the process lives
        self._group_by_world()

    def _drop_member(self, world: int, error: RingError) -> None:
        """Stop reading the ring of this world that the error names."""
        names = [name for name in self._rings if self.progress.cursors[name].world == world]
        self._drop_ring(next((name for name in names if name in str(error)), names[0]), error)


def _unread_by(reader: IntervalReader) -> int:
    with contextlib.suppress(RingError):
        return reader.unread
    return 0
