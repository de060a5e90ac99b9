"""The log on disk: a journal and a database, kept consistent.

A message is durable once it is in the journal. The database follows: each transaction commits rows and the marks of
their streams, with the number of the last journal message. After a crash the messages beyond it are replayed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

import duckdb

from barograph_agent.protocol import wire
from barograph_agent.protocol.wire import Column
from barograph_agent.system.disk import Disk
from barograph_agent.system.system import SYSTEM, System
from barograph_collector.storage.connection import StoreError, StoreHeld, copy_tables, first_line
from barograph_collector.storage.database import Database
from barograph_collector.storage.days.archive import ArchivedFile
from barograph_collector.storage.days.data_path import DataPath
from barograph_collector.storage.days.retention import Calendar, Retention
from barograph_collector.storage.erased import Erased
from barograph_collector.storage.journal import SEGMENT_BYTES, Journal
from barograph_collector.storage.layout import JOURNAL
from barograph_collector.storage.messages import Undecodable, replayed
from barograph_collector.storage.pages import LogPage
from barograph_collector.storage.rows import CheckedRows
from barograph_collector.storage.tail import Tail

LOG: Final = "log.duckdb"
"""The database in the collector's state directory."""
JOURNAL_SUFFIX: Final = ".journal"
JOURNAL_FOLDER: Final = f"{LOG}{JOURNAL_SUFFIX}"
"""The directory of its journal. A checkpoint and a backup need its lock: one of them waits."""
FREE_SHARE: Final = 0.5
MIN_FREE_BYTES: Final = 2**26
"""The file is written anew if this share of it, and so many bytes, are free."""
REPLAY_ROWS: Final = 100_000
_FATAL: Final = (duckdb.FatalException, duckdb.InternalException)
Read = TypeVar("Read")
_log = logging.getLogger(__name__)


def put_journal(state: Path, journal: Path | None, disk: Disk = SYSTEM.disk) -> None:
    """Let the journal of the log in a state directory be in another directory, if one is named. Raises StoreError."""
    if journal is None:
        return
    folder, target = state / JOURNAL_FOLDER, journal.absolute()
    try:
        if folder.is_symlink():
            if folder.readlink() != target:
                raise StoreError(f"the journal of {state} is in {folder.readlink()}, expected {target}")
            return
        if folder.exists():
            if any(folder.iterdir()):
                text = "expected that the collector was stopped before it is put elsewhere"
                raise StoreError(f"the journal {folder} has messages, {text}")
            folder.rmdir()
        disk.make_directory(target, parents=True)
        folder.symlink_to(target)
        disk.sync_directory(state)
    except OSError as error:
        raise StoreError(f"cannot have the journal of {state} in {target}: {error.strerror}") from None


class Store:
    """Journal and database under one path. `commit` belongs to one thread, `read` and `read_round` to others."""

    def __init__(
        self,
        path: Path,
        *,
        system: System = SYSTEM,
        open_database: Callable[[Path], Database] | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        lake: DataPath | None = None,
    ) -> None:
        """Open or create both and replay the journal. Raises StoreError.

        lake: where the files of days are that are in the lake.

        Rows belong to the day of their commit by the system's clock.
        """
        self.path = path
        self.lake = lake
        self._published = 2**63 - 1 if lake is None else 0
        folder = path.with_name(f"{path.name}{JOURNAL_SUFFIX}")
        self._hold = partial(system.disk.locked, folder)
        self._disk = system.disk
        self._swap = system.threads.lock()
        # Taken before `_swap`, which nobody holds while it waits for the store of the lake's files.
        self._paging = system.threads.lock()
        self._rounding = system.threads.lock()
        self._readers = 0
        """Reads and cursors. Closing the database under one would end a query by an error that is not DuckDB's."""
        self.unusable = system.threads.event()
        self._open_database = open_database or partial(Database, lake=self.lake)
        try:
            self.journal = Journal(folder, segment_bytes, system)
        except OSError as error:
            raise StoreError(f"cannot open the journal of {path}: {error.strerror}") from None
        self.database = self._open()
        """Replaced by `reopen`."""
        self._is_apart = self._disk.is_link(folder)
        """Whether the journal outlives the disk of the database, and so has all that the lake lacks."""
        if self._is_apart:
            try:
                self.journal.claim(self.database.name)
            except (OSError, ValueError) as error:
                self.database.close()
                reason = f"{error.strerror}" if isinstance(error, OSError) else f"{error}"
                raise StoreError(f"cannot open the journal of {path}: {reason}") from None
        target = path.with_name(f"{path.name}.new")
        for left in (target, target.with_name(f"{target.name}.wal")):
            self._disk.unlink(left, missing_ok=True)  # of a process that died while it wrote the database anew
        days = self.database.partitions.days
        self.calendar = Calendar(system.clock, days[-1].day if days else None)
        self.tail = Tail(self.database.head, self.database.heads, system.threads)
        try:
            self._replay(self.journal.last)
            self._tidy()
        except BaseException as error:
            self.close()
            if isinstance(error, duckdb.Error):
                raise StoreError(f"cannot use the log {path}: {first_line(error)}") from None
            raise

    @property
    def head(self) -> int:
        """The offset of the last row."""
        return self.database.head

    @property
    def published(self) -> int:
        """With a lake, the last offset that it has: no rows beyond it are dropped, and their marks are kept apart."""
        return self._published

    @published.setter
    def published(self, offset: int) -> None:
        self._published = self.database.published = offset

    @property
    def today(self) -> int:
        """The present day, counted from 1970-01-01."""
        return self.calendar.today()

    def marks(self, streams: Collection[str]) -> dict[str, int]:
        """The highest stored number of each known one of these streams; from any thread. Raises duckdb.Error."""
        with self._swap:
            return self.database.marks(streams)

    def owners(self, jobs: Collection[str]) -> dict[str, str]:
        """The users of these jobs, as first stored; from any thread. Raises duckdb.Error."""
        if not jobs:
            return {}
        with self._swap:
            return self.database.owners(jobs)

    def commit(self, entries: Sequence[CheckedRows], marks: Mapping[str, int]) -> int:
        """Append entries and marks, that of JOURNAL among them, in one transaction; returns the last offset.

        Raises duckdb.Error, after which `reopen` is needed.
        """
        head = self.database.commit(entries, marks, self.today)
        self.tail.settle(head, self.database.heads)
        return head

    def read(self, table: str, after: int, limit: int, job: str = "") -> LogPage:
        """A page of the log, see `PageReader.read`. Raises duckdb.Error and StoreError, and LakeAway without a lake."""
        with self._paging, self._counted():
            return _read_again(lambda: self.database.pages.read(table, after, limit, job))

    def has_rows(self, offsets: Mapping[str, int]) -> bool:
        """Whether any of these tables has rows beyond its offset, True for a table that is unknown; any thread."""
        heads = self.tail.heads
        return any(table not in heads or heads[table] > after for table, after in offsets.items())

    def read_round(self, offsets: Mapping[str, int], limit: int) -> tuple[int, dict[str, dict[str, Column]]]:
        """A round of several tables, see `PageReader.read_round`. Raises duckdb.Error, StoreError and LakeAway."""
        # The tail first: what a commit takes out of it meanwhile is in the database.
        upto, found = self.tail.read(offsets)
        with self._rounding, self._counted():
            # The head before `heads`: up to it they lack no row.
            head, heads = self.database.head, self.database.heads
            if news := {table: after for table, after in offsets.items() if heads[table] > after}:
                return _read_again(lambda: self.database.rounds.read_round(news, head, limit))
        return upto, found

    @contextlib.contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A new connection to the same database, for one thread, closed at the end of the block."""
        with self._counted(), contextlib.closing(self.database.cursor()) as cursor:
            yield cursor

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        """The database is not written anew meanwhile."""
        with self._swap:
            self._readers += 1
        try:
            yield
        finally:
            with self._swap:
                self._readers -= 1

    def checkpoint(self) -> None:
        """Checkpoint the database, and delete from the journal what is in it.

        Raises duckdb.Error, and OSError, as while a backup is made.
        """
        with self._hold():
            number = self.database.journal_mark_at(self._published if self._is_apart else 2**63 - 1)
            self.database.checkpoint()
            self.journal.truncate(number)

    def apply_retention(self, retention: Retention) -> int:
        """Roll up days that have ended, then drop days; returns how many were dropped. Raises as `checkpoint`."""
        self.database.partitions.roll_up()
        today = self.today
        retention = replace(retention, days=0) if self.calendar.held else retention
        with self._hold():
            return self.database.drop_days(retention, today, self.published)

    def archive(self, days: Sequence[int], files: Iterable[ArchivedFile]) -> None:
        """Let days have their rows in these files of the lake, which have all of them; for the thread of `commit`.

        Raises duckdb.Error, and OSError, as while a backup is made.
        """
        with self._hold():
            self.database.archive_days(days, files)

    def shrink(self, last: int) -> bool:
        """Write the database anew if most of its file is free, and open it again; whether it was written.

        Not while a query runs; reads wait, acknowledgements do not. last: the number of the last journal message in the
        database. After a crash the file is the old one or the new one. Raises OSError, StoreError and duckdb.Error,
        after which `reopen` is needed.
        """
        share, free = self.database.free_share()
        if share < FREE_SHARE or free < MIN_FREE_BYTES:
            return False
        return self._write_anew(last)

    def erase(self, erased: Erased) -> bool:
        """Write the database anew without what is erased, and delete the journal; whether that was possible.

        Nobody writes meanwhile. Raises as `shrink`; after a crash all rows are there, or none that is erased.
        """
        with self._hold():
            number = self.database.journal_mark
            self.database.checkpoint()
            self.journal.truncate(number)
        return self._write_anew(self.journal.last, erased)

    def _write_anew(self, last: int, without: Erased | None = None) -> bool:
        target = self.path.with_name(f"{self.path.name}.new")
        wal = self.path.with_name(f"{self.path.name}.wal")
        with self._swap, self._hold():
            if self._readers:
                return False
            self.database.checkpoint()
            self.database.close()
            try:
                for part in (target, target.with_name(f"{target.name}.wal")):
                    self._disk.unlink(part, missing_ok=True)
                # Whoever has the old file open would go on with it; a write-ahead log belongs to it.
                if self._disk.is_open(self.path) or self._disk.exists(wal):
                    return False
                copy_tables(self.path, target, without)
                self._disk.rename(target, self.path)
            finally:
                self.database = self._open()
                self._replay(last)
                self.tail.settle(self.database.head, self.database.heads)
        return True

    def reopen(self, last: int) -> None:
        """Open the database again after a failure, and replay the journal up to message `last`.

        Raises StoreError and duckdb.Error.
        """
        with self._paging, self._rounding, self._swap:
            self.database.close()
            self.database = self._open()
            self._replay(last)
            self.tail.settle(self.database.head, self.database.heads)
        self.unusable.clear()

    def note_error(self, error: duckdb.Error) -> None:
        """Handle an error of a reader: after a fatal one the writer opens the database again."""
        if isinstance(error, _FATAL):
            self.unusable.set()

    def close(self) -> None:
        """Checkpoint, if possible, and close the files."""
        with contextlib.suppress(duckdb.Error, OSError):
            self.checkpoint()
        self.database.close()
        self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _tidy(self) -> None:
        """Compact the marks and checkpoint. Postponed where the disk is full."""
        try:
            self.database.compact_marks()
            self.checkpoint()
        except duckdb.Error as error:
            _log.warning("checkpoint postponed: %s", first_line(error))
        except OSError as error:
            _log.warning("checkpoint postponed: %s", error)

    def _open(self) -> Database:
        database = self._opened()
        database.published = self._published
        return database

    def _opened(self) -> Database:
        try:
            return self._open_database(self.path)
        except StoreHeld:
            raise
        except StoreError as error:
            wal = self.path.with_name(f"{self.path.name}.wal")
            if not wal.exists() or not self.journal.size:
                raise
            # The journal has everything that was committed since the last checkpoint.
            aside = wal.with_name(f"{wal.name}.unreadable")
            wal.rename(aside)
            try:
                database = self._open_database(self.path)
            except StoreError:
                aside.rename(wal)
                raise error from None
            _log.error("%s; opened without its write-ahead log, now %s: the journal has its rows", error, aside.name)
            return database

    def _replay(self, last: int) -> None:
        """Commit the journal messages, up to `last`, that are not in the database."""
        number = self.database.journal_mark
        self.journal.last = max(self.journal.last, number)
        began, entries, rows, marks = number, list[CheckedRows](), 0, dict[str, int]()
        for number, frame in self.journal.replay(began, last):
            try:
                item = replayed(frame)
            except (Undecodable, wire.Invalid) as error:
                raise StoreError(f"message {number} in the journal of {self.path} is damaged: {error}") from None
            entries.append(item.entry)
            rows += item.entry.rows
            marks |= {item.stream: item.seq, JOURNAL: number}
            if rows >= REPLAY_ROWS:
                self.commit(entries, marks)
                entries, rows, marks = [], 0, {}
        if entries:
            self.commit(entries, marks)
        if number > began:
            _log.info("took messages %d to %d from the journal, which the database did not have yet", began + 1, number)


def _read_again(read: Callable[[], Read]) -> Read:
    """Read, once more if a table has gone meanwhile."""
    try:
        return read()
    except duckdb.CatalogException:  # a day has been archived or dropped
        return read()
