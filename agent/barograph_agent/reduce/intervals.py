"""Conversion of ring records to intervals with durations and classes, and the read position of each ring."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from barograph_agent.reduce.blocks import Intervals
from barograph_agent.reduce.library import NextIntervals
from barograph_agent.reduce.symbols import symbol
from barograph_agent.reduce.traffic import (
    FIRST_SECONDS,
    LAST_SECONDS,
    Traffic,
    TrafficReport,
    add,
    next_report,
    report_of,
    rows,
)
from barograph_agent.ring.reader import NAMED, OPERATIONS, RECORD, Records, Ring, RingError

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
    reports: int = 0
    """Reports of the traffic."""
    traffic: dict[int, Traffic] = {}
    """Traffic of intervals by class id; empty once it is reported for the last time."""
    iteration_position: int = 0
    """Iterations read as intervals."""
    iteration_index: int = -1
    recalled: int = 0
    """Iterations reconstructed from the trace of calls."""
    node_iteration: int = 0
    """Iterations read by IterationReducer."""
    launch: int = -1
    """As of the ring."""
    counted: int = 0
    """Intervals in `traffic`."""
    due: list[TrafficReport] = []
    """Reports that are due."""
    traffic_over: bool = False
    """Whether nothing more is to be reported of the traffic."""
    absorbed: int = 0
    """Collectives that are no ends of intervals, as there are many iterations between them."""


def class_id(before: str, at: str) -> int:
    """The 64-bit id of intervals between two call sites: the same in every run of the same binary."""
    return int.from_bytes(hashlib.blake2b(f"{before}\0{at}".encode(), digest_size=8).digest(), "little")


ITERATION: Final = 1 << 20
"""Added to the number of a site that ends an iteration, times the calls from there: other classes than collectives."""
SITE: Final = ITERATION - 1


def _name(ring: Ring, site: int) -> str:
    return f"{ring.site(site & SITE)} (iteration, {site // ITERATION})" if site & ~SITE else ring.site(site)


class ClassIds(dict[int, int]):
    """Class ids by pairs of call sites in one ring: the site before times 2^32, plus the later one."""

    def __init__(self, ring: Ring) -> None:
        super().__init__()
        self._ring = ring

    def __missing__(self, pair: int) -> int:
        before, at = pair >> 32, pair & 0xFFFFFFFF
        self[pair] = found = class_id(_name(self._ring, before), _name(self._ring, at))
        return found


class IntervalReader:
    """Reads the intervals of one ring, starting at its cursor."""

    def __init__(self, ring: Ring, cursor: Cursor) -> None:
        self.ring = ring
        self.cursor = cursor
        self._classes = ClassIds(ring)
        self._next = NextIntervals(ring)
        if not (cursor.position or cursor.iteration_position or cursor.recalled):
            cursor.last_exit_ns = ring.started_ns

    @property
    def seen(self) -> int:
        """Ends of intervals counted so far, collectives and iterations, including dropped ones."""
        cursor = self.cursor
        return self.ring.head + self.ring.iterations.head + cursor.recalled + self.dropped - cursor.absorbed

    @property
    def dropped(self) -> int:
        """Those that were not recorded."""
        return self.ring.dropped + self.ring.iterations.dropped

    @property
    def unread(self) -> int:
        """Records in the ring that were not read yet."""
        cursor = self.cursor
        return max(self.ring.head - cursor.position + self.ring.iterations.head - cursor.iteration_position, 0)

    @property
    def ended_at(self) -> float:
        """End of the last interval that was read, in Unix seconds; of MPI_Init before the first."""
        return float(self.unix(self.cursor.last_exit_ns))

    @property
    def moved_at(self) -> float:
        """The same of the last record, though it may not have been read."""
        ring, cursor = self.ring, self.cursor
        ends = [cursor.last_exit_ns]
        if ring.iterations.head > cursor.iteration_position:
            ends.append(int(ring.iterations.records(ring.iterations.head - 1, ring.iterations.head)[0]["exit_ns"]))
        if ring.head > cursor.position:
            ends.append(int(ring.records(ring.head - 1, ring.head)[0]["exit_ns"]))
        return float(self.unix(max(ends)))

    def unix(self, ns: Any) -> Any:
        """Unix seconds of an instant by the ring's clock, or of an array of them."""
        return (ns + (self.ring.started_unix_ns - self.ring.started_ns)) * 1e-9

    def read(
        self,
        recalled: Records | None = None,
        iterations: int | None = None,
        *,
        defers: bool = False,
        absorbs: bool = False,
        final: bool = True,
    ) -> tuple[Intervals | None, dict[str, Any]]:
        """The next intervals, None if there are no records, and classes not seen before as columns of `sites`.

        Both may be empty. recalled: iterations before the first one that was not read. iterations: those of the ring
        that may be read, None for all. defers: no collective may be read. absorbs: those between iterations are no ends
        of intervals. final: those after the last iteration are. Advances the cursor. Raises RingError if the ring is
        inconsistent.
        """
        cursor, now = self.cursor, self._next.now
        recalled = np.empty(0, RECORD) if recalled is None else np.sort(recalled, order="exit_ns", kind="stable")
        self._read_next(recalled, iterations, defers=defers, absorbs=absorbs, final=final)
        if not now.length:
            return None, {}
        # What was sent in iterations that are recalled is not known: the first record after them has all of it.
        first = cursor.iteration_index + cursor.recalled + len(recalled) + bool(len(recalled))
        cursor.position, cursor.iteration_position = now.position, now.iteration_position
        to, place = self._next.to, self._next.to["place"][: now.count]
        classes, fresh = self._classify()
        if not cursor.traffic_over and now.count:
            counted = ~to["is_iteration"][place] | (to["numbers"][place] > first)
            self._count(classes[counted], to["records"][place[counted]])
        cursor.recalled += len(recalled)
        cursor.last_exit_ns, cursor.last_site = now.last_exit, now.last_site
        cursor.last_index, cursor.absorbed = now.last_collective, now.absorbed
        cursor.iteration_index = now.last_iteration - cursor.recalled
        cursor.rows += now.count
        cursor.lost += now.lost
        if not now.kept:
            return None, {}
        index, seconds, ended = (to[name][: now.count].copy() for name in ("index", "seconds", "ended"))
        return Intervals(classes, index, seconds, self.unix(ended)), fresh

    def _read_next(self, recalled: Records, limit: int | None, *, defers: bool, absorbs: bool, final: bool) -> None:
        ring, cursor = self.ring, self.cursor
        seen, head = ring.iterations.head, ring.head
        if cursor.position > head or cursor.iteration_position > seen:
            expected = max(cursor.position, cursor.iteration_position)
            raise RingError(ring.path, f"head is {min(head, seen)}, expected at least {expected}")
        # After damage to the spool a cursor may be before the tail, where records may be overwritten.
        if cursor.position < (tail := ring.tail):
            cursor.lost += tail - cursor.position
            cursor.position = tail
        if cursor.iteration_position < (tail := ring.iterations.tail):
            cursor.lost += tail - cursor.iteration_position
            cursor.iteration_position = tail
        limit = seen if limit is None else limit
        at, of = cursor.position, cursor.iteration_position
        stops = {"stop": at if defers else min(head, at + BATCH), "iteration_stop": max(min(limit, of + BATCH), 0)}
        until = stops | {"head": head, "iteration_head": seen, "iteration_limit": limit, "is_final": final}
        last = {"last_exit": cursor.last_exit_ns, "last_site": cursor.last_site, "last_collective": cursor.last_index}
        last |= {"last_iteration": cursor.iteration_index + cursor.recalled, "absorbed": cursor.absorbed}
        begin = {"position": at, "iteration_position": of, "recalled_before": cursor.recalled, "absorbs": absorbs}
        self._next.next(recalled, **begin, **until, **last)

    def _count(self, classes: npt.NDArray[np.uint64], records: Records) -> None:
        """Add intervals to the traffic, with a report where it is due."""
        cursor, start = self.cursor, 0
        while start < len(classes):
            report = next_report(cursor.counted)
            part = slice(start, start + report - cursor.counted)
            add(cursor.traffic, classes[part], records[part])
            cursor.counted, start = cursor.counted + len(classes[part]), part.stop
            if cursor.counted == report:
                end_ns = int(records[part]["exit_ns"][-1])
                cursor.due.append(report_of(cursor.traffic, report, self._elapsed(end_ns), self.unix(end_ns)))

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
            found += [report_of(cursor.traffic, 0, elapsed, self.ended_at)]
        cursor.reports += len(found)
        cursor.traffic_over = final or (elapsed >= LAST_SECONDS and cursor.reports > 0)
        if cursor.traffic_over:
            cursor.traffic = {}
        return rows(found) if found else None

    def _classify(self) -> tuple[npt.NDArray[np.uint64], dict[str, Any]]:
        """The classes of the intervals that were read, and those that are new as columns of `sites`."""
        now, to, ids, fresh = self._next.now, self._next.to, [], []
        for pair, example in zip(*(to[name][: now.pair_count].tolist() for name in ("pairs", "first")), strict=True):
            is_new = pair not in self._classes
            ids.append(self._classes[pair])
            if is_new:
                before, at = self._named(pair >> 32 & SITE), self._named(pair & SITE)
                operation = int(to["records"]["op"][to["place"][example]])
                fresh.append((ids[-1], before, at, OPERATIONS.get(operation, "other")))
        names = ("class_id", "from_site", "to_site", "operation")
        columns = {name: list(column) for name, column in zip(names, zip(*fresh, strict=True), strict=False)}
        return np.array(ids, np.uint64)[to["pair"][: now.count]], columns

    def _named(self, site: int) -> str:
        """The site with function names in place of offsets, if the modules have symbols."""
        name = self.ring.site(site)
        if site == 0:
            return name
        frames = self.ring.frames(site)
        if any(at == NAMED for _, at in frames):
            return name
        names = [symbol(path, at) or f"{Path(path).name}+{at:#x}" for path, at in frames]
        # Callers in the interpreter are those of all that it runs.
        return " < ".join([names[0], *(name for name in names[1:] if not name.startswith(("Py", "_Py")))])
