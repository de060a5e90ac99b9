"""Reader of the shim's ring. The layout is that of `agent/shim/ring.h`; a test compares the two."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

MAGIC: Final = b"BAROGRPH"
VERSION: Final = 5
HEADER_BYTES: Final = 4096
CLOCKS: Final = {1: "CLOCK_MONOTONIC", 2: "CLOCK_MONOTONIC by the time stamp counter"}
RUNNING: Final = 1
FINALIZED: Final = 2
EXITED: Final = 256
"""Offset added to an exit status, so that 0 means none."""

HEADER: Final = np.dtype(
    {
        "names": ["magic", "version", "header_bytes", "record_bytes", "capacity", "site_capacity", "module_capacity",
                  "rank", "size", "pid", "clock", "started_ns", "started_unix_ns", "program",
                  "head", "dropped", "state", "sites", "modules", "exit", "exited_ns", "tail"],
        "formats": ["S8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4",
                    "<i4", "<i4", "<i4", "<u4", "<u8", "<u8", "S256",
                    "<u8", "<u8", "<u4", "<u4", "<u4", "<u4", "<u8", "<u8"],
        "offsets": [0, 8, 12, 16, 20, 24, 28,
                    32, 36, 40, 44, 48, 56, 64,
                    320, 328, 336, 340, 344, 348, 352, 384],
        "itemsize": HEADER_BYTES,
    }
)  # fmt: skip
MODULE: Final = np.dtype([("path", "S256")])
FRAMES: Final = 3
SITE: Final = np.dtype([("offset", "<u8", (FRAMES,)), ("module", "<u4", (FRAMES,)), ("frames", "<u4")])
RECORD: Final = np.dtype(
    [("enter_ns", "<u8"), ("exit_ns", "<u8"), ("p2p_ns", "<u8"), ("bytes", "<u8"), ("index", "<u8"),
     ("site", "<u4"), ("op", "<u2"), ("flags", "<u2"), ("messages", "<u8"), ("message_bytes", "<u8")]
)  # fmt: skip
EARLIER_RECORD: Final = np.dtype(RECORD.descr[:8])
"""Of version 4, which counted no messages."""
RECORDS: Final = {VERSION: RECORD, 4: EARLIER_RECORD}
"""Layout of a record by version of the ring, the newest first."""
BYTES_UNKNOWN: Final = 2**64 - 1
NAMED: Final = 2**64 - 1
"""A frame's offset if its module is a name given by the application."""

INTERVAL: Final = 1
"""The operation of intervals timed by the application; all others are collectives."""
OPERATIONS: Final = {
    INTERVAL: "Interval",
    8: "Barrier",
    9: "Allreduce",
    10: "Allgather",
    11: "Allgatherv",
    12: "Alltoall",
    13: "Alltoallv",
    14: "Alltoallw",
    15: "Reduce_scatter",
    16: "Reduce_scatter_block",
    17: "Bcast",
    18: "Scatter",
    19: "Step",
}

Records = npt.NDArray[np.void]


class RingError(Exception):
    """Not a valid ring. The text names the file, what was found and what was expected."""


class Ring:
    """One rank's ring, opened by a process other than its writer.

    Records are read with pread, so truncation of the file is an error and not a SIGBUS. Only the header is mapped,
    because the tail must be stored atomically.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise RingError(f"ring {path}: {error.strerror}, expected a readable and writable file") from error
        try:
            self._header_map = self._map()
        except BaseException:
            os.close(self._file)
            raise
        self._header: Any = np.frombuffer(self._header_map, dtype=HEADER)[0:1]
        # Fast access to the fields that are read at every step.
        self._words = memoryview(self._header_map).cast("Q")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, which stays on disk."""
        self._header = None
        self._words.release()
        self._header_map.close()
        os.close(self._file)

    def _map(self) -> mmap.mmap:
        size = os.fstat(self._file).st_size
        if size < HEADER_BYTES:
            raise RingError(f"ring {self.path}: {size} bytes, expected at least a header of {HEADER_BYTES}")
        header = np.frombuffer(os.pread(self._file, HEADER_BYTES, 0), dtype=HEADER)[0]

        def expect(field: str, *values: object) -> None:
            if (found := header[field].item()) not in values:
                raise RingError(f"ring {self.path}: {field} is {found!r}, expected {' or '.join(map(repr, values))}")

        expect("magic", MAGIC)
        expect("version", *RECORDS)
        expect("header_bytes", HEADER_BYTES)
        self._record = RECORDS[int(header["version"])]
        expect("record_bytes", self._record.itemsize)
        capacity = int(header["capacity"])
        if capacity == 0 or capacity & (capacity - 1):
            raise RingError(f"ring {self.path}: capacity is {capacity}, expected a power of two")
        for field in ("started_ns", "started_unix_ns"):
            if int(header[field]) >= 2**62:
                raise RingError(f"ring {self.path}: {field} is {header[field]}, expected less than {2**62}")
        if int(header["clock"]) not in CLOCKS:
            raise RingError(f"ring {self.path}: clock is {header['clock']}, expected one of {sorted(CLOCKS)}")
        # Constant fields are read once, from the checked header.
        self.rank = int(header["rank"])
        """Rank in MPI_COMM_WORLD."""
        self.size = int(header["size"])
        """Ranks in MPI_COMM_WORLD."""
        self.pid = int(header["pid"])
        """Id of the process that writes the ring."""
        self.program = _text(header["program"])
        """Path of the executable."""
        self.clock = CLOCKS[int(header["clock"])]
        """The shim's clock source; times are nanoseconds of CLOCK_MONOTONIC for any of them."""
        self.started_ns = int(header["started_ns"])
        """When MPI_Init returned, in nanoseconds of CLOCK_MONOTONIC: the first interval begins here."""
        self.started_unix_ns = int(header["started_unix_ns"])
        """The same instant in Unix nanoseconds."""
        self._modules_at = HEADER_BYTES
        self._module_capacity, self._site_capacity = int(header["module_capacity"]), int(header["site_capacity"])
        self._sites_at = self._modules_at + self._module_capacity * MODULE.itemsize
        self._records_at = self._sites_at + self._site_capacity * SITE.itemsize
        self.capacity = capacity
        whole = self._records_at + capacity * self._record.itemsize
        if size < whole:
            raise RingError(f"ring {self.path}: {size} bytes, expected {whole} for {capacity} records")
        return mmap.mmap(self._file, HEADER_BYTES)

    def _get(self, field: str) -> Any:
        return self._header[field][0]

    @property
    def dropped(self) -> int:
        """Collectives not recorded because the ring was full."""
        return self._words[_DROPPED]

    @property
    def finalized(self) -> bool:
        """True once MPI_Finalize was called."""
        return int(self._get("state")) == FINALIZED

    @property
    def exit_status(self) -> int | None:
        """Exit status of the process, 0 to 255, once it has called exit() or returned from main; else None.

        Stays None if the process is ended by a signal or _exit().
        """
        exited = int(self._get("exit"))
        return exited - EXITED if EXITED <= exited < 2 * EXITED else None

    @property
    def exited_unix_ns(self) -> int:
        """When the process exited, in Unix nanoseconds. Valid only if `exit_status` is not None."""
        return int(self._get("exited_ns")) - self.started_ns + self.started_unix_ns

    @property
    def tail(self) -> int:
        """Records released so far."""
        return self._words[_TAIL]

    @property
    def head(self) -> int:
        """Records written so far. Raises RingError if head and tail are inconsistent."""
        tail, head = self._words[_TAIL], self._words[_HEAD]
        if not tail <= head <= tail + self.capacity:
            raise RingError(f"ring {self.path}: head is {head}, expected {tail} to {tail + self.capacity}")
        return head

    def records(self, start: int, stop: int) -> Records:
        """A copy of records start..stop-1, which must lie between tail and head."""
        if start >= stop:
            return np.empty(0, RECORD)
        slot = start % self.capacity
        count = min(stop - start, self.capacity - slot)
        records = self._read(self._records_at + slot * self._record.itemsize, count, self._record)
        if start + count < stop:
            records = np.concatenate([records, self._read(self._records_at, stop - start - count, self._record)])
        return records if self._record is RECORD else _with_messages(records)

    def release(self, position: int) -> None:
        """Let the shim overwrite every record before `position`."""
        self._words[_TAIL] = position

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
            raise RingError(f"ring {self.path}: site is {index}, expected less than {sites}")
        site = self._read(self._sites_at + index * SITE.itemsize, 1, SITE)[0]
        count = int(site["frames"])
        if not 1 <= count <= FRAMES:
            raise RingError(f"ring {self.path}: site {index} has {count} frames, expected 1 to {FRAMES}")
        found = []
        for module, offset in zip(site["module"][:count].tolist(), site["offset"][:count].tolist(), strict=True):
            if module >= modules:
                raise RingError(f"ring {self.path}: module is {module}, expected less than {modules}")
            path = _text(self._read(self._modules_at + module * MODULE.itemsize, 1, MODULE)[0]["path"])
            found.append((path, offset))
        return found

    def _read(self, at: int, count: int, dtype: np.dtype[np.void]) -> Records:
        want = count * dtype.itemsize
        data = os.pread(self._file, want, at)
        if len(data) != want:
            raise RingError(f"ring {self.path}: {len(data)} bytes at {at}, expected {want}")
        return np.frombuffer(data, dtype=dtype)


def _with_messages(records: Records) -> Records:
    whole = np.zeros(len(records), RECORD)
    whole[list(EARLIER_RECORD.names or ())] = records
    return whole


def word(field: str) -> int:
    """Offset of a field in the header, in words of 64 bits."""
    offset: int = HEADER.fields[field][1]  # type: ignore[index]
    return offset // 8


_HEAD, _DROPPED, _TAIL = word("head"), word("dropped"), word("tail")


def _text(field: bytes) -> str:
    # The string ends at the first NUL; numpy strips trailing ones only.
    return bytes(field).partition(b"\0")[0].decode(errors="replace")
