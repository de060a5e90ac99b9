"""The DuckDB file: batches of rows are appended with the marks of their streams, in one transaction each.

Tables of the log are only appended to, so rows are stored in the order of their offsets.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from barograph_collector.storage.connection import StoreError, connect, refusal, transaction
from barograph_collector.storage.days.archive import Archive, SealedFile, listed, store_files
from barograph_collector.storage.days.data_path import DataPath
from barograph_collector.storage.days.partitions import Partitions, actual_day, load
from barograph_collector.storage.days.periods import Periods
from barograph_collector.storage.days.retention import Retention
from barograph_collector.storage.layout import (
    DAILY,
    JOURNAL,
    LOG_COLUMNS,
    OFFSET,
    OWN_COLUMNS,
    STREAMS,
    declared,
    default,
    quoted,
)
from barograph_collector.storage.pages import PageReader
from barograph_collector.storage.rows import Entry, numbered, to_arrow
from barograph_collector.storage.undo import Undo, undo

MARKS_LIMIT: Final = 500_000
"""Rows of `streams` at which it is compacted to one per stream; twice the number of streams where that is more."""
_log = logging.getLogger(__name__)


class Database:
    """An open file. Commits and changes of the schema belong to one thread, `pages` and `rounds` to others."""

    def __init__(self, path: Path, lake: DataPath | None = None) -> None:
        """Open or create, and migrate. lake: where the files of archived days are.

        Raises StoreError where the file is in use, unreadable, or not a log.
        """
        self.path = path
        self.lake = lake
        try:
            if undo(path):
                _log.warning("a checkpoint of %s had been cut off, and was undone", path)
            self._connection = connect(path, lake)
            self._undo = Undo(path)
        except OSError as error:
            raise StoreError(f"cannot open the log {path}: {error.strerror}") from None
        try:
            _migrate(self._connection, path)
            self._writer = self._connection.cursor()
            self.partitions = Partitions(self._writer, lake)
            self.periods = Periods(self._writer)
            # Two: a follower does not wait for a question about days that are in the lake.
            self.pages = PageReader(path, self._connection.cursor(), self.partitions)
            self.rounds = PageReader(path, self._connection.cursor(), self.partitions)
            self.head = self._one(f'SELECT coalesce(max("{OFFSET}"), 0) FROM "{STREAMS}"')
            self.heads = {name: self._last_offset(name) for name in LOG_COLUMNS}
            """The offset of the last row of each table, 0 for none."""
            self.name = str(self._row("SELECT name FROM identity")[0])
            """Of this log, among those that write to one lake."""
            self._marks = self._one(f'SELECT count(*) FROM "{STREAMS}"')
            self._compact_at = MARKS_LIMIT
        except BaseException as error:
            self._connection.close()
            self._undo.close()
            if isinstance(error, duckdb.Error):
                raise refusal(path, error) from None
            raise

    @property
    def journal_mark(self) -> int:
        """The number of the last journal message in the database."""
        return self.journal_mark_at(2**63 - 1)

    def journal_mark_at(self, offset: int) -> int:
        """The number of the last journal message whose rows have offsets up to this one. Raises duckdb.Error."""
        mark = f"stream = '{JOURNAL}' AND \"{OFFSET}\" <= {offset}"
        return self._one(f'SELECT coalesce(max(seq), 0) FROM "{STREAMS}" WHERE {mark}')

    def marks(self, streams: Collection[str]) -> dict[str, int]:
        """The highest committed number of each known one of these streams; from any thread. Raises duckdb.Error."""
        query = (
            f'SELECT stream, max(seq) FROM "{STREAMS}" WHERE stream IN (SELECT unnest(?::VARCHAR[])) GROUP BY stream'
        )
        with self.cursor() as cursor:
            return dict(cursor.execute(query, [list(streams)]).fetchall())

    def owners(self, jobs: Collection[str]) -> dict[str, str]:
        """The users of these jobs, as first stored; from any thread. Raises duckdb.Error."""
        among = "job IN (SELECT unnest(?::VARCHAR[]))"
        query = f'SELECT job, arg_min("user", "{OFFSET}") FROM jobs WHERE {among} GROUP BY job'
        with self.cursor() as cursor:
            return dict(cursor.execute(query, [list(jobs)]).fetchall())

    def commit(self, entries: Sequence[Entry], marks: Mapping[str, int], day: int, period: int = 0) -> int:
        """Append entries and the new marks of their streams in one transaction; returns the last offset.

        Offsets follow the order of `entries`. period: of time, by its number since 1970-01-01. Raises duckdb.Error.
        """
        partition = self.partitions.open(day, self.head)
        self.begin_period(period)
        by_table, head, heads = numbered(entries, self.head, self.heads)
        with transaction(self._writer):
            for name, same in by_table.items():
                target = partition.table(name) if name in DAILY else name
                self._insert(target, LOG_COLUMNS[name], to_arrow(name, same))
            seqs = np.fromiter(marks.values(), np.int64, len(marks))
            rows = pa.table({"stream": list(marks), "seq": seqs, OFFSET: np.full(len(marks), head)})
            self._insert(STREAMS, OWN_COLUMNS[STREAMS], rows)
        # In this order: up to `head` no table has a row that `heads` lacks.
        self.heads = heads
        self.head = head
        self._marks += len(marks)
        if self._marks > self._compact_at:
            self.compact_marks()
        return head

    def compact_marks(self) -> None:
        """Compact the marks to one per stream and period that the lake lacks.

        Marks of streams without rows since the oldest day that is kept are dropped.

        Such a stream would start over at 1, but the rows that it would resend have been dropped here as well.
        """
        firsts = [period.first for period in self.periods.unsealed]
        with transaction(self._writer):
            self._writer.execute(
                f"""
                CREATE TABLE folded AS
                    SELECT stream, max(seq)::BIGINT AS seq, max("{OFFSET}")::BIGINT AS "{OFFSET}" FROM "{STREAMS}"
                    GROUP BY stream, len(list_filter({firsts}::BIGINT[], lambda x: x <= "{OFFSET}"))
                    HAVING max("{OFFSET}") >= {self.partitions.first_offset} OR stream = '{JOURNAL}'
                """
            )
            self._writer.execute(f'DROP TABLE "{STREAMS}"')
            self._writer.execute(f'ALTER TABLE folded RENAME TO "{STREAMS}"')
        self._marks = self._one(f'SELECT count(*) FROM "{STREAMS}"')
        self._compact_at = max(MARKS_LIMIT, 2 * self._marks)

    def checkpoint(self) -> None:
        """Write the WAL into the file. Raises duckdb.Error, also during other transactions, and OSError."""
        blocks = self._writer.execute("SELECT block_id FROM pragma_metadata_info()").fetchall()
        self._undo.save((block for (block,) in blocks), self._one("SELECT block_size FROM pragma_database_size()"))
        self._writer.execute("CHECKPOINT")
        self._undo.forget()

    @property
    def sealed(self) -> int:
        """The offset up to which no rows wait for the lake."""
        return 2**63 - 1 if self.lake is None else self.periods.sealed

    def begin_period(self, number: int) -> None:
        """Let the next rows be in the period of time `number`, where the log has a lake. Raises duckdb.Error."""
        if self.lake is not None and (days := self.partitions.days):
            self.periods.begin(number, self.head, [day.first_offset for day in days])

    def seal(self, last: int, files: Sequence[SealedFile], place: str) -> None:
        """Note that the lake `place` has all rows up to an offset, the newest in these files. Raises duckdb.Error."""
        self.periods.seal(last, files, place)
        self.partitions.archive = self.partitions.archive.with_files(files)

    def replace_files(self, files: Mapping[SealedFile, SealedFile]) -> None:
        """List other editions of files. Raises duckdb.Error."""
        with transaction(self._writer):
            for old in files:
                key = (old.table, old.first, old.edition)
                query = "DELETE FROM lake_files WHERE name = ? AND first_offset = ? AND edition = ?"
                self._writer.execute(query, list(key))
            store_files(self._writer, files.values())
        self.partitions.archive = Archive.load(self._writer, self.lake)

    def forget_files(self, days_of: Mapping[str, int]) -> int:
        """List no files of these tables before a day each; returns how many there were. Raises duckdb.Error."""
        gone = 0
        with transaction(self._writer):
            for table, day in days_of.items():
                hot = [one.day for one in self.partitions.days if not one.archived] if table in DAILY else []
                query = "DELETE FROM lake_files WHERE name = ? AND day < ? AND day NOT IN (SELECT unnest(?::BIGINT[]))"
                gone += self._writer.execute(query, [table, day, hot]).fetchall()[0][0]
        if gone:
            self.partitions.archive = Archive.load(self._writer, self.lake)
        return gone

    def sealed_files(self) -> list[SealedFile]:
        """All files of this log in the lake; from any thread. Raises duckdb.Error."""
        with self.cursor() as cursor:
            return listed(cursor)

    def retire(self, retention: Retention, today: int | None) -> int:
        """Drop days by retention, the oldest first; returns how many. Raises duckdb.Error.

        Days that are no more to be in the database are archived, with a lake, and days that it lacks stay. today:
        None drops no day by its age.
        """
        dropped = 0
        while len(days := self.partitions.days) > 1 and days[1].first_offset <= self.sealed + 1:
            expired = today is not None and retention.days and actual_day(days[0], days) < today - retention.days
            large = self.lake is None and not days[0].archived and self.exceeds(retention.bytes)
            if not expired and not large:
                break
            self.partitions.drop_oldest()
            self._free()
            dropped += 1
        if dropped:
            self.compact_marks()
        for day, following in pairwise(self.partitions.days if self.lake is not None else ()):
            if following.first_offset > self.sealed + 1:
                break
            old = actual_day(day, days) < days[-1].day - retention.hot_days
            if not day.archived and (old or self.exceeds(retention.bytes)):
                self.partitions.archive_day(day)
                self._free()
        return dropped

    def exceeds(self, limit: int) -> bool:
        """Whether the daily tables in the file are larger than `limit`, 0 for none; from any thread.

        Free blocks do not count. Raises duckdb.Error.
        """
        if not limit:
            return False
        with self.cursor() as cursor:
            found = cursor.execute("SELECT block_size, used_blocks FROM pragma_database_size()").fetchone()
            block_size, blocks = found or (0, 0)
            if block_size * blocks <= limit:
                return False
            # What is kept for ever, whoever wrote it, is no reason to drop what others wrote on any day.
            kept = [name for name in (*LOG_COLUMNS, *OWN_COLUMNS) if name not in DAILY]
            segments = " UNION ALL ".join(
                "SELECT unnest(list_prepend(block_id, additional_block_ids)) AS block"
                f" FROM pragma_storage_info('{name}')"
                for name in kept
            )
            query = f"SELECT count(DISTINCT block) FROM ({segments}) WHERE block >= 0"
            (shared,) = cursor.execute(query).fetchone() or (0,)
        return bool(block_size * (blocks - shared) > limit)

    def _free(self) -> None:
        """Make the space of dropped tables reusable; where a query is in the way, the next checkpoint does."""
        with contextlib.suppress(duckdb.Error, OSError):
            self.checkpoint()

    def row_counts(self) -> dict[str, int]:
        """The approximate number of rows in each table of the log."""
        query = "SELECT table_name, estimated_size FROM duckdb_tables()"
        sizes = dict(self._writer.execute(query).fetchall())
        counts = {name: sizes.get(name, 0) for name in LOG_COLUMNS}
        archive, days = self.partitions.archive, self.partitions.days
        for name in DAILY:
            archived = archive.files(name, (day.day for day in days if day.archived))
            hot = (sizes.get(day.table(name), 0) for day in days if not day.archived)
            counts[name] = sum(file.rows for file in archived) + sum(hot)
        return counts

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A new connection to the same database, for one thread; the caller closes it."""
        return self._connection.cursor()

    def close(self) -> None:
        """Close the file, without a checkpoint."""
        for connection in (self.pages.connection, self.rounds.connection, self._writer, self._connection):
            connection.close()
        self._undo.close()

    def _last_offset(self, name: str) -> int:
        """That of the last row of a table. Reads no file of the lake."""
        parts = [name]
        if name in DAILY:
            parts = [day.table(name) for day in reversed(self.partitions.days) if not day.archived]
        for part in parts:
            if last := self._one(f'SELECT coalesce(max("{OFFSET}"), 0) FROM "{part}"'):
                return last
        # Of a file the end of its period is known: an offset that no later row has.
        days = [day.day for day in self.partitions.days]
        return max((file.last for file in self.partitions.archive.files(name, days)), default=0)

    def _insert(self, table: str, columns: Iterable[str], rows: pa.Table) -> None:
        names = quoted(columns)
        self._writer.register("incoming", rows)
        stored = self._one(f'INSERT INTO "{table}" ({names}) SELECT {names} FROM incoming')
        # Not after a failure: an aborted transaction accepts only its rollback.
        self._writer.unregister("incoming")
        if stored != rows.num_rows:
            raise StoreError(f"table {table!r} in {self.path} took {stored} rows, expected {rows.num_rows}")

    def _one(self, query: str) -> int:
        return int(self._row(query)[0])

    def _row(self, query: str) -> tuple[Any, ...]:
        row: Any = self._writer.execute(query).fetchone()
        return tuple(row)


def _migrate(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Create missing tables and columns. Raises StoreError where another program wrote the file."""
    for name, columns in {**LOG_COLUMNS, **OWN_COLUMNS}.items():
        if name not in DAILY:
            connection.execute(f'CREATE TABLE IF NOT EXISTS "{name}" ({declared(columns)})')
            _add_columns(connection, path, name, name, columns)
    if connection.execute("SELECT name FROM identity").fetchone() is None:
        connection.execute("INSERT INTO identity VALUES (?)", [secrets.token_hex(6)])
    for partition in load(connection):
        partition.create(connection)
        for name in () if partition.archived else DAILY:
            _add_columns(connection, path, name, partition.table(name), LOG_COLUMNS[name])


def _add_columns(
    connection: duckdb.DuckDBPyConnection, path: Path, name: str, table: str, columns: dict[str, str]
) -> None:
    """Add new columns to a table of the schema `name`, or a partition of a daily table."""
    query = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index"
    present, expected = connection.execute(query, [table]).fetchall(), list(columns.items())
    if present != expected[: len(present)]:
        raise StoreError(
            f"cannot use the log {path}: it has a table {table!r} with columns {_listed(present)},"
            f" expected {_listed(expected)}: it was written by another program, or by a newer Barograph"
        )
    for column, sql_type in expected[len(present) :]:
        for daily in DAILY:  # `Partitions` creates the views again, with the new column
            connection.execute(f'DROP VIEW IF EXISTS "{daily}"')
        value = default(name, column) if name in LOG_COLUMNS else f"'0'::{sql_type}"
        connection.execute(f'ALTER TABLE "{table}" ADD COLUMN "{column}" {sql_type} DEFAULT {value}')


def _listed(columns: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)
