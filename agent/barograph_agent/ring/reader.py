"""Reader of the shim's ring. The layout is that of `agent/shim/ring.h`; a test compares the two."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from barograph_agent.system.sockets import LIBRARY

MAGIC: Final = b"BAROGRPH"
VERSION: Final = 6
HEADER_BYTES: Final = 4096
CLOCKS: Final = {1: "CLOCK_MONOTONIC", 2: "CLOCK_MONOTONIC by the time stamp counter"}
MAX_COUNT: Final = 2**48
"""Of anything that a program does: sums over all ranks of a run are far below 2^63."""
MAX_CALLS: Final = 2**20
"""Of the table of calls, which is read as a whole; the shim's has 65,536."""
LAUNCHES: Final = 1024
"""MPI launches of a run that have a number, as in the shim's `launch.h`."""
LACKING: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of this process or node that say nothing about a ring."""
RUNNING: Final = 1
FINALIZED: Final = 2
EXITED: Final = 256
"""Offset added to an exit status, so that 0 means none."""

_FIELDS: Final = """
magic S8 0, version <u4 8, header_bytes <u4 12, record_bytes <u4 16, capacity <u4 20, site_capacity <u4 24,
module_capacity <u4 28, rank <i4 32, size <i4 36, pid <i4 40, clock <u4 44, started_ns <u8 48, started_unix_ns <u8 56,
program S256 64, head <u8 320, dropped <u8 328, state <u4 336, sites <u4 340, modules <u4 344, exit <u4 348,
exited_ns <u8 352, tail <u8 384, iteration_capacity <u4 392, call_capacity <u4 396, iteration_head <u8 448,
iterations_dropped <u8 456, call_head <u8 464, compared <u8 472, wanted <u8 512, iteration_tail <u8 520,
call_tail <u8 528, launch <u4 536, command_bytes <u4 540, command V3072 544
"""
_SPLIT: Final = [field.split() for field in _FIELDS.split(",")]
HEADER: Final = np.dtype(
    {
        "names": [name for name, _, _ in _SPLIT],
        "formats": [kind for _, kind, _ in _SPLIT],
        "offsets": [int(at) for _, _, at in _SPLIT],
        "itemsize": HEADER_BYTES,
    }
)
MODULE: Final = np.dtype([("path", "S256")])
FRAMES: Final = 3
SITE: Final = np.dtype([("offset", "<u8", (FRAMES,)), ("module", "<u4", (FRAMES,)), ("frames", "<u4")])
RECORD: Final = np.dtype(
    [("enter_ns", "<u8"), ("exit_ns", "<u8"), ("p2p_ns", "<u8"), ("bytes", "<u8"), ("index", "<u8"),
     ("site", "<u4"), ("op", "<u2"), ("flags", "<u2"), ("messages", "<u8"), ("message_bytes", "<u8")]
)  # fmt: skip
CALL: Final = np.dtype([("exit_ns", "<u8"), ("site", "<u2"), ("op", "<u2"), ("comm", "<u2"), ("detail", "<u2")])
BYTES_UNKNOWN: Final = 2**64 - 1
NAMED: Final = 2**64 - 1
"""A frame's offset if its module is a name given by the application."""

_LIBRARY: Final = ctypes.CDLL(str(LIBRARY))
_NAMES: Final = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(_LIBRARY, "operation_names"))).decode()
OPERATIONS: Final = {int(number): name for number, name in map(str.split, _NAMES.splitlines())}
"""Names of `enum ring_op` by number: of records, and behind them of calls and anchors only."""
INTERVAL, STEP = (next(number for number, name in OPERATIONS.items() if name == one) for one in ("Interval", "Step"))
"""The operations of intervals timed by the application, and of steps of a training; all others are of MPI. Of a step's
record `messages` is processor time of own work in nanoseconds, `message_bytes` the time in which parameters were
updated, and `bytes` is of the parameters."""

Records = npt.NDArray[np.void]


_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Want(NamedTuple):
    """What the shim is asked for, in one word of the header: calls, and a record each time the anchor comes.

    op: of the anchor, 0 for none. every: the anchor comes so often in an iteration. generation: 0 to 255. match: what
    must be equal beside site and op: nothing, the communicator (1), or that, the other rank and the tag (2); value:
    of `comm` or `detail`.
    """

    calls: bool = False
    op: int = 0
    site: int = 0
    match: int = 0
    value: int = 0
    every: int = 1
    generation: int = 0

    def word(self) -> int:
        """As in the header."""
        low = int(self.calls) | self.match << 1 | self.every << 8 | self.op << 16
        return low | self.generation << 24 | self.site << 32 | self.value << 48

    @classmethod
    def of(cls, word: int) -> Self:
        """From the header; any word is one."""
        match, every, op = word >> 1 & 3, word >> 8 & 255, word >> 16 & 255
        site, value, generation = word >> 32 & 0xFFFF, word >> 48 & 0xFFFF, word >> 24 & 255
        return cls(bool(word & 1), op, site, match, value, every, generation)


class RingError(Exception):
    """Not a valid ring. The text names the file, what was found and what was expected."""

    def __init__(self, path: Path, text: str) -> None:
        super().__init__(f"ring {path}: {text}")
        self.path = path


class Lane:
    """A table of records in a ring: of collectives, or of iterations. Without capacity there are none.

    Records are read with pread, so truncation of the file is an error and not a SIGBUS.
    """

    def __init__(self, path: Path, file: int, words: memoryview, at: int, capacity: int, fields: Sequence[str]) -> None:
        """at: where records begin in the file. fields: of the header, with head, dropped records and tail."""
        self.path, self.at, self.capacity = path, at, capacity
        self._file, self._words, self._head_field = file, words, fields[0]
        self._head, self._dropped, self._tail = map(word, fields)

    @property
    def dropped(self) -> int:
        """Records not written because the table was full."""
        return min(self._words[self._dropped], MAX_COUNT) if self.capacity else 0

    @property
    def tail(self) -> int:
        """Records released so far."""
        return self._words[self._tail] if self.capacity else 0

    @property
    def head(self) -> int:
        """Records written so far. Raises RingError if head and tail are inconsistent."""
        if not self.capacity:
            return 0
        tail, head = self._words[self._tail], self._words[self._head]
        if not tail <= head <= min(tail + self.capacity, MAX_COUNT):
            raise RingError(self.path, f"{self._head_field} is {head}, expected {tail} to {tail + self.capacity}")
        return head

    def records(self, start: int, stop: int) -> Records:
        """A copy of records start..stop-1, which must lie between tail and head, with values of a program."""
        records = self._wrapped(self.at, self.capacity, RECORD, start, stop)
        # As signed numbers: -1 is BYTES_UNKNOWN.
        if len(records) and (records["index"].max() > MAX_COUNT or records.view(np.int64).min() < -1):
            raise RingError(self.path, f"a record has a value beyond {2**63}, or a number beyond {MAX_COUNT}")
        return records

    def release(self, position: int) -> None:
        """Let the shim overwrite every record before `position`."""
        self._words[self._tail] = position

    def _wrapped(self, at: int, capacity: int, dtype: np.dtype[np.void], start: int, stop: int) -> Records:
        if start >= stop:
            return np.empty(0, dtype)
        slot = start % capacity
        count = min(stop - start, capacity - slot)
        records = self._read(at + slot * dtype.itemsize, count, dtype)
        if start + count < stop:
            records = np.concatenate([records, self._read(at, stop - start - count, dtype)])
        return records

    def _read(self, at: int, count: int, dtype: np.dtype[np.void]) -> Records:
        want = count * dtype.itemsize
        data = os.pread(self._file, want, at)
        if len(data) != want:
            raise RingError(self.path, f"{len(data)} bytes at {at}, expected {want}")
        return np.frombuffer(data, dtype=dtype)


class Ring(Lane):
    """One rank's ring, opened by a process other than its writer; as a lane that of collectives.

    Only the header is mapped, because the tail must be stored atomically.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in LACKING:
                raise
            raise RingError(path, f"{error.strerror}, expected a readable and writable file") from error
        try:
            records_at, capacity, iterations_at, iteration_capacity = self._check()
            self._address = _map_header(self._file)
        except BaseException:
            os.close(self._file)
            raise
        header = memoryview((ctypes.c_char * HEADER_BYTES).from_address(self._address)).cast("B")
        self._header: Any = np.frombuffer(header, dtype=HEADER)[0:1]
        # Fast access to the fields that are read at every step.
        words, self._halves = header.cast("Q"), header.cast("I")
        super().__init__(path, self._file, words, records_at, capacity, ("head", "dropped", "tail"))
        fields = ("iteration_head", "iterations_dropped", "iteration_tail")
        self.iterations = Lane(path, self._file, words, iterations_at, iteration_capacity, fields)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, which stays on disk."""
        self._header = None
        self._words.release()
        self._halves.release()
        _LIBC.munmap(self._address, HEADER_BYTES)
        os.close(self._file)

    @property
    def place(self) -> tuple[int, ...]:
        """What C needs to read records: `struct member` of `agent/shim/reader/reader.h`. Valid until `close`."""
        return self._address, self.at, self.capacity, self.started_ns, 0, 0, 0, self._file

    def _check(self) -> tuple[int, int, int, int]:
        """Where records and iterations are, each with their capacity."""
        size = os.fstat(self._file).st_size
        if size < HEADER_BYTES:
            raise RingError(self.path, f"{size} bytes, expected at least a header of {HEADER_BYTES}")
        header = np.frombuffer(os.pread(self._file, HEADER_BYTES, 0), dtype=HEADER)[0]

        fixed = {"magic": MAGIC, "version": VERSION, "header_bytes": HEADER_BYTES, "record_bytes": RECORD.itemsize}
        for field, value in fixed.items():
            if (found := header[field].item()) != value:
                raise RingError(self.path, f"{field} is {found!r}, expected {value!r}")
        capacity = int(header["capacity"])
        if capacity == 0 or capacity & (capacity - 1):
            raise RingError(self.path, f"capacity is {capacity}, expected a power of two")
        for field in ("started_ns", "started_unix_ns"):
            if int(header[field]) >= 2**62:
                raise RingError(self.path, f"{field} is {header[field]}, expected less than {2**62}")
        if int(header["clock"]) not in CLOCKS:
            raise RingError(self.path, f"clock is {header['clock']}, expected one of {sorted(CLOCKS)}")
        # Constant fields are read once, from the checked header.
        self.rank = int(header["rank"])
        """Rank in MPI_COMM_WORLD."""
        self.size = int(header["size"])
        """Ranks in MPI_COMM_WORLD."""
        self.pid = int(header["pid"])
        """Id of the process that writes the ring."""
        self.program = _text(header["program"])
        """Path of the executable."""
        self.command = header["command"].tobytes()[: int(header["command_bytes"])]
        """The command line when the shim was loaded, each word with a NUL behind it; empty if it is not known."""
        self.launch = int(header["launch"]) - 1 if int(header["launch"]) <= LAUNCHES else -1
        """Number of the MPI launch within the run, -1 if it is not known."""
        self.clock = CLOCKS[int(header["clock"])]
        """The shim's clock source; times are nanoseconds of CLOCK_MONOTONIC for any of them."""
        self.started_ns = int(header["started_ns"])
        """When MPI_Init returned, in nanoseconds of CLOCK_MONOTONIC: the first interval begins here."""
        self.started_unix_ns = int(header["started_unix_ns"])
        """The same instant in Unix nanoseconds."""
        self._modules_at = HEADER_BYTES
        self._module_capacity, self._site_capacity = int(header["module_capacity"]), int(header["site_capacity"])
        self._sites_at = self._modules_at + self._module_capacity * MODULE.itemsize
        records_at = self._sites_at + self._site_capacity * SITE.itemsize
        iterations_at = records_at + capacity * RECORD.itemsize
        iterations, self.call_capacity = int(header["iteration_capacity"]), int(header["call_capacity"])
        for field, found in (("iteration_capacity", iterations), ("call_capacity", self.call_capacity)):
            if found & (found - 1):
                raise RingError(self.path, f"{field} is {found}, expected 0 or a power of two")
        if self.call_capacity > MAX_CALLS:
            raise RingError(self.path, f"call_capacity is {self.call_capacity}, expected at most {MAX_CALLS}")
        self._calls_at = iterations_at + iterations * RECORD.itemsize
        whole = self._calls_at + self.call_capacity * CALL.itemsize
        if size < whole:
            raise RingError(self.path, f"{size} bytes, expected {whole} for {capacity} records")
        return records_at, capacity, iterations_at, iterations

    def _get(self, field: str) -> Any:
        return self._header[field][0]

    @property
    def finalized(self) -> bool:
        """True once MPI_Finalize was called."""
        return self._halves[_STATE] == FINALIZED

    @property
    def exit_status(self) -> int | None:
        """Exit status of the process, 0 to 255, once it has called exit() or returned from main; else None.

        Stays None if the process is ended by a signal or _exit().
        """
        exited = self._halves[_EXIT]
        return exited - EXITED if EXITED <= exited < 2 * EXITED else None

    @property
    def exited_unix_ns(self) -> int:
        """When the process exited, in Unix nanoseconds. Valid only if `exit_status` is not None."""
        return int(self._get("exited_ns")) - self.started_ns + self.started_unix_ns

    def calls(self, start: int) -> tuple[int, Records]:
        """The calls from number `start` on that are not overwritten, and the number of the first. Tells the shim so."""
        if not self.call_capacity:
            return start, np.empty(0, CALL)
        head = self._words[_CALL_HEAD]
        first = max(start, head - self.call_capacity)
        if head < start or head >= 2**62:
            raise RingError(self.path, f"call_head is {head}, expected at least {start}")
        found = self._wrapped(self._calls_at, self.call_capacity, CALL, first, head)
        # What was overwritten while it was read; the entry that is being written is one more.
        stale = max(self._words[_CALL_HEAD] + 1 - self.call_capacity - first, 0)
        self._words[_CALL_TAIL] = head
        return min(first + stale, head), found[stale:]

    @property
    def compared(self) -> int:
        """Calls that the shim has looked up, and that were not the anchor."""
        return self._words[_COMPARED] if self.call_capacity else 0

    @property
    def wanted(self) -> Want:
        """What was last asked for."""
        return Want.of(self._words[_WANTED])

    def want(self, want: Want) -> None:
        """Ask the shim: one store, so that it reads this or what was wanted before."""
        if self.call_capacity:
            self._words[_WANTED] = want.word()

    def site(self, index: int) -> str:
        """Call site `index` as module+offset of each frame, innermost first; "start" for 0, the start of the run.

        A site named by the application has that name.
        """
        if index == 0:
            return "start"
        frames = self.frames(index)
        return " < ".join(path if at == NAMED else f"{Path(path).name}+{at:#x}" for path, at in frames)

    def frames(self, index: int) -> list[tuple[str, int]]:
        """Module path and offset of each frame of call site `index` (above 0), innermost first."""
        sites = min(int(self._get("sites")), self._site_capacity)
        modules = min(int(self._get("modules")), self._module_capacity)
        if not 0 < index < sites:
            raise RingError(self.path, f"site is {index}, expected less than {sites}")
        site = self._read(self._sites_at + index * SITE.itemsize, 1, SITE)[0]
        count = int(site["frames"])
        if not 1 <= count <= FRAMES:
            raise RingError(self.path, f"site {index} has {count} frames, expected 1 to {FRAMES}")
        found = []
        for module, offset in zip(site["module"][:count].tolist(), site["offset"][:count].tolist(), strict=True):
            if module >= modules:
                raise RingError(self.path, f"module is {module}, expected less than {modules}")
            path = _text(self._read(self._modules_at + module * MODULE.itemsize, 1, MODULE)[0]["path"])
            found.append((path, offset))
        return found


def _map_header(file: int) -> int:
    """The address of the header. Not by `mmap`, which holds a second descriptor of each ring. Raises OSError."""
    address = _LIBC.mmap(None, HEADER_BYTES, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, file, 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), "the header of a ring cannot be mapped")
    return int(address)


def word(field: str) -> int:
    """Offset of a field in the header, in words of 64 bits."""
    offset: int = HEADER.fields[field][1]  # type: ignore[index]
    return offset // 8


_CALL_HEAD, _CALL_TAIL, _COMPARED, _WANTED = map(word, ("call_head", "call_tail", "compared", "wanted"))
_STATE, _EXIT = (HEADER.fields[field][1] // 4 for field in ("state", "exit"))  # type: ignore[index]


def _text(field: bytes) -> str:
    # The string ends at the first NUL; numpy strips trailing ones only.
    return bytes(field).partition(b"\0")[0].decode(errors="replace")
