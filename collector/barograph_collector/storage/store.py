"""The log on disk: a journal and a database, kept consistent.

A message is durable once it is in the journal. The database follows: each transaction commits rows and the marks of
their streams, with the number of the last journal message. After a crash the messages beyond it are replayed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import duckdb

from barograph_agent.protocol import wire
from barograph_agent.protocol.wire import Column
from barograph_agent.system.disk import Disk
from barograph_agent.system.system import SYSTEM, System
from barograph_collector.storage.connection import StoreError, StoreHeld, copy_tables, reason_of, refusal
from barograph_collector.storage.database import Database
from barograph_collector.storage.days.data_path import DataPath, last_sealed
from barograph_collector.storage.days.retention import Calendar, Retention
from barograph_collector.storage.erased import Erased
from barograph_collector.storage.journal import SEGMENT_BYTES, Journal
from barograph_collector.storage.layout import JOURNAL, OFFSET
from barograph_collector.storage.messages import Undecodable, checked, replayed
from barograph_collector.storage.pages import LogPage
from barograph_collector.storage.rows import Entry
from barograph_collector.storage.tail import Tail

LOG: Final = "log.duckdb"
"""The database in the collector's state directory."""
RESTORED: Final = f"{LOG}.restored"
"""Beside a database that is of a backup and was not opened yet: a file with the last offset of the backup."""
JOURNAL_SUFFIX: Final = ".journal"
JOURNAL_FOLDER: Final = f"{LOG}{JOURNAL_SUFFIX}"
"""The directory of its journal. A checkpoint and a backup need its lock: one of them waits."""
PERIOD_SECONDS: Final = 3600.0
"""Of rows that become one file of each table in the lake."""
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
        period_seconds: float = PERIOD_SECONDS,
    ) -> None:
        """Open or create both and replay the journal. Raises StoreError.

        lake: where the files of sealed periods are. period_seconds: how long a period lasts.

        Rows belong to the day and the period of their commit by the system's clock.
        """
        self.path = path
        self.lake = lake
        self.period_seconds = period_seconds
        folder = path.with_name(f"{path.name}{JOURNAL_SUFFIX}")
        self._hold = partial(system.disk.locked, folder)
        self._disk = system.disk
        self._now = system.clock.now
        self._paging = system.threads.lock()
        self._rounding = system.threads.lock()
        self.unusable = system.threads.event()
        self._open_database = open_database or partial(Database, lake=self.lake)
        try:
            self.journal = Journal(folder, segment_bytes, system)
        except OSError as error:
            raise StoreError(f"cannot open the journal of {path}: {error.strerror}") from None
        self.database = self._open()
        """Replaced by `reopen`."""
        target = path.with_name(f"{path.name}.new")
        try:
            if (is_apart := self._disk.is_link(folder)) or lake is not None:
                self.journal.claim(self.database.name, is_apart=is_apart)
            self._check_restored()
            for left in (target, target.with_name(f"{target.name}.wal")):
                self._disk.unlink(left, missing_ok=True)  # of a process that died while it wrote the database anew
            days = self.database.partitions.days
            self.calendar = Calendar(system.clock, days[-1].day if days else None)
            self.tail = Tail(self.database.head, self.database.heads, system.threads)
            self._replay(self.journal.last)
            self._tidy()
        except BaseException as error:
            self.database.close()
            self.journal.close()
            if isinstance(error, duckdb.Error):
                raise refusal(path, error) from None
            if isinstance(error, (OSError, ValueError)):
                reason = error.strerror if isinstance(error, OSError) else error
                text = f"cannot open the journal of {path}: {reason}"
                if isinstance(error, ValueError) and lake is not None and (owner := self.journal.owner):
                    restoring = f"barograph restore --replace --log {owner} --journal {folder} --state {path.parent}"
                    text = f"{text}; to have the log {owner} again: {restoring} --lake {lake.lake}"
                raise StoreError(text) from None
            raise

    @property
    def head(self) -> int:
        """The offset of the last row."""
        return self.database.head

    @property
    def period(self) -> int:
        """The number of the present period of time since 1970-01-01."""
        return int(self._now() // self.period_seconds)

    @property
    def today(self) -> int:
        """The present day, counted from 1970-01-01."""
        return self.calendar.today()

    def marks(self, streams: Collection[str]) -> dict[str, int]:
        """The highest stored number of each known one of these streams; from any thread. Raises duckdb.Error."""
        return self.database.marks(streams)

    def owners(self, jobs: Collection[str]) -> dict[str, str]:
        """The users of these jobs, as first stored; from any thread. Raises duckdb.Error."""
        return self.database.owners(jobs) if jobs else {}

    def commit(self, entries: Sequence[Entry], marks: Mapping[str, int]) -> int:
        """Append entries and marks, that of JOURNAL among them, in one transaction; returns the last offset.

        Raises duckdb.Error, after which `reopen` is needed.
        """
        head = self.database.commit(entries, marks, self.today, self.period)
        self.tail.settle(head, self.database.heads)
        return head

    def read(self, table: str, after: int, limit: int, job: str = "") -> LogPage:
        """A page of the log, see `PageReader.read`. Raises duckdb.Error and StoreError, and LakeAway without a lake.

        Behind the rows of a job in the database are those of the tail.
        """
        # The tail first: what a commit takes out of it meanwhile is in the database.
        tail = self.tail.of_job(table, max(after, 0), job) if job else {OFFSET: []}
        count = len(tail[OFFSET])
        if after < 0 and count >= -after:
            newest = {name: values[after:][:limit] for name, values in tail.items()}
            return LogPage(newest, len(newest[OFFSET]), int(newest[OFFSET][-1]))
        before = after + count if after < 0 else after
        with self._paging:
            page = _read_again(lambda: self.database.pages.read(table, before, limit, job))
        return page.followed(tail, limit) if count else page

    def has_rows(self, offsets: Mapping[str, int]) -> bool:
        """Whether any of these tables has rows beyond its offset, True for a table that is unknown; any thread."""
        heads = self.tail.heads
        return any(table not in heads or heads[table] > after for table, after in offsets.items())

    def read_round(self, offsets: Mapping[str, int], limit: int) -> tuple[int, dict[str, dict[str, Column]]]:
        """A round of several tables, see `PageReader.read_round`. Raises duckdb.Error, StoreError and LakeAway."""
        # The tail first: what a commit takes out of it meanwhile is in the database.
        upto, found = self.tail.read(offsets)
        with self._rounding:
            # The head before `heads`: up to it they lack no row.
            head, heads = self.database.head, self.database.heads
            if news := {table: after for table, after in offsets.items() if heads[table] > after}:
                return _read_again(lambda: self.database.rounds.read_round(news, head, limit))
        return upto, found

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A new connection to the same database, for one thread; as a context it closes itself."""
        return self.database.cursor()

    def checkpoint(self) -> None:
        """Checkpoint the database, and delete from the journal what is in it and, where there is one, in the lake.

        Raises duckdb.Error, and OSError, as while a backup is made.
        """
        with self._hold():
            number = self.database.journal_mark_at(self.database.sealed)
            self.database.checkpoint()
            self.journal.truncate(number)

    def apply_retention(self, retention: Retention) -> int:
        """Drop days, and archive those that leave the database; returns how many left. Raises as `checkpoint`."""
        today = self.today
        with self._hold():
            return self.database.retire(retention, None if self.calendar.held else today)

    def erase(self, erased: Erased) -> bool:
        """Write the database anew without what is erased, and delete the journal; whether that was possible.

        Nobody reads or writes meanwhile. After a crash all rows are there, or none that is erased. Raises OSError,
        StoreError and duckdb.Error.
        """
        target, wal = (self.path.with_name(f"{self.path.name}.{kind}") for kind in ("new", "wal"))
        with self._hold():
            self.database.checkpoint()
            self.journal.truncate(self.database.journal_mark)
            with contextlib.closing(self.database.cursor()) as log:
                copy_tables(log, target, erased)
            self.database.close()
            try:
                # Whoever has the old file open would go on with it; a write-ahead log belongs to it.
                if self._disk.is_open(self.path) or self._disk.exists(wal):
                    self._disk.unlink(target)
                    return False
                self._disk.rename(target, self.path)
                return True
            finally:
                self.database = self._open()

    def reopen(self, last: int) -> None:
        """Open the database again after a failure, and replay the journal up to message `last`.

        Raises StoreError and duckdb.Error.
        """
        with self._paging, self._rounding:
            self.database.close()
            self.database = self._open()
            self._replay(last)
            self.tail.settle(self.database.head, self.database.heads)
        self.unusable.clear()

    def note_error(self, error: duckdb.Error) -> None:
        """Handle an error of a reader: after a fatal one the writer opens the database again."""
        if isinstance(error, _FATAL):
            self.unusable.set()
        elif isinstance(error, duckdb.IOException) and "Corrupt database file" in str(error):
            what = "BACKUP"
            if self.lake is not None:
                what = f"--log {self.database.name} --journal {self.journal.directory}"
            _log.error("%s", refusal(self.path, error, what))

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

    def _check_restored(self) -> None:
        """Raises StoreError after the restore of a backup whose journal and lake have what came later."""
        restored = self.path.with_name(RESTORED)
        if not self._disk.exists(restored):
            return
        if self.lake is not None:
            name, head = self.database.name, int(self._disk.read(restored))
            apart = self._disk.is_link(self.journal.directory)
            journal = f" --journal {self.journal.directory.resolve()}" if apart else ""
            if text := newer_lake(self.lake, name, head, self.path.parent, journal):
                raise StoreError(text)
        self._disk.unlink(restored)

    def _tidy(self) -> None:
        """Compact the marks and checkpoint. Postponed where the disk is full."""
        try:
            self.database.compact_marks()
            self.checkpoint()
        except (duckdb.Error, OSError) as error:
            _log.warning("checkpoint postponed: %s", reason_of(error))

    def _open(self) -> Database:
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
        lost = self.journal.lost
        self.journal.last = max(self.journal.last, number)
        began, entries, rows, marks = number, list[Entry](), 0, dict[str, int]()
        for number, frame in self.journal.replay(began, last):
            try:
                entry = replayed(frame)
            except (Undecodable, wire.Invalid) as error:
                raise StoreError(f"message {number} in the journal of {self.path} is damaged: {error}") from None
            entries.append(entry)
            rows += entry.rows
            marks |= {entry.stream: entry.seq, JOURNAL: number}
            if rows >= REPLAY_ROWS:
                self.commit(entries, marks)
                entries, rows, marks = [], 0, {}
        if missed := self.journal.lost - lost:
            detail = f"the journal lacks messages between {began + 1} and {number}"
            event: dict[str, Any] = {"source": "collector", "kind": "lost", "rows": missed, "detail": detail}
            entries.append(checked(wire.append("collector", 1, "events", 1, event | {"time": self._now()})))
        if entries:
            self.commit(entries, marks)
        if number > began:
            _log.info("took messages %d to %d from the journal, which the database did not have yet", began + 1, number)


def newer_lake(lake: DataPath, name: str, head: int, state: Path, options: str = "") -> str:
    """Why a backup that ends at offset `head` cannot become the log, and what can; empty where it can. Raises OSError.

    The lake may have later rows of the log with this name: they would be there twice, or be taken for others.
    """
    if (sealed := last_sealed(lake, name)) <= head:
        return ""
    return (
        f"the backup has rows of log {name} up to {head}, the lake {lake.lake} up to {sealed}: make the log of the lake"
        f" instead: barograph restore --replace --log {name} --state {state} --lake {lake.lake}{options}"
    )


def _read_again(read: Callable[[], Read]) -> Read:
    """Read, once more if a table has gone meanwhile."""
    try:
        return read()
    except duckdb.CatalogException:  # a day has been archived or dropped
        return read()
