"""Writer of a ring in Python, for intervals timed by the application, in the layout of the shim's writer.

The publication order is that of `agent/shim/writer.c`: the record, then the head. CPython stores an element of a
memoryview of unsigned 64-bit numbers with one aligned 8-byte store, which is atomic. x86-64 keeps the order of stores.
On machines that do not (AArch64) a reader could see the head before the record, for the few nanoseconds between the two
stores; Python offers no stronger guarantee.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from barograph_agent.ring.reader import (
    BYTES_UNKNOWN,
    FINALIZED,
    HEADER,
    HEADER_BYTES,
    INTERVAL,
    LAUNCHES,
    MAGIC,
    MODULE,
    NAMED,
    RECORD,
    RUNNING,
    SITE,
    VERSION,
    word,
)
from barograph_agent.system.clock import CLOCK, Clock

PREFIX: Final = "app-"
"""File name prefix of these rings: they contain no collectives, so ranks cannot be compared by them."""
CAPACITY: Final = 16384
NAMES: Final = 1024
OTHER: Final = "other"
"""The name of all sites beyond the first NAMES."""
_CLOCK_MONOTONIC: Final = 1
_RECORD: Final = struct.Struct("<8Q")
_MODULES_AT: Final = HEADER_BYTES
_SITES_AT: Final = _MODULES_AT + (NAMES + 2) * MODULE.itemsize
_RECORDS_AT: Final = _SITES_AT + (NAMES + 2) * SITE.itemsize
_SIZE: Final = _RECORDS_AT + CAPACITY * RECORD.itemsize


class RingWriter:
    """A ring of this process, in `directory`. Thread-safe. Raises OSError if the file system has no room for it.

    rank, size: of the processes started together; 0 and 1 for a single process. launch: as in `Ring`.
    """

    def __init__(self, directory: Path, rank: int, size: int, clock: Clock = CLOCK, launch: int = -1) -> None:
        # Reentrant: a signal handler may record an interval at any point.
        self._lock = threading.RLock()
        self._sites: dict[str, int] = {}
        path = directory / f"{PREFIX}{rank}.{os.getpid()}.{clock.monotonic_ns()}.ring"
        # A file with the suffix .ring is complete.
        draft = path.with_suffix(".tmp")
        self._memory = _map(draft)
        header = np.frombuffer(self._memory, HEADER, 1)
        for name, value in {
            "version": VERSION,
            "header_bytes": HEADER_BYTES,
            "record_bytes": RECORD.itemsize,
            "capacity": CAPACITY,
            "site_capacity": NAMES + 2,
            "module_capacity": NAMES + 2,
            "rank": rank,
            "size": size,
            "pid": os.getpid(),
            "clock": _CLOCK_MONOTONIC,
            "launch": launch + 1 if launch < LAUNCHES else 0,
            "started_ns": clock.monotonic_ns(),
            "started_unix_ns": clock.now_ns(),
            "program": os.fsencode(sys.executable)[-255:],
            "state": RUNNING,
            "sites": 1,
        }.items():
            header[name] = value
        self._state = header["state"]
        self._counts = header["sites"], header["modules"]
        self.put = _put_into(self._memory, self._lock)
        """Record one interval: enter and end in nanoseconds of CLOCK_MONOTONIC, site number."""
        header["magic"] = MAGIC
        draft.rename(path)

    def site(self, name: str) -> int:
        """The site number of a name; beyond NAMES names, that of OTHER."""
        with self._lock:
            if name not in self._sites and len(self._sites) >= NAMES:
                name = OTHER
            if name not in self._sites:
                self._sites[name] = self._add(name)
            return self._sites[name]

    def finish(self) -> None:
        """Mark the ring as finished: no records follow."""
        self._state[0] = FINALIZED

    def _add(self, name: str) -> int:
        sites, modules = self._counts
        module, site = int(modules[0]), int(sites[0])
        text = name.encode(errors="replace")[: MODULE.itemsize - 1]
        start = _MODULES_AT + module * MODULE.itemsize
        self._memory[start : start + len(text)] = text
        entry = np.frombuffer(self._memory, SITE, 1, _SITES_AT + site * SITE.itemsize)
        entry["offset"][0, 0], entry["module"][0, 0], entry["frames"] = NAMED, module, 1
        # Counts are stored after the entries: a reader reads entries below the count.
        modules[0] = module + 1
        sites[0] = site + 1
        return site


def _put_into(memory: mmap.mmap, lock: threading.RLock) -> Callable[[int, int, int], None]:
    """The function `RingWriter.put`. If the ring is full, the interval is counted as dropped.

    A closure, because each attribute lookup would take a tenth of the total time.
    """
    words, pack = memoryview(memory).cast("Q"), _RECORD.pack_into
    acquire, release = lock.acquire, lock.release
    head_word, tail_word, dropped_word = word("head"), word("tail"), word("dropped")
    unknown, flags, size, start, mask = BYTES_UNKNOWN, INTERVAL << 32, RECORD.itemsize, _RECORDS_AT, CAPACITY - 1
    head = dropped = 0
    room = CAPACITY  # tail + CAPACITY when the tail was last read

    def put(enter: int, end: int, site: int) -> None:
        nonlocal head, dropped, room
        acquire()
        try:
            if head == room:
                room = words[tail_word] + CAPACITY
                if head == room:
                    dropped += 1
                    words[dropped_word] = dropped
                    return
            pack(memory, start + (head & mask) * size, enter, end, 0, unknown, head + dropped, site | flags, 0, 0)
            head += 1
            words[head_word] = head
        finally:
            release()

    return put


def _map(path: Path) -> mmap.mmap:
    """Map a new file of full size, with its memory reserved: on a full file system a store would raise SIGBUS."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.posix_fallocate(file, 0, _SIZE)
        return mmap.mmap(file, _SIZE)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)
