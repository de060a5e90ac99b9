"""The spool: an outbox in an SQLite database, which survives SIGKILL of its owner and counts what it drops.

`commit` stores messages and the producer's mark in one transaction: a producer that has its read position in each mark
loses and repeats nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from pathlib import Path
from typing import Final

import msgspec

from barograph_agent.deliver.outbox import Acked, Outbox
from barograph_agent.system.disk import DISK, Disk

DATABASE: Final = "spool.sqlite"
MAX_FREE_PAGES: Final = 256
"""Pages of the database without content, beyond which they are given back to the file system."""
_SCHEMA: Final = (
    "BEGIN",
    "CREATE TABLE IF NOT EXISTS message (seq INTEGER PRIMARY KEY, rows INTEGER NOT NULL, frame BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS state (id INTEGER PRIMARY KEY, last_seq INTEGER, mark BLOB, dropped BLOB)",
)


class SpoolError(Exception):
    """A spool that cannot be used. The text names the directory, the reason and what was expected."""


class Spool(Outbox[int]):
    """The outbox of one stream in `directory`: at most `cap_bytes` of messages, beyond which the oldest are dropped.

    One process owns a spool at a time. Raises SpoolError if another process does, or its database cannot be read.
    """

    def __init__(self, directory: Path, cap_bytes: int = 256 * 2**20, disk: Disk = DISK) -> None:
        super().__init__()
        self._disk = disk
        self.directory = directory
        self.mark = b""
        self.size = 0
        """Bytes of the messages that are held."""
        self._cap = cap_bytes
        self._waiting: list[tuple[int, int, bytes]] = []
        """Number, rows and content of messages put since the last commit."""
        self._recent: dict[int, bytes] = {}
        """Messages of the last commit by number, which are sent next without being read back."""
        self._first_stored = 1
        disk.make_directory(directory, parents=True)
        self._lock = disk.open(directory / "lock", os.O_RDWR | os.O_CREAT)
        try:
            disk.lock(self._lock)
        except OSError as error:
            disk.close(self._lock)
            raise SpoolError(f"spool {directory}: in use by another process, expected one owner") from error
        try:
            self._database = disk.database(directory / DATABASE)
            self._load()
        except sqlite3.Error as error:
            disk.close(self._lock)
            raise SpoolError(f"spool {directory}: {DATABASE}: {error}, expected a database of this program") from error

    @property
    def next_seq(self) -> int:
        """The number the next message must carry."""
        return self.last_seq + len(self._waiting) + 1

    def put(self, rows: int, frame: bytes) -> None:
        """Append one message, which becomes valid with the next `commit`."""
        self._waiting.append((self.next_seq, rows, frame))

    def commit(self, mark: bytes) -> None:
        """Make everything put so far durable together with the producer's state; then enforce the cap.

        Raises OSError; nothing is stored then, and the messages wait for another commit or `rollback`.
        """
        self._store(mark)
        self.mark = mark
        self._recent = {seq: frame for seq, _, frame in self._waiting}
        for seq, rows, frame in self._waiting:
            self._held[seq] = rows, len(frame)
            self.size += len(frame)
            self.last_seq = seq
        self._waiting = []
        if self.size > self._cap:
            # The newest message is never dropped.
            while self.size > self._cap and self.first_seq < self.last_seq:
                self._drop(self.first_seq, "spool-cap")
            # Where the disk is full, the next commit deletes them.
            with contextlib.suppress(OSError):
                self._store(mark)

    def rollback(self) -> None:
        """Discard what was put since the last commit, as after an error of the disk."""
        self._waiting = []

    def get(self, seq: int) -> bytes:
        """The message with this number."""
        if seq in self._recent:
            return self._recent[seq]
        ((frame,),) = self._database.execute("SELECT frame FROM message WHERE seq = ?", (seq,))
        return bytes(frame)

    def ack(self, seq: int) -> Acked:
        """Remove everything up to seq; the next commit deletes it from the database."""
        acked = super().ack(seq)
        if not self._held:
            self._recent = {}
        return acked

    def close(self) -> None:
        """Close the database, which stays on disk."""
        with contextlib.suppress(sqlite3.Error):
            self._database.close()
        self._disk.close(self._lock)

    def remove(self) -> None:
        """Delete everything, and close."""
        with contextlib.suppress(sqlite3.Error):
            self._database.close()
        # The lock is deleted last: no other process can open a partly deleted spool.
        for name in sorted(self._disk.names(self.directory), key=lambda name: name == "lock"):
            self._disk.unlink(self.directory / name, missing_ok=True)
        self._disk.remove_directory(self.directory)
        self._disk.close(self._lock)

    def _store(self, mark: bytes) -> None:
        """Store what waits and the state, and delete what is no more held, in one transaction. Raises OSError."""
        first = self.first_seq
        try:
            if first > self._first_stored:
                self._database.execute("DELETE FROM message WHERE seq < ?", (first,))
            self._database.executemany("INSERT INTO message VALUES (?, ?, ?)", self._waiting)
            state = (self.next_seq - 1, mark, msgspec.json.encode((self._pieces, self._reason)))
            self._database.execute("INSERT OR REPLACE INTO state VALUES (1, ?, ?, ?)", state)
            self._database.commit()
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._database.rollback()
            number = errno.ENOSPC if error.sqlite_errorcode == sqlite3.SQLITE_FULL else errno.EIO
            raise OSError(number, str(error), str(self.directory / DATABASE)) from error
        self._first_stored = first
        # What is committed stays committed, whether or not the disk has the room that moving pages needs.
        with contextlib.suppress(sqlite3.Error):
            if self._database.execute("PRAGMA freelist_count").fetchone()[0] > MAX_FREE_PAGES:
                self._database.executescript("PRAGMA incremental_vacuum")

    def _load(self) -> None:
        for statement in _SCHEMA:
            self._database.execute(statement)
        self._database.commit()
        for last, mark, dropped in self._database.execute("SELECT last_seq, mark, dropped FROM state"):
            self.last_seq, self.mark = last, mark
            self._pieces, self._reason = msgspec.json.decode(dropped, type=tuple[list[tuple[int, int]], str])
        for seq, rows, length in self._database.execute("SELECT seq, rows, length(frame) FROM message ORDER BY seq"):
            self._held[seq] = rows, length
            self.size += length

    def _pop(self) -> tuple[int, int]:
        self.size -= next(iter(self._held.values()))[1]
        return super()._pop()
