"""The part of the way of a record that is C. Its structures are those of `agent/shim/reader/reader.h`."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from barograph_agent.reduce.phases import BINS, EDGES
from barograph_agent.ring.reader import RECORD, Ring, RingError
from barograph_agent.system.sockets import LIBRARY

MAX_POINTS: Final = 8192
"""Sync points in a block, further limited to a quarter of a ring's capacity: blocks end before it is full."""
MAX_CLASSES: Final = 64
"""Pairs of call sites whose intervals are summed, the first ones of a run; further ones are in the sums behind them."""
PAIR_SLOTS: Final = 4 * MAX_CLASSES
CACHED_POINTS: Final = 8192
"""Points of all ranks that are read and summed at a time: what the sums of these need fits into a core's cache."""
MIN_CHUNK, MAX_CHUNK = 64, 256
"""The same of one rank."""
FAILURES: Final = {
    -1: "head and tail are inconsistent",
    -2: "the file has fewer records than its header says",
    -3: "a record has a value that no program can have",
    -4: "a record has another number than expected",
    -5: "an interval ends before it begins, expected ascending times",
}

MEMBER: Final = np.dtype(
    [(name, np.uint64) for name in ("header", "records_at", "capacity", "started_ns", "position", "tail", "head")]
    + [("file", np.int64)]
)
POINT: Final = np.dtype([(name, np.int64) for name in ("enter", "exit", "gap", "p2p", "messages", "message_bytes")])


_MOMENTS: Final = ("sum_seconds", "sum_squares", "sum_cubes", "min_seconds", "max_seconds", "ended_at")
BLOCK: Final = ("class_id", "first_index", "count", *_MOMENTS)
"""Columns of blocks of intervals."""


INTERVAL: Final[dict[str, npt.DTypeLike]] = {
    "parts": RECORD, "records": RECORD, "is_iteration": bool, "numbers": np.int64, "pair": np.uint32,
    "place": np.uint32, "index": np.int64, "seconds": np.float64, "ended": np.int64, "pairs": np.uint64,
    "first": np.uint32,
}  # fmt: skip


class _Block(ctypes.Structure):
    _fields_ = (
        [("members", ctypes.c_void_p)]
        + [(name, ctypes.c_uint64) for name in ("ranks", "max_points", "chunk", "first", "length")]
        + [(name, ctypes.c_void_p) for name in ("records", "points", "extremes", "seen", "pair", "sizes", "sums")]
        + [(name, ctypes.c_void_p) for name in ("pairs", "table", "classes", "edges")]
        + [(name, ctypes.c_uint64) for name in ("class_bytes", "pair_count", "is_training", "failed", "count")]
        + [(name, ctypes.c_int64) for name in ("least_wait", "first_exit", "last_exit", "last_bytes")]
    )


class _Intervals(ctypes.Structure):
    _fields_ = (
        [(name, ctypes.c_void_p) for name in ("member", "recalled")]
        + [("recalled_count", ctypes.c_uint64), ("recalled_before", ctypes.c_int64)]
        + [(name, ctypes.c_uint64) for name in ("position", "stop", "head")]
        + [(f"iteration_{name}", ctypes.c_uint64) for name in ("position", "stop", "head", "limit")]
        + [(name, ctypes.c_uint64) for name in ("iterations_at", "iteration_capacity", "absorbs", "is_final", "slots")]
        + [(name, ctypes.c_uint64) for name in ("last_exit", "last_site")]
        + [(name, ctypes.c_int64) for name in ("last_collective", "last_iteration", "absorbed")]
        + [(name, ctypes.c_void_p) for name in INTERVAL]
        + [("table", ctypes.c_void_p)]
        + [(name, ctypes.c_uint64) for name in ("length", "kept", "count", "lost", "pair_count")]
    )


class _Reduction(ctypes.Structure):
    _fields_ = (
        [(name, ctypes.c_void_p) for name in ("class_ids", "index", "seconds", "ended")]
        + [(name, ctypes.c_uint64) for name in ("length", "rows", "slots")]
        + [(name, ctypes.c_void_p) for name in ("class_of", "ids", "counts", "positions", "open", "table")]
        + [(name, ctypes.c_void_p) for name in BLOCK]
    )


@cache
def load() -> ctypes.CDLL:
    """The library. Its functions do not hold the interpreter's lock. Raises OSError if it is not installed."""
    found = ctypes.CDLL(str(LIBRARY))
    found.intervals_reduce.restype = ctypes.c_uint64
    found.rings_look.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p]
    found.rings_look.restype = ctypes.c_int64
    found.block_seconds.argtypes, found.block_seconds.restype = [ctypes.c_double], ctypes.c_double
    return found


class RingTable:
    """All rings of a node, read in one call. Valid until one of them is closed."""

    def __init__(self, rings: Sequence[Ring] = ()) -> None:
        self._members = np.array([ring.place for ring in rings], MEMBER)
        self._fullest = np.zeros(2)
        self._places = self._members.ctypes.data, len(rings), self._fullest.ctypes.data
        self._look = load().rings_look

    def fill(self) -> tuple[int, float, float]:
        """The first ring whose file has lost its header, -1 without one; fullest shares of records, iterations."""
        cut: int = self._look(*self._places)
        records, iterations = self._fullest.tolist()
        return cut, records, iterations


class Block:
    """Sync points of the ranks of one node, summed a block at a time, in memory that the next block uses again.

    `now` has what `reader.h` describes. rings: the lowest rank first.
    """

    def __init__(self, rings: list[Ring]) -> None:
        self._rings, ranks = rings, len(rings)
        points = max(min([MAX_POINTS, *(ring.capacity // 4 for ring in rings)]), 1)
        chunk = min(max(CACHED_POINTS // ranks, MIN_CHUNK), MAX_CHUNK)
        self.members = np.array([ring.place for ring in rings], MEMBER)
        self.sums = np.zeros((ranks, 7), np.int64)
        """`struct rank_sums` of each rank: nanoseconds of own work, waiting and other calls, messages, their bytes,
        points at which it came last, and by how many nanoseconds."""
        names, sizes = ("count", "times", "sent", "bin_counts", "bin_sums", "own"), (1, 5, 3, BINS, BINS, ranks)
        each = np.dtype([(name, np.float64, (size,)) for name, size in zip(names, sizes, strict=True)])
        self.classes = np.zeros(MAX_CLASSES + 1, each)
        """`struct class_sums` of each pair of call sites, over the run. Times are nanoseconds."""
        self._pairs = np.zeros(MAX_CLASSES, np.uint64)
        arrays: dict[str, npt.NDArray[Any]] = {
            "members": self.members,
            "records": np.zeros(chunk + 1, RECORD),
            "points": np.zeros((ranks, chunk), POINT),
            "extremes": np.zeros((chunk, 6), np.int64),
            "seen": np.zeros(chunk, np.uint32),
            "pair": np.zeros(chunk, np.uint32),
            "sizes": np.zeros(chunk, np.int64),
            "sums": self.sums,
            "pairs": self._pairs,
            "table": np.zeros(PAIR_SLOTS, np.uint32),
            "classes": self.classes,
            "edges": EDGES,
        }
        self._arrays = arrays  # which live as long as their addresses
        places = _places(arrays)
        self.now = _Block(ranks=ranks, max_points=points, chunk=chunk, class_bytes=each.itemsize, **places)
        self._place = ctypes.byref(self.now)
        self._library = load()

    def read(self, *, final: bool, first: bool) -> bool:
        """Whether there is another block, which is then summed. first: none was read in this step. Raises RingError."""
        status: int = self._library.block_read(self._place, int(final), int(first))
        if status < 0:
            raise RingError(self._rings[self.now.failed].path, FAILURES[status])
        return status > 0

    @property
    def pairs(self) -> list[int]:
        """Call sites at the ends of intervals: the one before times 2^32, plus the later one."""
        pairs: list[int] = self._pairs[: self.now.pair_count].tolist()
        return pairs


def _slots(length: int) -> int:
    """Of a table for so many keys: a power of two, of which a quarter is used at most."""
    return 1 << (4 * length).bit_length()


def _places(arrays: Mapping[str, npt.NDArray[Any]]) -> dict[str, int]:
    return {name: array.ctypes.data for name, array in arrays.items()}


class NextIntervals:
    """Intervals of one rank, read and merged with its iterations in memory that the next ones use again.

    `now` has what `intervals.h` describes, `to` its arrays.
    """

    def __init__(self, ring: Ring) -> None:
        self._ring, self._most = ring, -1
        self._member = np.array([ring.place], MEMBER)
        self.now = _Intervals(
            member=self._member.ctypes.data,
            iterations_at=ring.iterations.at,
            iteration_capacity=ring.iterations.capacity,
        )
        self.to: dict[str, npt.NDArray[Any]] = {}

    def next(self, recalled: npt.NDArray[np.void], **now: int) -> None:
        """Read the next ones, for which `now` has what is given. Raises RingError."""
        most = now["stop"] - now["position"] + len(recalled)
        most += max(now["iteration_stop"] - now["iteration_position"], 0)
        if most > self._most:
            self._most = 1 << most.bit_length()
            self.to = {name: np.empty(self._most + 2, dtype) for name, dtype in INTERVAL.items()}
            self._table = np.empty(_slots(self._most), np.uint32)
            for name, array in [*self.to.items(), ("table", self._table)]:
                setattr(self.now, name, array.ctypes.data)
        self.now.slots = _slots(most)
        self._table[: self.now.slots] = 0
        for name, value in now.items():
            setattr(self.now, name, value)
        self.now.recalled, self.now.recalled_count = recalled.ctypes.data, len(recalled)
        status = load().intervals_next(ctypes.byref(self.now))
        if status < 0:
            raise RingError(self._ring.path, FAILURES[status])


def reduce_intervals(rows: int, *columns: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """The columns of BLOCK of (n,) intervals: class ids, indices, seconds, and ends in Unix seconds, in their order."""
    length = len(columns[0])
    scratch = {"class_of": 4, "ids": 8, "counts": 8, "positions": 8, "open": 56}
    arrays: dict[str, npt.NDArray[Any]] = {name: np.empty(length * size, np.uint8) for name, size in scratch.items()}
    arrays["table"] = np.zeros(_slots(length), np.uint32)
    to: dict[str, npt.NDArray[Any]] = {name: np.empty(length) for name in BLOCK}
    to |= {"class_id": np.empty(length, np.uint64), "first_index": np.empty(length, np.int64)}
    to["count"] = np.empty(length, np.int64)
    given = dict(zip(("class_ids", "index", "seconds", "ended"), map(np.ascontiguousarray, columns), strict=True))
    places = _places(arrays) | _places(to) | _places(given)
    now = _Reduction(length=length, rows=rows, slots=len(arrays["table"]), **places)
    count = load().intervals_reduce(ctypes.byref(now))
    return {name: column[:count] for name, column in to.items()}
