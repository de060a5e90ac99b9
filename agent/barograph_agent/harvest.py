"""From ring records to rows: intervals, their classes, and where each ring has been read to."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import numpy as np

from barograph_agent.ring import OPERATIONS, Ring, RingError

BATCH = 16384
"""Records taken from a ring at a time: half a megabyte, and a message well below wire.MAX_BYTES."""


class Cursor(msgspec.Struct):
    """How far one ring has been turned into rows; enough to go on after a restart."""

    world: int
    position: int = 0
    last_exit_ns: int = 0
    last_site: int = 0
    last_index: int = -1
    rows: int = 0
    lost: int = 0
    """Intervals that cannot be known because a collective at one of their ends was dropped."""


def class_id(before: str, at: str) -> int:
    """The 64-bit id of intervals that lie between these two call sites: the same in every run of the same binary."""
    return int.from_bytes(hashlib.blake2b(f"{before}\0{at}".encode(), digest_size=8).digest(), "little")


class Harvest:
    """Reads one ring on from its cursor."""

    def __init__(self, ring: Ring, cursor: Cursor) -> None:
        self.ring = ring
        self.cursor = cursor
        self._classes: dict[tuple[int, int], int] = {}
        if cursor.position == 0:
            cursor.last_exit_ns = ring.started_ns

    @property
    def seen(self) -> int:
        """Synchronizing collectives the shim has counted so far, dropped ones included."""
        return self.ring.head + self.ring.dropped

    def take(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The next intervals as columns of `blocks` (without job) and newly met classes as columns of `sites`.

        Both may be empty. The cursor moves on; call `release` once the rows are durable.
        Raises RingError where the ring contradicts itself.
        """
        cursor = self.cursor
        head = self.ring.head
        if cursor.position > head:
            raise RingError(f"ring {self.ring.path}: head is {head}, expected at least {cursor.position}")
        if cursor.position < (tail := self.ring.tail):
            # The cursor is older than what was released, after a damaged spool: those records may be overwritten.
            cursor.lost += tail - cursor.position
            cursor.position = tail
        stop = min(head, cursor.position + BATCH)
        records = self.ring.records(cursor.position, stop)
        if not len(records):
            return {}, {}
        exits = records["exit_ns"].astype(np.int64)
        starts = np.concatenate(([cursor.last_exit_ns], exits[:-1]))
        index = records["index"].astype(np.int64)
        # An interval is known only where the collective before it was recorded too.
        known = np.diff(index, prepend=cursor.last_index) == 1
        sites = records["site"].astype(np.int64)
        before = np.concatenate(([cursor.last_site], sites[:-1]))
        classes, fresh = self._classify(before[known], sites[known], records["op"][known])
        seconds = (exits - starts)[known] * 1e-9
        offset = self.ring.started_unix_ns - self.ring.started_ns
        rows = {
            "world": cursor.world,
            "class_id": classes,
            "first_index": index[known],
            "count": 1,
            "sum_seconds": seconds,
            "sum_squares": seconds**2,
            "sum_cubes": seconds**3,
            "min_seconds": seconds,
            "max_seconds": seconds,
            "ended_at": (exits[known] + offset) * 1e-9,
        }
        cursor.position = stop
        cursor.last_exit_ns, cursor.last_site, cursor.last_index = int(exits[-1]), int(sites[-1]), int(index[-1])
        cursor.rows += int(known.sum())
        cursor.lost += int((~known).sum())
        return rows, fresh

    def release(self) -> None:
        """The rows taken so far are durable: the shim may overwrite their records."""
        self.ring.release(self.cursor.position)

    def _classify(
        self, before: np.ndarray[Any, Any], at: np.ndarray[Any, Any], operation: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
        pairs, first, inverse = np.unique((before << 32) | at, return_index=True, return_inverse=True)
        ids = np.empty(len(pairs), np.uint64)
        fresh: dict[str, Any] = {"class_id": [], "before": [], "at": [], "operation": []}
        for number, (pair, example) in enumerate(zip(pairs.tolist(), first.tolist(), strict=True)):
            key = (pair >> 32, pair & 0xFFFFFFFF)
            if key not in self._classes:
                names = (self.ring.site(key[0]), self.ring.site(key[1]))
                self._classes[key] = class_id(*names)
                fresh["class_id"].append(self._classes[key])
                fresh["before"].append(names[0])
                fresh["at"].append(names[1])
                fresh["operation"].append(OPERATIONS.get(int(operation[example]), "other"))
            ids[number] = self._classes[key]
        return ids[inverse], (fresh if fresh["class_id"] else {})
