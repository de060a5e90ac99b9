"""The DuckDB file: batches of rows are appended with the marks of their streams, in one transaction each.

Tables of the log are only appended to, so rows are stored in the order of their offsets. Checkpoints are explicit:
automatic ones would delay commits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from barograph_collector.storage.layout import DAILY, LOG_COLUMNS, OFFSET, OWN_COLUMNS, STREAMS, quoted
from barograph_collector.storage.migrations import Foreign, migrate
from barograph_collector.storage.pages import PageReader
from barograph_collector.storage.partitions import Partitions
from barograph_collector.storage.retention import Retention
from barograph_collector.storage.rollup import roll_up
from barograph_collector.storage.rows import CheckedRows, to_arrow
from barograph_collector.storage.transaction import transaction

JOURNAL: Final = ""
"""The stream whose mark is the number of the last journal message in the database."""
MARKS_LIMIT: Final = 500_000
"""Rows in `streams` at which it is compacted to one per stream; twice as many as there are streams where more."""


class StoreError(Exception):
    """The database cannot be opened, or is damaged. The text names the file and what to do."""


class StoreHeld(StoreError):
    """Another process has the database open."""


class Database:
    """An open file. `commit` and changes of the schema belong to one thread, `pages` to another."""

    def __init__(self, path: Path, today: int, *, memory_limit: str, threads: int) -> None:
        """Open or create, and migrate. Raises StoreError where it is in use, unreadable, or not a log."""
        self.path = path
        self._connection = _connect(path, memory_limit, threads)
        with contextlib.ExitStack() as unwind:
            unwind.callback(self._connection.close)
            try:
                migrate(self._connection, today)
            except Foreign as error:
                raise StoreError(f"cannot use the log {path}: it {error}") from None
            self._writer = self._connection.cursor()
            self.partitions = Partitions(self._writer)
            self.pages = PageReader(self._connection.cursor(), self.partitions)
            self.head = self._one(f'SELECT coalesce(max("{OFFSET}"), 0) FROM "{STREAMS}"')
            self.heads = {name: self.pages.read(name, -1, 1).next_offset for name in LOG_COLUMNS}
            """The offset of the last row of each table, 0 for none."""
            self._marks = self._one(f'SELECT count(*) FROM "{STREAMS}"')
            self._fold_at = MARKS_LIMIT
            unwind.pop_all()

    @property
    def journal_mark(self) -> int:
        """The number of the last journal message in the database."""
        return self._one(f"SELECT coalesce(max(seq), 0) FROM \"{STREAMS}\" WHERE stream = '{JOURNAL}'")

    def marks(self, streams: Collection[str]) -> dict[str, int]:
        """The highest committed number of each of these streams that is known; from any thread. Raises duckdb.Error."""
        query = (
            f'SELECT stream, max(seq) FROM "{STREAMS}" WHERE stream IN (SELECT unnest(?::VARCHAR[])) GROUP BY stream'
        )
        with self.cursor() as cursor:
            return dict(cursor.execute(query, [list(streams)]).fetchall())

    def commit(self, entries: Sequence[CheckedRows], marks: Mapping[str, int], day: int) -> int:
        """Append entries and the new marks of their streams in one transaction; returns the last offset.

        Offsets follow the order of `entries`. Raises duckdb.Error.
        """
        partition = self.partitions.open(day, self.head)
        head, heads = self.head, dict(self.heads)
        by_table: dict[str, tuple[list[CheckedRows], list[int]]] = {}
        for entry in entries:
            same, offsets = by_table.setdefault(entry.table, ([], []))
            same.append(entry)
            offsets.append(head + 1)
            head += entry.rows
            heads[entry.table] = head
        with transaction(self._writer):
            for name, (same, offsets) in by_table.items():
                target = partition.table(name) if name in DAILY else name
                self._insert(target, LOG_COLUMNS[name], to_arrow(name, same, offsets))
            seqs = np.fromiter(marks.values(), np.int64, len(marks))
            rows = pa.table({"stream": list(marks), "seq": seqs, OFFSET: np.full(len(marks), head)})
            self._insert(STREAMS, OWN_COLUMNS[STREAMS], rows)
        # In this order: up to `head` no table has a row that `heads` lacks.
        self.heads = heads
        self.head = head
        self._marks += len(marks)
        if self._marks > self._fold_at:
            self.fold_marks()
        return head

    def fold_marks(self) -> None:
        """Compact the marks to one per stream; drop those of streams without rows since the oldest day that is kept.

        Such a stream would start over at 1, but the rows that it would send twice have been dropped here as well.
        """
        oldest = self.partitions.days[0].first_offset if self.partitions.dropped else 0
        with transaction(self._writer):
            self._writer.execute(
                f'CREATE TABLE folded AS SELECT stream, max(seq)::BIGINT AS seq, max("{OFFSET}")::BIGINT AS "{OFFSET}"'
                f' FROM "{STREAMS}" GROUP BY stream HAVING max("{OFFSET}") >= {oldest} OR stream = \'{JOURNAL}\''
            )
            self._writer.execute(f'DROP TABLE "{STREAMS}"')
            self._writer.execute(f'ALTER TABLE folded RENAME TO "{STREAMS}"')
        self._marks = self._one(f'SELECT count(*) FROM "{STREAMS}"')
        self._fold_at = max(MARKS_LIMIT, 2 * self._marks)

    def checkpoint(self) -> None:
        """Write the WAL into the file. Raises duckdb.Error, also during other transactions."""
        self._writer.execute("CHECKPOINT")

    def roll_up(self) -> int:
        """Roll up the days that have ended and are not rolled up; returns how many. Raises duckdb.Error."""
        due = [day for day in self.partitions.days[:-1] if not day.rolled_up]
        for day in due:
            roll_up(self._writer, day)
        return len(due)

    def drop_days(self, retention: Retention, today: int) -> int:
        """Drop days by retention, the oldest first; returns how many. Raises duckdb.Error."""
        dropped = 0
        while len(days := self.partitions.days) > 1 and retention.is_due(days[0].day, today, self.used_bytes):
            self.partitions.drop(days[0].day)
            # Only a checkpoint makes the space reusable.
            self.checkpoint()
            dropped += 1
        if dropped:
            self.fold_marks()
        return dropped

    def used_bytes(self) -> int:
        """Bytes in use in the file, without its free blocks."""
        return self._one("SELECT block_size * used_blocks FROM pragma_database_size()")

    def row_counts(self) -> dict[str, int]:
        """The approximate number of rows in each table of the log."""
        query = "SELECT table_name, estimated_size FROM duckdb_tables()"
        sizes = dict(self._writer.execute(query).fetchall())
        return {name: sum(sizes.get(part, 0) for part in self.partitions.after(name, 0)) for name in LOG_COLUMNS}

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A new connection to the same database, for one thread; the caller closes it."""
        return self._connection.cursor()

    def close(self) -> None:
        """Close the file. DuckDB checkpoints it where possible."""
        for connection in (self.pages.connection, self._writer, self._connection):
            connection.close()

    def _insert(self, table: str, columns: Iterable[str], rows: pa.Table) -> None:
        names = quoted(columns)
        self._writer.register("incoming", rows)
        stored = self._one(f'INSERT INTO "{table}" ({names}) SELECT {names} FROM incoming')
        # Not after a failure: an aborted transaction accepts only its rollback.
        self._writer.unregister("incoming")
        if stored != rows.num_rows:
            raise StoreError(f"table {table!r} in {self.path} took {stored} rows, expected {rows.num_rows}")

    def _one(self, query: str) -> int:
        row: Any = self._writer.execute(query).fetchone()
        return int(row[0])


def _connect(path: Path, memory_limit: str, threads: int) -> duckdb.DuckDBPyConnection:
    # SQL comes from other users: no downloads, no other files, and no Python variables as tables.
    config: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory_limit,
        "threads": threads,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "enable_external_access": False,
        "checkpoint_threshold": "1TB",
    }
    try:
        connection = duckdb.connect(str(path), config=config)
    except duckdb.Error as error:
        reason = first_line(error)
        if "Could not set lock" in reason:
            holder = reason[reason.rfind("(PID") :].partition(")")[0].lstrip("(") if "(PID" in reason else "PID unknown"
            raise StoreHeld(
                f"cannot open the log {path}: another process has it open ({holder});"
                " stop that one, or choose another state directory"
            ) from None
        raise StoreError(f"cannot open the log {path}: {reason}") from None
    connection.execute("SET python_enable_replacements = false")
    return connection


def first_line(error: duckdb.Error) -> str:
    """The first line of an error; the rest is about DuckDB itself."""
    return str(error).strip().splitlines()[0].removeprefix("IO Error: ")
