"""A disk that loses what was not synced, fills up, is slow, and fails; and processes that die at any of its calls."""

from __future__ import annotations

import errno
import os
import random
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from barograph_agent.system.disk import Disk
from simulation.machine import Killed, Process


@dataclass
class _File:
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)
    """Writes since the last sync; an offset with no bytes is a new length."""
    owner: tuple[int, int] | None = None
    """Process and descriptor that have locked it, as flock does."""


class Platters:
    """What is on one node's disk. capacity: bytes."""

    def __init__(self, random: random.Random) -> None:
        self.random = random
        self.capacity = 2**40
        self.names: dict[Path, _File] = {}
        self.directories: set[Path] = set()
        self.links: set[Path] = set()
        """Directories that are on storage of their own."""
        self.locks: dict[Path, _File] = {}
        """Directories that were opened, which can be locked."""
        self._log: list[tuple[Path, _File | None]] = []
        """Changes of names that a loss of power may undo, in their order: new content of a name, None if deleted."""
        self._durable: dict[Path, _File] = {}

    @property
    def used(self) -> int:
        """Bytes of all files."""
        return sum(len(file.data) for file in self.names.values())

    def name(self, path: Path, file: _File | None) -> None:
        """Give a file a name, or delete the name."""
        self._log.append((path, file))
        if file is None:
            self.names.pop(path, None)
        else:
            self.names[path] = file

    def settle_names(self) -> None:
        """Make all names durable, as the journal of a file system does at a sync."""
        for path, file in self._log:
            if file is None:
                self._durable.pop(path, None)
            else:
                self._durable[path] = file
        self._log.clear()

    def keep(self, folder: Path) -> Platters:
        """A new disk with what is durable in a folder of this one."""
        self.lose_power()
        kept = Platters(self.random)
        kept.names = {path: file for path, file in self.names.items() if path.is_relative_to(folder)}
        kept._durable = dict(kept.names)
        kept.directories.add(folder)
        kept.links.add(folder)
        return kept

    def lose_power(self) -> None:
        """Keep synced content; of what was not synced, any part, and a torn write at the end of it."""
        for path, file in self._log[: self.random.randrange(len(self._log) + 1)]:
            if file is None:
                self._durable.pop(path, None)
            else:
                self._durable[path] = file
        self._log.clear()
        self.names = dict(self._durable)
        for file in {id(file): file for file in self.names.values()}.values():
            self._tear(file)

    def _tear(self, file: _File) -> None:
        data = bytearray(file.durable)
        for at, content in file.unsynced:
            if self.random.random() < 0.5:
                continue
            if not content:
                _resize(data, at)
                continue
            kept = content if self.random.random() < 0.5 else content[: self.random.randrange(len(content) + 1)]
            _put(data, at, kept)
        file.data, file.durable, file.unsynced, file.owner = data, bytes(data), [], None


class SimulatedDisk(Disk):
    """The disk of a node as one process sees it.

    dies_at: the process dies at this call of those that change something, counted from 1; 0 for never. fails: the
    probability that a sync fails. slow_seconds: how long a sync may take.
    """

    def __init__(self, process: Process, platters: Platters) -> None:
        self._process = process
        self._platters = platters
        self._machine = process.machine
        self._open: dict[int, _File] = {}
        self._next = 3
        self.calls = 0
        self.dies_at = 0
        self.fails = 0.0
        self.slow_seconds = 0.0
        process.at_death.append(self._release)
        self.pread, self.close = self._pread, self._close  # type: ignore[method-assign,assignment]
        self.sync = self.sync_data = self._sync  # type: ignore[method-assign,assignment]
        self.resize = self._set_size  # type: ignore[method-assign,assignment]

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        self._process.check()
        file = self._platters.names.get(path) or self._platters.locks.get(path)
        if path in self._platters.directories and file is None:
            file = self._platters.locks[path] = _File()
        if file is not None and flags & os.O_EXCL:
            raise _error(errno.EEXIST, path)
        if file is None:
            if not flags & os.O_CREAT:
                raise _error(errno.ENOENT, path)
            self._change()
            if self._platters.used >= self._platters.capacity:
                raise _error(errno.ENOSPC, path)
            file = _File()
            self._platters.name(path, file)
        elif flags & os.O_TRUNC:
            self._change()
            file.data.clear()
            file.unsynced.append((0, b""))
        self._next += 1
        self._open[self._next] = file
        return self._next

    def _close(self, descriptor: int) -> None:
        file = self._open.pop(descriptor)
        if file.owner == (self._process.pid, descriptor):
            file.owner = None

    def _pread(self, descriptor: int, size: int, at: int) -> bytes:
        self._process.check()
        return bytes(self._open[descriptor].data[at : at + size])

    def pwrite(self, descriptor: int, parts: Sequence[bytes | memoryview], at: int) -> int:
        file, content = self._open[descriptor], b"".join(bytes(part) for part in parts)
        try:
            self._change()
        except Killed:
            # The kernel may have taken a part of it.
            self._write(file, content[: self._machine.random.randrange(len(content) + 1)], at)
            raise
        room = self._platters.capacity - self._platters.used + max(len(file.data) - at, 0)
        if room <= 0:
            raise _error(errno.ENOSPC, Path(str(descriptor)))
        self._write(file, content[:room], at)
        return min(len(content), room)

    def _write(self, file: _File, content: bytes, at: int) -> None:
        if content:
            _put(file.data, at, content)
            file.unsynced.append((at, content))

    def _sync(self, descriptor: int) -> None:
        self._change()
        file = self._open[descriptor]
        if self.slow_seconds:
            self._machine.sleep(self._machine.random.random() * self.slow_seconds)
        if self.fails and self._machine.random.random() < self.fails:
            # What was written may be lost, and the next sync does not say so.
            file.durable, file.unsynced = bytes(file.durable), []
            raise _error(errno.EIO, Path(str(descriptor)))
        file.durable, file.unsynced = bytes(file.data), []
        self._platters.settle_names()
        self._after()

    def _set_size(self, descriptor: int, size: int) -> None:
        self._change()
        file = self._open[descriptor]
        _resize(file.data, size)
        file.unsynced.append((size, b""))

    def reserve(self, descriptor: int, size: int) -> None:
        self._change()
        file = self._open[descriptor]
        if self._platters.used + size - len(file.data) > self._platters.capacity:
            raise _error(errno.ENOSPC, Path(str(descriptor)))
        if size > len(file.data):
            _resize(file.data, size)
            file.unsynced.append((size, b""))

    def lock(self, descriptor: int) -> None:
        file = self._open[descriptor]
        if file.owner not in {None, (self._process.pid, descriptor)}:
            raise _error(errno.EWOULDBLOCK, Path(str(descriptor)))
        file.owner = (self._process.pid, descriptor)

    def make_directory(self, path: Path, *, parents: bool = False, exist_ok: bool = True) -> None:
        self._change()
        if path in self._platters.directories and not exist_ok:
            raise _error(errno.EEXIST, path)
        self._platters.directories.add(path)

    def sync_directory(self, path: Path) -> None:
        self._change()
        self._platters.settle_names()

    def names(self, path: Path) -> list[str]:
        self._process.check()
        files = {name.relative_to(path).parts[0] for name in self._platters.names if name.is_relative_to(path)}
        folders = {d.relative_to(path).parts[0] for d in self._platters.directories if path in d.parents}
        if not files and not folders and path not in self._platters.directories:
            raise _error(errno.ENOENT, path)
        return sorted(files | folders)

    def exists(self, path: Path) -> bool:
        self._process.check()
        return path in self._platters.names or path in self._platters.directories

    def is_link(self, path: Path) -> bool:
        return path in self._platters.links

    def size(self, path: Path) -> int:
        return len(self._file(path).data)

    def free_bytes(self, path: Path) -> int:
        self._process.check()
        return max(self._platters.capacity - self._platters.used, 0)

    def read(self, path: Path, most: int = 2**28) -> bytes:
        return bytes(self._file(path).data)

    def read_own(self, path: Path) -> bytes:
        return self.read(path)

    def check_own(self, path: Path) -> None:
        self._process.check()

    def replace(self, path: Path, data: bytes) -> None:
        part = path.with_name(path.name + ".part")
        descriptor = self.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            written = 0
            while written < len(data):
                written += self.pwrite(descriptor, (data[written:],), written)
            self._sync(descriptor)
        finally:
            self._close(descriptor)
        self._rename(part, path)

    def _rename(self, path: Path, name: Path) -> None:
        self._change()
        file = self._file(path)
        self._platters.name(path, None)
        self._platters.name(name, file)
        self._after()

    def unlink(self, path: Path, *, missing_ok: bool = False) -> None:
        self._change()
        if path not in self._platters.names:
            if missing_ok:
                return
            raise _error(errno.ENOENT, path)
        self._platters.name(path, None)

    def remove_directory(self, path: Path) -> None:
        self._change()
        if not any(name.is_relative_to(path) for name in self._platters.names):
            self._platters.directories.discard(path)

    def remove_tree(self, path: Path) -> None:
        for name in [name for name in self._platters.names if name.is_relative_to(path)]:
            self._change()
            self._platters.name(name, None)
        self._platters.directories = {d for d in self._platters.directories if not d.is_relative_to(path)}

    def database(self, path: Path) -> sqlite3.Connection:
        """A database in memory, of which the disk has what was committed."""
        self._process.check()
        database: _Database = sqlite3.connect(":memory:", factory=_Database)
        database.attach_to(self, path)
        return database

    def store(self, path: Path, content: bytes) -> None:
        """Replace a file at once, durably. Raises sqlite3.OperationalError; nothing has changed then."""
        self._change()
        file = self._platters.names.get(path, _File())
        if self.slow_seconds:
            self._machine.sleep(self._machine.random.random() * self.slow_seconds)
        if self._platters.used + len(content) - len(file.data) > self._platters.capacity:
            raise _failure(sqlite3.SQLITE_FULL, "database or disk is full")
        if self.fails and self._machine.random.random() < self.fails:
            raise _failure(sqlite3.SQLITE_IOERR, "disk I/O error")
        if path not in self._platters.names:
            self._platters.name(path, file)
        file.data, file.durable, file.unsynced = bytearray(content), content, []
        self._platters.settle_names()
        self._after()

    def _file(self, path: Path) -> _File:
        self._process.check()
        if path not in self._platters.names:
            raise _error(errno.ENOENT, path)
        return self._platters.names[path]

    def _change(self) -> None:
        """Before each call that changes something: the process may die here."""
        self._process.check()
        self.calls += 1
        if self.dies_at and self.calls == self.dies_at:
            self._die()

    def _after(self) -> None:
        """After a sync or rename has had its effect, and before its caller knows."""
        self.calls += 1
        if self.dies_at and self.calls == self.dies_at:
            self._die()

    def _die(self) -> None:
        self._process.kill()
        raise Killed

    def _release(self) -> None:
        for descriptor, file in self._open.items():
            if file.owner == (self._process.pid, descriptor):
                file.owner = None


class _Database(sqlite3.Connection):
    """A database whose commits replace a file of a simulated disk."""

    def attach_to(self, disk: SimulatedDisk, path: Path) -> None:
        """Begin with what the disk has."""
        self._disk, self._path = disk, path
        if disk.exists(path):
            self.deserialize(disk.read(path))
        self.execute("PRAGMA user_version = 1")  # an empty database cannot be serialized
        self._stored = self.serialize()

    def commit(self) -> None:
        """Commit and store, or raise and change nothing on the disk."""
        if self.in_transaction:
            super().commit()
            content = self.serialize()
            try:
                self._disk.store(self._path, content)
            except sqlite3.Error:
                self.deserialize(self._stored)
                raise
            self._stored = content


def _failure(code: int, text: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


def _put(data: bytearray, at: int, content: bytes) -> None:
    if at > len(data):
        _resize(data, at)
    data[at : at + len(content)] = content


def _resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))
