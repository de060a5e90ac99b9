"""Where a catalog is, and the lease that lets one process commit to it: a file beside it, or a server's lock."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import duckdb

from barograph_agent.system.clock import CLOCK, Clock
from barograph_agent.system.disk import Disk
from barograph_collector.storage.days.extensions import LakeError, extension
from barograph_collector.storage.text import literal

CATALOG_FILE: Final = "catalog.ducklake"
MAX_AHEAD_SECONDS: Final = 60.0
"""A greater difference of clocks is said."""
LOCK_SECONDS: Final = 10
"""How long a commit waits for that of another process."""
_LOCK_POLL_SECONDS: Final = 0.05
_READER_POLL_SECONDS: Final = 0.02
_HELD: Final = re.compile(r"Conflicting lock is held in (.*?\(PID \d+\))")
_LOCK_FILE: Final = "committer.lock"
_LOCK_NUMBER: Final = 0x6261726F
_ENGLISH: Final = re.compile(r"C|POSIX|C\..*|en_.*|")
_PASSWORD: Final = re.compile(r"(://[^:@/\s]*):[^@/\s]*@")
_log = logging.getLogger(__name__)


class Lease:
    """The right to commit. All methods raise LakeError, duckdb.Error and OSError."""

    target: str
    """What DuckDB attaches."""
    file: Path | None = None
    """That of the catalog; None if a server has it."""
    ahead = 0.0
    """How far this host's clock is ahead of that of the catalog's server, in seconds, at the last `begin`."""

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Once for a connection."""

    def hold(self) -> None:
        """Before the catalog is attached. Waits at most LOCK_SECONDS for another process."""

    def attach(self, connection: duckdb.DuckDBPyConnection, options: str) -> None:
        """Attach the catalog as `lake`."""
        connection.execute(f"ATTACH {literal(self.target)} AS lake{options}")

    def release(self) -> None:
        """After it was detached."""

    def begin(self, connection: duckdb.DuckDBPyConnection) -> None:
        """As the first statement of a transaction that commits."""

    def rewrite(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Let no deleted row be left in the catalog, where that is a file. It is not attached."""


class FileLease(Lease):
    """A catalog in a file: a lock file beside it is held while the catalog is attached."""

    def __init__(self, directory: Path, disk: Disk, clock: Clock = CLOCK) -> None:
        self.file = directory / CATALOG_FILE
        self.target = f"ducklake:{self.file}"
        self._directory = directory
        self._disk = disk
        self._clock = clock
        self._lock = -1

    def hold(self) -> None:
        """Take the lock."""
        lock = self._disk.open(self._directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT)
        deadline = self._clock.monotonic() + LOCK_SECONDS
        while True:
            try:
                self._disk.lock(lock)
                break
            except OSError:
                if self._clock.monotonic() < deadline:
                    self._clock.sleep(_LOCK_POLL_SECONDS)
                    continue
                self._disk.close(lock)
                text = f"the lake {self._directory} has been written by another process for {LOCK_SECONDS} s"
                raise LakeError(f"{text}, expected a commit of it to end sooner") from None
        self._lock = lock

    def attach(self, connection: duckdb.DuckDBPyConnection, options: str) -> None:
        """Attach the file. Waits at most LOCK_SECONDS for readers: there is a gap between two questions."""
        deadline = self._clock.monotonic() + LOCK_SECONDS
        while True:
            try:
                super().attach(connection, options)
                return
            except duckdb.IOException as error:
                if (reader := _HELD.search(str(error))) is None:
                    raise
                if self._clock.monotonic() >= deadline:
                    text = f"the catalog {self.file} has been read by {reader[1]} for {LOCK_SECONDS} s"
                    raise LakeError(f"{text}, expected that it is detached between questions") from None
                self._clock.sleep(_READER_POLL_SECONDS)

    def release(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            with contextlib.suppress(OSError):
                self._disk.close(self._lock)
            self._lock = -1

    def rewrite(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Write the file anew. After a crash it is the old one or the new one."""
        self.hold()
        try:
            self._rewrite(connection)
        finally:
            self.release()

    def _rewrite(self, connection: duckdb.DuckDBPyConnection) -> None:
        file = self._directory / CATALOG_FILE
        target = file.with_name(f"{file.name}.new")
        for left in (target, target.with_name(f"{target.name}.wal")):
            self._disk.unlink(left, missing_ok=True)
        connection.execute(f"ATTACH {literal(str(file))} AS old (READ_ONLY)")
        try:
            connection.execute(f"ATTACH {literal(str(target))} AS new")
            try:
                connection.execute("COPY FROM DATABASE old TO new")
            finally:
                connection.execute("DETACH new")
        finally:
            connection.execute("DETACH old")
        self._disk.rename(target, file)


class ServerLease(Lease):
    """A catalog in PostgreSQL: an advisory lock is held for each transaction, and ends with its connection."""

    def __init__(self, url: str, clock: Clock = CLOCK) -> None:
        """url: postgresql://USER@HOST/DATABASE; a password may also be where libpq finds it."""
        timeout = "" if "connect_timeout=" in url else f"{'&' if urlsplit(url).query else '?'}connect_timeout=10"
        self._url = url + timeout
        self.target = f"ducklake:postgres:{self._url}"
        self._clock = clock
        self._attached = False

    def prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Load the extension."""
        connection.execute(f"LOAD {literal(str(extension('postgres_scanner')))}")
        self._connection = connection

    def hold(self) -> None:
        """Connect, unless connected."""
        if not self._attached:
            self._connection.execute(f"ATTACH {literal(self._url)} AS lease (TYPE postgres)")
            self._attached = True

    def begin(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Wait for the lock, at most LOCK_SECONDS, and compare the clocks."""
        query = (
            f"SELECT set_config('lock_timeout', '{LOCK_SECONDS}s', true) AS wait,"
            f" pg_advisory_xact_lock({_LOCK_NUMBER})::text AS lock, current_setting('lc_messages') AS language,"
            " extract(epoch FROM clock_timestamp())::float8 AS time"
        )
        row = connection.execute(f"SELECT language, time FROM postgres_query('lease', {literal(query)})").fetchone()
        if row is None or not _ENGLISH.fullmatch(row[0]):
            raise LakeError(
                f"the catalog's server has lc_messages {row and row[0]!r}, expected C: DuckLake finds conflicts in the"
                " text of errors; ALTER ROLE ... SET lc_messages = 'C'"
            )
        before, self.ahead = self.ahead, self._clock.now() - row[1]
        if abs(self.ahead) > MAX_AHEAD_SECONDS >= abs(before):
            text = "the clock of this host is %.0f s %s that of the catalog's server, expected that they agree"
            _log.warning(text, abs(self.ahead), "ahead of" if self.ahead > 0 else "behind")


def redacted(text: str) -> str:
    """A text without the passwords in its URLs.

    >>> redacted('at "postgresql://baro:secret@db/lake": refused')
    'at "postgresql://baro:***@db/lake": refused'
    """
    return _PASSWORD.sub(r"\1:***@", text)
