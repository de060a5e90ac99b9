"""Files that must survive a crash."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import Final

MAX_READ_BYTES: Final = 2**28
"""Of a file that is read as a whole."""


class NotRegular(OSError):
    """A path leads to something else than a regular file. mode: what it is."""

    def __init__(self, path: Path, mode: int) -> None:
        super().__init__(f"{path}: no regular file")
        self.mode = mode


class Disk:
    """Files by path and by descriptor. Every method raises OSError as the operating system does.

    What was written survives the death of the process; of the node, only what was synced. A name survives the death of
    the node once its directory was synced.
    """

    close = staticmethod(os.close)
    pread = staticmethod(os.pread)
    """pread(descriptor, bytes, offset)."""
    resize = staticmethod(os.ftruncate)
    status = staticmethod(os.fstat)

    def sync(self, descriptor: int) -> None:
        """Make the content of a file durable."""
        os.fsync(descriptor)

    def sync_data(self, descriptor: int) -> None:
        """The same without its times."""
        os.fdatasync(descriptor)

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        """Open a file; returns its descriptor. Children do not inherit it."""
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def open_regular(self, path: Path) -> int:
        """Open a regular file to read. Raises NotRegular for anything else, which is not opened."""
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            mode = os.fstat(place).st_mode
            if not stat.S_ISREG(mode):
                raise NotRegular(path, mode)
            # The same file, whatever its path leads to by now.
            return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            os.close(place)

    def pwrite(self, descriptor: int, parts: Sequence[bytes | memoryview], at: int) -> int:
        """Write at an offset; returns the number of bytes written, fewer than given where the disk is full."""
        return os.pwritev(descriptor, parts, at)

    def reserve(self, descriptor: int, size: int) -> None:
        """Allocate space for so many bytes."""
        os.posix_fallocate(descriptor, 0, size)

    def lock(self, descriptor: int) -> None:
        """Lock an open file for this process. Raises OSError if another process has the lock."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @contextlib.contextmanager
    def locked(self, path: Path) -> Iterator[None]:
        """Holds the lock of a file or a directory. Raises BlockingIOError if another process has it."""
        descriptor = self.open(path, os.O_RDONLY)
        try:
            try:
                self.lock(descriptor)
            except BlockingIOError:
                raise BlockingIOError(errno.EAGAIN, "locked by another process", str(path)) from None
            yield
        finally:
            self.close(descriptor)

    def make_directory(self, path: Path, *, parents: bool = False, exist_ok: bool = True) -> None:
        """Create a directory that only its owner can enter."""
        path.mkdir(mode=0o700, parents=parents, exist_ok=exist_ok)

    def sync_directory(self, path: Path) -> None:
        """Make names in a directory durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def names(self, path: Path) -> list[str]:
        """Names in a directory, sorted."""
        return sorted(os.listdir(path))  # noqa: PTH208

    def some_names(self, path: Path, most: int) -> list[str]:
        """At most so many names in a directory, whichever come first, sorted: a directory may have millions."""
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in islice(entries, most))

    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory of this name."""
        return path.exists()

    def is_link(self, path: Path) -> bool:
        """Whether a path is a symbolic link."""
        return path.is_symlink()

    def size(self, path: Path) -> int:
        """Size of a file in bytes."""
        return path.stat().st_size

    def free_bytes(self, path: Path) -> int:
        """Free space of the file system."""
        return shutil.disk_usage(path).free

    def read(self, path: Path, most: int = MAX_READ_BYTES) -> bytes:
        """The content of a regular file of at most `most` bytes. Raises NotRegular for anything else."""
        with os.fdopen(self.open_regular(path), "rb") as file:
            if (size := os.fstat(file.fileno()).st_size) > most:
                raise OSError(errno.EFBIG, f"{size} bytes, expected at most {most}", str(path))
            return file.read(most)  # it may grow meanwhile

    def check_own(self, path: Path) -> None:
        """Check that a path is a directory of this user, and no link. Raises PermissionError."""
        os.close(self._open_own(path))

    def read_own(self, path: Path) -> bytes:
        """The content of a regular file of this user, in a directory of this user. Raises PermissionError."""
        place = self._open_own(path.parent)
        try:
            return self._read_in(place, path.name)
        finally:
            os.close(place)

    def remove_marked(self, path: Path, mark: str, content: bytes, left: Set[str] = frozenset()) -> None:
        """Delete a directory of this user, as far as possible, if its file `mark` has this content: nothing else is.

        left: names in it that stay, and the directory with them.
        """
        with contextlib.suppress(OSError):
            place = self._open_own(path)
            try:
                if self._read_in(place, mark) != content:
                    return
                # The mark is last: what is interrupted can be repeated.
                for name in sorted(set(os.listdir(place)) - left, key=lambda name: name == mark):  # noqa: PTH208
                    shutil.rmtree(name, ignore_errors=True, dir_fd=place)
                    with contextlib.suppress(OSError):
                        os.unlink(name, dir_fd=place)
            finally:
                os.close(place)
            path.rmdir()

    def _open_own(self, path: Path) -> int:
        try:
            place = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except NotADirectoryError as error:
            raise PermissionError(f"{path} is not a directory, expected one of this user's") from error
        if (owner := os.fstat(place).st_uid) != os.getuid():
            os.close(place)
            raise PermissionError(f"{path} belongs to uid {owner}, expected {os.getuid()}")
        return place

    @staticmethod
    def _read_in(place: int, name: str) -> bytes:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
                raise PermissionError(f"{name} is no regular file of uid {os.getuid()}")
            return file.read(MAX_READ_BYTES)

    def replace(self, path: Path, data: bytes) -> None:
        """Replace the content of a file: after a crash or power failure it is the old content or the new."""
        part = path.with_name(path.name + ".part")
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)

    def rename(self, path: Path, target: Path) -> None:
        """Put a file in the place of another one: after a crash or power failure it is the old file or the new."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        path.replace(target)
        self.sync_directory(target.parent)

    def database(self, path: Path) -> sqlite3.Connection:
        """A database of this process alone: its transactions survive the death of the node. Raises sqlite3.Error."""
        database = sqlite3.connect(path)
        # Without shared memory, which needs a file more, and with one sync for each transaction.
        for pragma in (
            "auto_vacuum = INCREMENTAL",
            "locking_mode = EXCLUSIVE",
            "journal_mode = WAL",
            "synchronous = FULL",
            "wal_autocheckpoint = 256",
        ):
            database.execute(f"PRAGMA {pragma}")
        return database

    def is_open(self, path: Path) -> bool:
        """Whether this process has the file open."""
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(OSError):
                if descriptor.samefile(path):
                    return True
        return False

    def unlink(self, path: Path, *, missing_ok: bool = False) -> None:
        """Delete a file."""
        path.unlink(missing_ok=missing_ok)

    def remove_directory(self, path: Path) -> None:
        """Delete an empty directory; nothing if it is not empty or does not exist."""
        with contextlib.suppress(OSError):
            path.rmdir()


DISK: Final = Disk()
