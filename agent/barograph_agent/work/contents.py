"""Digests of files, bounded in bytes."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from barograph_agent.reduce.elf import build_id
from barograph_agent.system.disk import NotRegular
from barograph_agent.system.system import System
from barograph_agent.work.salt import Salt

WHOLE_BYTES: Final = 16 * 2**20
"""Up to this size a file is read as a whole; of a bigger one as much at both ends together."""
TOTAL_BYTES: Final = 32 * 2**20
"""Limit for all files of a job. Files beyond it are known by their sizes."""
STEP_BYTES: Final = 2**18
_ABSENT: Final = {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.ENXIO}


class OutOfTime(Exception):
    """The time for reading is over."""


class Content(NamedTuple):
    """What is known of a regular file. digest: empty if unknown, then `trouble` says why."""

    digest: str
    size: int
    trouble: str = ""


def parts(size: int) -> list[tuple[int, int]]:
    """The parts of a file that are read, as offset and length."""
    half = WHOLE_BYTES // 2
    return [(0, size)] if size <= WHOLE_BYTES else [(0, half), (size - half, half)]


class Contents:
    """Reads the files of one job. Not for use in several threads.

    deadline: monotonic seconds, after which every method raises OutOfTime.
    """

    def __init__(self, system: System, salt: Salt, deadline: float) -> None:
        self._clock, self._disk = system.clock, system.disk
        self._salt = salt
        self._deadline = deadline
        self._left = TOTAL_BYTES
        self.outputs: set[tuple[int, int]] = set()
        """Devices and inodes of files that have no digest because processes write to them."""

    def of_file(self, path: Path, changed_before: float = math.inf, most_bytes: float = math.inf) -> Content | None:
        """The content of a file, None if there is no regular file.

        changed_before: Unix seconds; a file that was changed later has no digest, nor has one of more than
        `most_bytes`. Never opens anything but a regular file: opening a fifo or a device has effects.
        """
        try:
            with self._opened(path) as file:
                return self._content(file, changed_before, most_bytes)
        except NotRegular as error:
            silent = stat.S_ISDIR(error.mode) or stat.S_ISCHR(error.mode)
            return None if silent else Content("", -1, "no regular file")
        except OSError as error:
            absent = error.errno in _ABSENT
            return None if absent else Content("", -1, f"unreadable: {error.strerror or 'input/output error'}")
        except ValueError:
            return None  # a name with a NUL

    def of_executable(self, path: Path) -> Content:
        """The build id of an executable as a digest, else its content's."""
        try:
            with self._opened(path) as file:
                found = build_id(lambda size, at: self._disk.pread(file, size, at))
                size = self._disk.status(file).st_size
                return Content(self._salt.build(found), size) if found else self._content(file, math.inf)
        except (OSError, ValueError) as error:
            text = error.strerror if isinstance(error, OSError) else ""
            return Content("", -1, f"unreadable: {text or 'input/output error'}")

    def beginning(self, path: Path, most_bytes: int) -> bytes:
        """The first bytes of a file; empty if it cannot be read."""
        try:
            with self._opened(path) as file:
                return self._disk.pread(file, most_bytes, 0)
        except (OSError, ValueError):
            return b""

    def of_bytes(self, data: bytes) -> str:
        """The digest of a content that is no file."""
        return self._salt.content(hashlib.sha256(b"%d:" % len(data) + data).digest())

    def kind(self, path: Path) -> int:
        """The type of the file that a path leads to, as in its mode; 0 if it cannot be told."""
        try:
            with self._opened(path):
                return stat.S_IFREG
        except NotRegular as error:
            return stat.S_IFMT(error.mode)
        except OSError:
            return 0

    @contextmanager
    def _opened(self, path: Path) -> Iterator[int]:
        self._check_time()
        file = self._disk.open_regular(path)
        try:
            yield file
        finally:
            self._disk.close(file)

    def _content(self, file: int, changed_before: float, most_bytes: float = math.inf) -> Content:
        before = self._disk.status(file)
        size = before.st_size
        if trouble := self._trouble(before, changed_before, most_bytes):
            return Content("", size, trouble)
        planned = sum(length for _, length in parts(size))
        if planned > self._left:
            return Content("", size, f"not read: more than {TOTAL_BYTES // 2**20} MB in all files")
        self._left -= planned
        checksum = hashlib.sha256(b"%d:" % size)
        for at, length in parts(size):
            self._update(checksum.update, file, at, length)
        if _identity(self._disk.status(file)) != _identity(before):
            return Content("", size, "changed while it was read")
        return Content(self._salt.content(checksum.digest()), size)

    def _trouble(self, status: os.stat_result, changed_before: float, most_bytes: float) -> str:
        """Why a file is not read; empty if it is."""
        if status.st_mtime >= changed_before:
            return "written since the program started"
        if status.st_size > most_bytes:
            return f"more than {most_bytes} bytes"
        return "written by a process" if (status.st_dev, status.st_ino) in self.outputs else ""

    def _update(self, update: Callable[[bytes], None], file: int, at: int, length: int) -> None:
        while length > 0:
            self._check_time()
            data = self._disk.pread(file, min(length, STEP_BYTES), at)
            if not data:
                return  # it has become shorter, which its status tells
            update(data)
            at, length = at + len(data), length - len(data)

    def _check_time(self) -> None:
        if self._clock.monotonic() >= self._deadline:
            raise OutOfTime


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
