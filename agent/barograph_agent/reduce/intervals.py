"""Conversion of ring records to intervals with durations and classes, and the read position of each ring."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from barograph_agent.reduce.blocks import Intervals
from barograph_agent.reduce.symbols import symbol
from barograph_agent.reduce.traffic import REPORTS, Traffic, add, passed, rows
from barograph_agent.ring.reader import INTERVAL, NAMED, OPERATIONS, Ring, RingError

BATCH = 16384
"""Records read from a ring at a time: 1 MB, and a message well below wire.MAX_BYTES."""


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
    """Sets of rows of `signatures` that were made."""
    traffic: dict[int, Traffic] = {}
    """What the intervals communicated, by class id; empty once all sets were made."""


def class_id(before: str, at: str) -> int:
    """The 64-bit id of intervals between two call sites: the same in every run of the same binary."""
    return int.from_bytes(hashlib.blake2b(f"{before}\0{at}".encode(), digest_size=8).digest(), "little")


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
                self._known[key] = class_id(self._ring.site(key[0]), self._ring.site(key[1]))
                fresh[key] = example
            ids[number] = self._known[key]
        return ids[inverse], fresh


class IntervalReader:
    """Reads the intervals of one ring, starting at its cursor."""

    def __init__(self, ring: Ring, cursor: Cursor) -> None:
        self.ring = ring
        self.cursor = cursor
        self._classes = ClassIds(ring)
        if cursor.position == 0:
            cursor.last_exit_ns = ring.started_ns

    @property
    def seen(self) -> int:
        """Synchronizing collectives counted by the shim so far, including dropped ones."""
        return self.ring.head + self.ring.dropped

    @property
    def ended_at(self) -> float:
        """End of the last interval that was read, in Unix seconds; of MPI_Init before the first."""
        return (self.cursor.last_exit_ns + self._offset_ns) * 1e-9

    @property
    def _offset_ns(self) -> int:
        return self.ring.started_unix_ns - self.ring.started_ns

    def read(self) -> tuple[Intervals | None, dict[str, Any]]:
        """The next intervals, None if there are no records, and classes not seen before as columns of `sites`.

        Both may be empty. Advances the cursor. Raises RingError if the ring is inconsistent.
        """
        cursor = self.cursor
        head = self.ring.head
        if cursor.position > head:
            raise RingError(f"ring {self.ring.path}: head is {head}, expected at least {cursor.position}")
        if cursor.position < (tail := self.ring.tail):
            # After damage to the spool the cursor may be before the tail, where records may be overwritten.
            cursor.lost += tail - cursor.position
            cursor.position = tail
        stop = min(head, cursor.position + BATCH)
        records = self.ring.records(cursor.position, stop)
        if not len(records):
            return None, {}
        exits = records["exit_ns"].astype(np.int64)
        index = records["index"].astype(np.int64)
        sites = records["site"].astype(np.int64)
        # An interval timed by the application has its own start; a collective's starts at the end of the previous one.
        own = records["op"] == INTERVAL
        starts = np.where(own, records["enter_ns"].astype(np.int64), np.append(cursor.last_exit_ns, exits[:-1]))
        before = np.where(own, sites, np.append(cursor.last_site, sites[:-1]))
        # The latter start is known only if the previous collective was recorded.
        known = own | (np.diff(index, prepend=cursor.last_index) == 1)
        if (starts > exits)[known].any():
            raise RingError(f"ring {self.ring.path}: an interval ends before it begins, expected ascending times")
        classes, fresh = self._classify(before[known], sites[known], records["op"][known])
        ended_at = (exits[known] + self._offset_ns) * 1e-9
        intervals = Intervals(classes, index[known], (exits - starts)[known] * 1e-9, ended_at)
        if cursor.looks < REPORTS:
            add(cursor.traffic, classes, records[known])
        cursor.position = stop
        cursor.last_exit_ns, cursor.last_site, cursor.last_index = int(exits[-1]), int(sites[-1]), int(index[-1])
        cursor.rows += int(known.sum())
        cursor.lost += int((~known).sum())
        return intervals, fresh

    def traffic(self, *, final: bool) -> dict[str, Any] | None:
        """The rows of `signatures` that are due, without the job. final: the run has ended."""
        cursor = self.cursor
        elapsed = (cursor.last_exit_ns - self.ring.started_ns) * 1e-9
        due = passed(elapsed, cursor.traffic)
        final = final and cursor.position == self.ring.head
        if due <= cursor.looks and not (final and cursor.looks < REPORTS):
            return None
        found = rows(cursor.traffic, elapsed, self.ended_at) if cursor.traffic else None
        cursor.looks = REPORTS if final else due
        if cursor.looks == REPORTS:
            cursor.traffic = {}
        return found

    def _classify(
        self, before: np.ndarray[Any, Any], at: np.ndarray[Any, Any], operation: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
        ids, first = self._classes.of(before, at)
        fresh: dict[str, Any] = {"class_id": [], "before": [], "at": [], "operation": []}
        for (earlier, later), example in first.items():
            fresh["class_id"].append(int(ids[example]))
            fresh["before"].append(self._readable(earlier, self.ring.site(earlier)))
            fresh["at"].append(self._readable(later, self.ring.site(later)))
            fresh["operation"].append(OPERATIONS.get(int(operation[example]), "other"))
        return ids, (fresh if first else {})

    def _readable(self, site: int, name: str) -> str:
        """The site with function names in place of offsets, if the modules have symbols."""
        if site == 0:
            return name
        frames = self.ring.frames(site)
        if any(at == NAMED for _, at in frames):
            return name
        return " < ".join(symbol(path, at) or f"{Path(path).name}+{at:#x}" for path, at in frames)
