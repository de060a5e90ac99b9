"""Conversion of ring records to intervals with durations and classes, and the read position of each ring."""

from __future__ import annotations

import copy
import hashlib
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from barograph_agent.reduce.blocks import Intervals
from barograph_agent.reduce.passes import Passes
from barograph_agent.reduce.symbols import symbol
from barograph_agent.reduce.traffic import FIRST_SECONDS, LAST_SECONDS, Look, Traffic, add, look_of, next_look, rows
from barograph_agent.ring.reader import INTERVAL, NAMED, OPERATIONS, RECORD, Records, Ring, RingError

BATCH = 16384
"""Records read from a ring at a time: 1 MB, and a message well below wire.MAX_BYTES."""


Times = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Cursor(msgspec.Struct, array_like=True):
    """Read position of one ring, sufficient to continue after a restart. An array, because each commit contains all."""

    world: int
    rank: int = 0
    size: int = 0
    started_ns: int = 0
    position: int = 0
    """Records read as intervals."""
    last_exit_ns: int = 0
    last_site: int = 0
    last_index: int = -1
    rows: int = 0
    """Intervals that became part of a block."""
    lost: int = 0
    """Intervals that are unknown because a collective at one of their ends was dropped."""
    node_position: int = 0
    """Records read as sync points, by NodeReducer."""
    looks: int = 0
    """Looks at the traffic that were reported."""
    traffic: dict[int, Traffic] = {}
    """What the intervals communicated, by class id; empty once it is over."""
    iteration_position: int = 0
    """Iterations read as intervals."""
    iteration_index: int = -1
    recalled: int = 0
    """Iterations that are known of calls only, less those of the ring that do not count."""
    node_iteration: int = 0
    """Iterations read by IterationReducer."""
    launch: int = -1
    """As of the ring."""
    counted: int = 0
    """Intervals in `traffic`."""
    due: list[Look] = []
    """Looks that are to be reported."""
    traffic_over: bool = False
    """Whether nothing more is to be reported of the traffic."""
    absorbed: int = 0
    """Collectives that are no ends of intervals, as there are many iterations between them."""

    def __post_init__(self) -> None:
        # Of an earlier version, which did not count them: how many intervals have communicated so much is not known.
        if (self.looks or self.traffic) and not self.counted:
            self.traffic, self.traffic_over = {}, True


def class_id(before: str, at: str) -> int:
    """The 64-bit id of intervals between two call sites: the same in every run of the same binary."""
    return int.from_bytes(hashlib.blake2b(f"{before}\0{at}".encode(), digest_size=8).digest(), "little")


ITERATION: Final = 1 << 20
"""Added to the number of a site that ends an iteration, times the calls from there: other classes than collectives."""
SITE: Final = ITERATION - 1


def _name(ring: Ring, site: int) -> str:
    return f"{ring.site(site & SITE)} (iteration, {site // ITERATION})" if site & ~SITE else ring.site(site)


class ClassIds:
    """The class ids of pairs of call sites in one ring, which are looked up once."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._known: dict[tuple[int, int], int] = {}

    def of(
        self, before: np.ndarray[Any, Any], at: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], dict[tuple[int, int], int]]:
        """The ids of (n,) intervals between sites, and of pairs not seen before the position of the first."""
        pairs, first, inverse = np.unique((before << 32) | at, return_index=True, return_inverse=True)
        ids, fresh = np.empty(len(pairs), np.uint64), {}
        for number, (pair, example) in enumerate(zip(pairs.tolist(), first.tolist(), strict=True)):
            key = (pair >> 32, pair & 0xFFFFFFFF)
            if key not in self._known:
                self._known[key] = class_id(_name(self._ring, key[0]), _name(self._ring, key[1]))
                fresh[key] = example
            ids[number] = self._known[key]
        return ids[inverse], fresh


class IntervalReader:
    """Reads the intervals of one ring, starting at its cursor."""

    def __init__(self, ring: Ring, cursor: Cursor) -> None:
        self.ring = ring
        self.cursor = cursor
        self._classes = ClassIds(ring)
        self.passes: Passes | None = None
        """Of the program's loop; None if another sidecar has read its begin."""
        self._around: Passes | None = None
        """The same of collectives, once some of them were no ends of intervals, and the end of the last of these."""
        self._around_ns = 0
        if not (cursor.position or cursor.iteration_position or cursor.recalled):
            cursor.last_exit_ns = ring.started_ns
            self.passes = Passes()

    @property
    def seen(self) -> int:
        """Ends of intervals counted so far, collectives and iterations, including dropped ones."""
        cursor = self.cursor
        return self.ring.head + self.ring.iteration_head + cursor.recalled + self.dropped - cursor.absorbed

    @property
    def dropped(self) -> int:
        """Those that were not recorded."""
        return self.ring.dropped + self.ring.iterations_dropped

    @property
    def unread(self) -> int:
        """Records in the ring that were not read yet."""
        cursor = self.cursor
        return max(self.ring.head - cursor.position + self.ring.iteration_head - cursor.iteration_position, 0)

    @property
    def ended_at(self) -> float:
        """End of the last interval that was read, in Unix seconds; of MPI_Init before the first."""
        return self.unix(self.cursor.last_exit_ns)

    @property
    def moved_at(self) -> float:
        """The same of the last record, though it may not have been read."""
        ring, cursor = self.ring, self.cursor
        ends = [cursor.last_exit_ns]
        if ring.iteration_head > cursor.iteration_position:
            ends.append(int(ring.iterations(ring.iteration_head - 1, ring.iteration_head)[0]["exit_ns"]))
        if ring.head > cursor.position:
            ends.append(int(ring.records(ring.head - 1, ring.head)[0]["exit_ns"]))
        return self.unix(max(ends))

    def unix(self, ns: int) -> float:
        """Unix seconds of an instant by the ring's clock."""
        return (ns + self._offset_ns) * 1e-9

    def pass_over(self, until: int) -> None:
        """Count no iteration before number `until` that was not read."""
        cursor = self.cursor
        if until > cursor.iteration_position:
            index = int(self.ring.iterations(until - 1, until)[0]["index"])
            cursor.recalled -= index - cursor.iteration_index
            cursor.iteration_position, cursor.iteration_index = until, index

    def loops(self, checked: int) -> list[int]:
        """Passes of the program's loops; none if not known. checked: iterations of which only some end an interval."""
        return self.passes.numbers(self._around, checked) if self.passes is not None else []

    def _count_around(self, collectives: Records, *, absorbs: bool) -> None:
        """Count collectives of the loop around the iterations between them."""
        if self._around is None and absorbs and self.passes is not None:
            self._around, self._around_ns = copy.deepcopy(self.passes), self.cursor.last_exit_ns
        if self._around is not None and len(collectives):
            ends = collectives["exit_ns"].astype(np.int64)
            seconds = np.diff(ends, prepend=self._around_ns) * 1e-9
            self._around.add(collectives, np.zeros(len(ends), bool), seconds)
            self._around_ns = int(ends[-1])

    @property
    def _offset_ns(self) -> int:
        return self.ring.started_unix_ns - self.ring.started_ns

    def read(
        self,
        recalled: Records | None = None,
        iterations: int | None = None,
        *,
        holds: bool = False,
        absorbs: bool = False,
        final: bool = True,
    ) -> tuple[Intervals | None, dict[str, Any]]:
        """The next intervals, None if there are no records, and classes not seen before as columns of `sites`.

        Both may be empty. recalled: iterations before the first one that was not read. iterations: those of the ring
        that may be read, None for all. holds: no collective may be read. absorbs: those between iterations are no ends
        of intervals. final: those after the last iteration are. Advances the cursor. Raises RingError if the ring is
        inconsistent.
        """
        cursor = self.cursor
        recalled = np.empty(0, RECORD) if recalled is None else recalled
        records, is_iteration, counts = self._merge(recalled, iterations, holds=holds)
        kept = np.ones(len(records), bool)
        if absorbs and len(records):
            unread = self._readable(iterations) - cursor.iteration_position - (int(is_iteration.sum()) - len(recalled))
            kept, read = _absorb(is_iteration, goes_on=bool(cursor.last_site & ~SITE), more=unread > 0, final=final)
            records, is_iteration, counts, kept = records[:read], is_iteration[:read], counts[:read], kept[:read]
        if not len(records):
            return None, {}
        collectives = np.maximum.accumulate(np.where(is_iteration, cursor.last_index, counts))
        others = np.maximum.accumulate(np.where(is_iteration, counts, cursor.iteration_index + cursor.recalled))
        index = collectives + others + 1 - cursor.absorbed - np.cumsum(~kept)
        follows = _follows(counts, is_iteration, (cursor.last_index, cursor.iteration_index + cursor.recalled))
        cursor.position += int((~is_iteration).sum())
        cursor.iteration_position += int(is_iteration.sum()) - len(recalled)
        cursor.last_index = int(collectives[-1])
        cursor.absorbed += int((~kept).sum())
        last = int(others[-1])
        self._count_around(records[~is_iteration], absorbs=absorbs)
        records, is_iteration, counts, index = records[kept], is_iteration[kept], counts[kept], index[kept]
        if not len(records):
            return None, {}
        exits = records["exit_ns"].astype(np.int64)
        sites = records["site"].astype(np.int64) + np.where(
            is_iteration, ITERATION * records["flags"].astype(np.int64), 0
        )
        # An interval timed by the application has its own start; a collective's starts at the end of the previous one.
        own = records["op"] == INTERVAL
        starts = np.where(own, records["enter_ns"].astype(np.int64), np.append(cursor.last_exit_ns, exits[:-1]))
        before = np.where(own, sites, np.append(cursor.last_site, sites[:-1]))
        # The latter start is known only if the previous one was recorded.
        known = own | follows[kept]
        if (starts > exits)[known].any():
            raise RingError(f"ring {self.ring.path}: an interval ends before it begins, expected ascending times")
        classes, fresh = self._classify(before[known], sites[known], records["op"][known])
        ended_at = (exits[known] + self._offset_ns) * 1e-9
        if self.passes is not None:
            self.passes.add(records, is_iteration, np.where(known, exits - starts, 0) * 1e-9)
        intervals = Intervals(classes, index[known], (exits - starts)[known] * 1e-9, ended_at)
        if not cursor.traffic_over:
            # What was sent in iterations that are recalled is not known: the first record after them has all of it.
            first = cursor.iteration_index + cursor.recalled + len(recalled) + bool(len(recalled))
            counted = ~is_iteration | (counts > first)
            self._count(classes[counted[known]], records[known & counted])
        cursor.recalled += len(recalled)
        cursor.iteration_index = last - cursor.recalled
        cursor.last_exit_ns, cursor.last_site = int(exits[-1]), int(sites[-1])
        cursor.rows += int(known.sum())
        cursor.lost += int((~known).sum())
        return intervals, fresh

    def _merge(self, recalled: Records, limit: int | None, *, holds: bool) -> tuple[Records, Flags, Times]:
        """Collectives and iterations in the order of their ends, which are iterations, and the number of each."""
        ring, cursor = self.ring, self.cursor
        seen = ring.iteration_head
        head = ring.head
        if cursor.position > head or cursor.iteration_position > seen:
            expected = max(cursor.position, cursor.iteration_position)
            raise RingError(f"ring {ring.path}: head is {min(head, seen)}, expected at least {expected}")
        # After damage to the spool a cursor may be before the tail, where records may be overwritten.
        if cursor.position < (tail := ring.tail):
            cursor.lost += tail - cursor.position
            cursor.position = tail
        if cursor.iteration_position < (tail := ring.iteration_tail):
            cursor.lost += tail - cursor.iteration_position
            cursor.iteration_position = tail
        stop = cursor.position if holds else min(head, cursor.position + BATCH)
        stop_iterations = max(min(self._readable(limit), cursor.iteration_position + BATCH), 0)
        records = ring.records(cursor.position, stop)
        iterations = ring.iterations(cursor.iteration_position, stop_iterations)
        if len(recalled) or ring.iteration_head:
            # What is not read yet comes later.
            later = [
                int(one[0]["exit_ns"])
                for one in (ring.records(stop, min(stop + 1, head)), self._next_iteration(stop_iterations))
                if len(one)
            ]
            if later:
                records = records[records["exit_ns"] <= min(later)]
                iterations = iterations[iterations["exit_ns"] <= min(later)]
        if not len(iterations) and not len(recalled):
            return records, np.zeros(len(records), bool), records["index"].astype(np.int64)
        numbers = iterations["index"].astype(np.int64) + cursor.recalled + len(recalled)
        counts = np.concatenate(
            [
                records["index"].astype(np.int64),
                cursor.iteration_index + cursor.recalled + 1 + np.arange(len(recalled)),
                numbers,
            ]
        )
        both = np.concatenate([records, recalled, iterations])
        order = np.argsort(both["exit_ns"], kind="stable")
        is_iteration = np.arange(len(both)) >= len(records)
        return both[order], is_iteration[order], counts[order]

    def _readable(self, limit: int | None) -> int:
        return self.ring.iteration_head if limit is None else limit

    def _next_iteration(self, position: int) -> Records:
        return self.ring.iterations(position, min(position + 1, self.ring.iteration_head))

    def _count(self, classes: npt.NDArray[np.uint64], records: Records) -> None:
        """Add intervals to the traffic, with a look where it is due."""
        cursor, start = self.cursor, 0
        while start < len(classes):
            look = next_look(cursor.counted)
            part = slice(start, start + look - cursor.counted)
            add(cursor.traffic, classes[part], records[part])
            cursor.counted, start = cursor.counted + len(classes[part]), part.stop
            if cursor.counted == look:
                end_ns = int(records[part]["exit_ns"][-1])
                cursor.due.append(look_of(cursor.traffic, look, self._elapsed(end_ns), self.unix(end_ns)))

    def _elapsed(self, now_ns: int) -> float:
        return (now_ns - self.ring.started_ns) * 1e-9

    def traffic(self, *, final: bool) -> dict[str, Any] | None:
        """The rows of `signatures` that are due, without the job. final: the run has ended."""
        cursor = self.cursor
        final = final and not self.unread
        elapsed = self._elapsed(cursor.last_exit_ns)
        if cursor.traffic_over or (elapsed < FIRST_SECONDS and not final):
            return None
        found, cursor.due = cursor.due, []
        if final and cursor.traffic:
            found += [look_of(cursor.traffic, 0, elapsed, self.ended_at)]
        cursor.looks += len(found)
        cursor.traffic_over = final or (elapsed >= LAST_SECONDS and cursor.looks > 0)
        if cursor.traffic_over:
            cursor.traffic = {}
        return rows(found) if found else None

    def _classify(
        self, before: np.ndarray[Any, Any], at: np.ndarray[Any, Any], operation: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
        ids, first = self._classes.of(before, at)
        fresh: dict[str, Any] = {"class_id": [], "before": [], "at": [], "operation": []}
        for (earlier, later), example in first.items():
            fresh["class_id"].append(int(ids[example]))
            fresh["before"].append(self._named(earlier & SITE))
            fresh["at"].append(self._named(later & SITE))
            fresh["operation"].append(OPERATIONS.get(int(operation[example]), "other"))
        return ids, (fresh if first else {})

    def _named(self, site: int) -> str:
        """The site with function names in place of offsets, if the modules have symbols."""
        name = self.ring.site(site)
        if site == 0:
            return name
        frames = self.ring.frames(site)
        if any(at == NAMED for _, at in frames):
            return name
        return " < ".join(symbol(path, at) or f"{Path(path).name}+{at:#x}" for path, at in frames)


def _absorb(is_iteration: Flags, *, goes_on: bool, more: bool, final: bool) -> tuple[Flags, int]:
    """Which records are ends of intervals, if no collective between iterations is one, and how many may be read.

    goes_on: the record before is an iteration. more: an iteration follows. final: none will follow; else a collective
    after the last one is read with the next.
    """
    number, at = len(is_iteration), np.flatnonzero(is_iteration)
    first = 0 if goes_on else int(at[0]) if len(at) else number
    last = number if more else int(at[-1]) + 1 if len(at) else 0
    places = np.arange(number)
    return is_iteration | (places < first) | (places >= last), number if final else max(first, last)


def _follows(counts: Times, is_iteration: Flags, last: tuple[int, int]) -> Flags:
    """Whether each record is the next one of its kind. last: numbers before the first collective and iteration."""
    found = np.zeros(len(counts), bool)
    for kind, number in zip((~is_iteration, is_iteration), last, strict=True):
        found[kind] = np.diff(counts[kind], prepend=number) == 1
    return found
