"""All rings of one run on this node: finds them, assigns them to MPI worlds and reads them from the last commit on.

Intervals are read from the ring of a world's rank 0; statistics of ranks, from the rings of all its ranks on the node.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

from barograph_agent.loops.loop import FollowingLoop, Loop
from barograph_agent.protocol.rows import TableRows
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


class RankRing:
    """A ring of a run, and the process that records in it."""

    def __init__(self, ring: Ring, cursor: Cursor, born: int, *, leads: bool) -> None:
        """born: start time of the process; -1 if it is not visible. leads: whether other ranks follow its loop."""
        self.ring, self.cursor, self.born = ring, cursor, born
        self.is_readable = True
        self.is_own = is_of_application(ring.path.name)
        """Whether it has intervals that the program times itself."""
        self.loop: Loop | FollowingLoop = Loop(ring) if leads else FollowingLoop(ring)
        self.intervals = IntervalReader(ring, cursor) if cursor.rank == 0 else None

    def lives(self, processes: Processes) -> bool:
        """True while the process exists and has not called exit(), and where that cannot be told."""
        if self.ring.exit_status is not None or self.born == -1:
            return False
        return processes.born(self.ring.pid) in (self.born, UNCERTAIN)

    def has_ended(self, processes: Processes) -> bool:
        """Whether the process is certain to record no more; False for one that was never visible and left no word."""
        is_over = (self.is_own and self.ring.finalized) or self.ring.exit_status is not None
        return is_over or (self.born != -1 and not self.lives(processes))

    @property
    def unread(self) -> int:
        """Intervals that were not read yet."""
        if self.intervals is not None and self.is_readable:
            with contextlib.suppress(RingError):
                return self.intervals.unread
        return 0

    def release(self) -> None:
        """Let the shim overwrite what was read."""
        ring, cursor = self.ring, self.cursor
        # The last record read as a sync point is needed: the next gap begins at its end. So is the last iteration.
        sync_point = cursor.position if self.is_own else cursor.node_position - 1
        iteration = cursor.iteration_position if self.is_own else cursor.node_iteration - 1
        if self.intervals is not None:
            sync_point = min(cursor.position, sync_point)
            iteration = min(cursor.iteration_position, iteration)
        if sync_point > ring.tail:
            ring.release(sync_point)
        if iteration > ring.iterations.tail:
            ring.iterations.release(iteration)


class _Reducers(NamedTuple):
    node: NodeReducer
    iterations: IterationReducer


class RingSet:
    """Source of the rows of all rings, which advances `progress`. Call `release` once the rows are durable."""

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
        self.ranks_here: dict[str, RankRing] = {}
        """By file name. Of an unreadable ring the header still says whether the process lives."""
        self.is_complete = False
        """Whether all rings are found; not before the first `find`, or where descriptors are lacking."""
        self._directory, self._rate, self._claims, self._processes = directory, rows_per_second, claims, processes
        self._readable: list[RankRing] = []
        """Those that are read."""
        self._table = RingTable()
        self._ended: set[int] = set()
        """Worlds whose processes had all ended before the last read."""
        self._retired: list[Ring] = []
        """Rings of these that are read to their ends, until that is durable."""
        self._reducers: dict[int, _Reducers] = {}

    @property
    def has_rings(self) -> bool:
        """True once there is a ring, or was."""
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
            self._drop(RingError(self._readable[cut].ring.path, "cut off, expected at least a header"))
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

    def read(self, now: float = 0.0, *, final: bool) -> Iterator[TableRows]:
        """One batch of every ring, as rows without job and host. Inconsistent rings are added to `unreadable`.

        now: monotonic seconds.
        """
        ended = {one.world for one in self.progress.cursors.values()} if final else self._ended_worlds()
        recalled = self._step_loops(now, ended)
        for rank in self._readable:
            if rank.intervals is not None:
                is_last, name = final or rank.cursor.world in ended, rank.ring.path.name
                try:
                    yield from self._read_intervals(rank, rank.intervals, recalled.get(name), final=is_last)
                except RingError as error:
                    self._drop(error)
        for number, reducers in list(self._reducers.items()):
            try:
                yield from self._read_world(number, reducers, final=number in ended)
            except RingError as error:
                self._drop(error)
        # Of the first world the processes say what was asked for: its rings are kept.
        worlds = {cursor.world for cursor in self.progress.cursors.values()}
        for number in () if final else ended - {min(worlds, default=0)}:
            if not any(rank.unread for rank in self._of(number)):
                self._retire(number)

    def _read_intervals(
        self, rank: RankRing, reader: IntervalReader, recalled: Records | None, *, final: bool
    ) -> list[TableRows]:
        loop, budget, rows = rank.loop, self.progress.budget, []
        intervals, sites = reader.read(recalled, loop.readable, defers=loop.defers, absorbs=loop.absorbs, final=final)
        traffic = reader.traffic(final=final)
        if sites:
            rows.append(TableRows("sites", len(sites["class_id"]), sites))
        if intervals is not None and len(intervals.class_ids):
            blocks = reduce(intervals, budget.allow(float(intervals.ended_at[-1]), self._rate))
            budget.spend(len(blocks["count"]))
            values = {"world": rank.cursor.world, **blocks}
            rows.append(TableRows("blocks", len(blocks["count"]), values, len(intervals.class_ids)))
        if traffic is not None:
            rows.append(TableRows("signatures", len(traffic["class_id"]), traffic))
        return rows

    def _read_world(self, number: int, reducers: _Reducers, *, final: bool) -> Iterator[TableRows]:
        node, iterations = reducers
        found = iterations.read({rank.ring.path: rank.loop.readable for rank in self._of(number)}, final=final)
        points = node.read(final=final)
        # Sync points between which there are iterations say less than these.
        if not points or iterations.pop_count() <= sum(row["count"] for row in points):
            found = points + found
        if found:
            yield TableRows(
                "node_blocks", len(found), {name: np.array([row[name] for row in found]) for name in found[0]}
            )
        if (workers := node.pop_workers()) is not None:
            yield TableRows("workers", len(workers["rank"]), workers)
        if final and (phases := node.pop_phases()):
            yield TableRows("phases", len(phases["class_id"]), phases)

    @property
    def retires(self) -> bool:
        """Whether there are rings that `release` deletes."""
        return bool(self._retired)

    def _of(self, world: int) -> list[RankRing]:
        """Rings of a world that are read."""
        return [rank for rank in self._readable if rank.cursor.world == world]

    def _ended_worlds(self) -> set[int]:
        """Worlds all of whose processes here had ended, and no ring has come, when this was last called, too."""
        before, processes = self._ended, self._processes
        worlds = {rank.cursor.world for rank in self._readable}
        # Up to the first rank that lives: each takes a read in /proc.
        self._ended = {world for world in worlds if all(rank.has_ended(processes) for rank in self._of(world))}
        return before & self._ended

    def _retire(self, world: int) -> None:
        """Keep no more of a world than what it comes to."""
        known, found, ranks = self.progress.ended, self.worlds().get(world), self._of(world)
        number = world if len(known) < MAX_REPORTED else max(known)
        if found is None:  # of a process's own intervals, beside worlds of MPI
            number, found = OWN, World(0, 0, 1, *self._counted_of(ranks[0].ring.path.name, ranks[0].cursor))
        same = known.get(number, found._replace(seen=0, lost=0))
        known[number] = same._replace(seen=same.seen + found.seen, lost=same.lost + found.lost)
        for rank in ranks:
            self._retired.append(rank.ring)
            name = rank.ring.path.name
            del self.ranks_here[name], self.progress.cursors[name]
        self._group_by_world()

    @property
    def half_full(self) -> bool:
        """True if a ring is more than half full."""
        return self._table.fill()[1] > 1 / 2

    @property
    def filled(self) -> float:
        """The share that is filled of the fullest ring, or that calls of the last step fill of their table."""
        return max(*self._table.fill()[1:], *(rank.loop.trace.filled for rank in self._readable))

    @property
    def backlog(self) -> int:
        """Number of intervals in rings that were not read yet."""
        return sum(rank.unread for rank in self._readable)

    @property
    def too_fast(self) -> list[int]:
        """Ranks whose iterations are not recorded, because that would take more than 1 % of a core."""
        return sorted(rank.cursor.rank for rank in self._readable if rank.loop.trace.is_too_fast)

    @property
    def silence(self) -> tuple[int, float] | None:
        """Intervals counted by the shim so far, and the end of the last recorded one or later call, in Unix seconds.

        The latter is the end of MPI_Init before the first; None without the ring of a rank 0.
        """
        ends = [
            max(reader.moved_at, reader.unix(rank.loop.trace.called_ns))
            for rank in self._readable
            if (reader := rank.intervals) is not None
        ]
        return (self.counted()[0], max(ends)) if ends else None

    @property
    def living(self) -> int:
        """Number of ranks on this node whose processes live, and which have neither finalized nor exited."""
        running = [rank.ring for rank in self._readable if rank.ring.exit_status is None]
        return sum(not ring.finalized and self._processes.born(ring.pid) >= 0 for ring in running)

    @property
    def position(self) -> int:
        """Sum of all cursors: grows with every record read."""
        return sum(
            cursor.position + cursor.node_position + cursor.iteration_position + cursor.recalled + cursor.node_iteration
            for cursor in self.progress.cursors.values()
        )

    @property
    def ranks(self) -> dict[int, int]:
        """The numbers of the ranks that run on this node, by the ids of their processes."""
        return {rank.ring.pid: rank.cursor.rank for rank in self._readable if rank.ring.exit_status is None}

    @property
    def first(self) -> Ring | None:
        """The ring of the lowest rank of the first world that has one; None without one."""
        first = min(self._readable, key=lambda rank: (rank.cursor.world, rank.cursor.rank), default=None)
        return first.ring if first is not None else None

    def release(self) -> None:
        """Let the shim overwrite everything read so far. To be called once it is durable."""
        for ring in self._retired:
            ring.close()
            ring.path.unlink(missing_ok=True)
        self._retired.clear()
        for rank in self._readable:
            rank.release()

    def counted(self) -> tuple[int, int]:
        """Number of intervals counted by the shim, and of those lost: part of no row."""
        each = [self._counted_of(name, cursor) for name, cursor in self.progress.cursors.items()]
        each += [(world.seen, world.lost) for world in self.progress.ended.values()]
        return sum(seen for seen, _ in each), sum(lost for _, lost in each)

    def _counted_of(self, name: str, cursor: Cursor) -> tuple[int, int]:
        # Of a ring that became unreadable only the counts of its cursor are known.
        counted, dropped, rank = cursor.rows + cursor.lost, 0, self.ranks_here.get(name)
        if rank is not None and rank.is_readable and rank.intervals is not None:
            with contextlib.suppress(RingError):
                counted, dropped = rank.intervals.seen, rank.intervals.dropped
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
        self._retired.clear()
        self.ranks_here.clear()
        self._group_by_world()

    def _step_loops(self, now: float, ended: set[int]) -> dict[str, Records]:
        """Step the loops of all rings; recalled iterations, by ring. ended: worlds."""
        recalled: dict[str, Records] = {}
        searches, leaders = 0, self._leaders
        for rank in self._readable:
            loop, cursor, may_search = rank.loop, rank.cursor, searches < SEARCHES
            try:
                if isinstance(loop, FollowingLoop):
                    loop.step(now, leaders.get(cursor.world), may_search=may_search)
                else:
                    after, is_last = cursor.last_exit_ns, cursor.world in ended
                    recalled[rank.ring.path.name] = loop.step(now, after, may_search=may_search, final=is_last)
            except RingError as error:
                self._drop(error)
                continue
            searches += loop.has_searched
        return recalled

    @property
    def _leaders(self) -> dict[int, Loop]:
        """Loops that others follow, by world: of rank 0, or of the first rank that was found."""
        return {rank.cursor.world: rank.loop for rank in self._readable if isinstance(rank.loop, Loop)}

    def _add(self, ring: Ring) -> None:
        name, progress = ring.path.name, self.progress
        if name not in progress.cursors:
            rank, size, started_ns = max(ring.rank, 0), max(ring.size, 1), ring.started_ns
            progress.cursors[name] = Cursor(self._world_of(ring), rank, size, started_ns, launch=ring.launch)
        cursor = progress.cursors[name]
        leads = cursor.rank == 0 or cursor.world not in self._leaders
        self.ranks_here[name] = rank_ring = RankRing(ring, cursor, self._processes.born(ring.pid), leads=leads)
        self._readable.append(rank_ring)
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
        ranks = self._readable = [rank for rank in self.ranks_here.values() if rank.is_readable]
        members, before = dict[int, list[Member]](), self._reducers
        self._table = RingTable([rank.ring for rank in ranks])
        for rank in ranks:
            if not rank.is_own:
                members.setdefault(rank.cursor.world, []).append(Member(rank.ring, rank.cursor))
        # A world whose ranks are the same keeps the sums of its phases.
        self._reducers = {
            world: _Reducers(
                before[world].node if world in before and before[world].node.has(group) else NodeReducer(world, group),
                IterationReducer(world, group),
            )
            for world, group in members.items()
        }

    def _drop(self, error: RingError) -> None:
        """Read the ring of this error no more."""
        self.unreadable[error.path.name] = error
        self.ranks_here[error.path.name].is_readable = False
        self._group_by_world()
