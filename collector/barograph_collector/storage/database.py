"""The DuckDB file: batches of rows are appended with the marks of their streams, in one transaction each.

Tables of the log are only appended to, so rows are stored in the order of their offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from barograph_collector.storage.connection import StoreError, connect, first_line, transaction
from barograph_collector.storage.layout import DAILY, JOURNAL, LOG_COLUMNS, OFFSET, OWN_COLUMNS, STREAMS, quoted
from barograph_collector.storage.migrations import migrate
from barograph_collector.storage.pages import PageReader
from barograph_collector.storage.partitions import Partitions
from barograph_collector.storage.retention import Retention
from barograph_collector.storage.rows import CheckedRows, numbered, to_arrow

MARKS_LIMIT: Final = 500_000
"""Rows of `streams` at which it is compacted to one per stream; twice the number of streams where that is more."""


class Database:
    """An open file. Commits and changes of the schema belong to one thread, `pages` to another."""

    def __init__(self, path: Path) -> None:
        """Open or create, and migrate. Raises StoreError where the file is in use, unreadable, or not a log."""
        self.path = path
        self._connection = connect(path)
        try:
            migrate(self._connection, path)
            self._writer = self._connection.cursor()
            self.partitions = Partitions(self._writer)
            self.pages = PageReader(path, self._connection.cursor(), self.partitions)
            self.head = self._one(f'SELECT coalesce(max("{OFFSET}"), 0) FROM "{STREAMS}"')
            self.heads = {name: self.pages.read(name, -1, 1).next_offset for name in LOG_COLUMNS}
            """The offset of the last row of each table, 0 for none."""
            self.name = str(self._row("SELECT name FROM identity")[0])
            """Of this log, among those that write to one lake."""
            self._marks = self._one(f'SELECT count(*) FROM "{STREAMS}"')
            self._compact_at = MARKS_LIMIT
        except BaseException as error:
            self._connection.close()
            if isinstance(error, duckdb.Error):
                raise StoreError(f"cannot use the log {path}: {first_line(error)}") from None
            raise

    @property
    def journal_mark(self) -> int:
        """The number of the last journal message in the database."""
        return self._one(f"SELECT coalesce(max(seq), 0) FROM \"{STREAMS}\" WHERE stream = '{JOURNAL}'")

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

    def commit(self, entries: Sequence[CheckedRows], marks: Mapping[str, int], day: int) -> int:
        """Append entries and the new marks of their streams in one transaction; returns the last offset.

        Offsets follow the order of `entries`. Raises duckdb.Error.
        """
        partition = self.partitions.open(day, self.head)
        by_table, head, heads = numbered(entries, self.head, self.heads)
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
        if self._marks > self._compact_at:
            self.compact_marks()
        return head

    def compact_marks(self) -> None:
        """Compact the marks to one per stream; drop those of streams without rows since the oldest day that is kept.

        Such a stream would start over at 1, but the rows that it would resend have been dropped here as well.
        """
        with transaction(self._writer):
            self._writer.execute(
                f'CREATE TABLE folded AS SELECT stream, max(seq)::BIGINT AS seq, max("{OFFSET}")::BIGINT AS "{OFFSET}"'
                f' FROM "{STREAMS}" GROUP BY stream'
                f" HAVING max(\"{OFFSET}\") >= {self.partitions.first_offset} OR stream = '{JOURNAL}'"
            )
            self._writer.execute(f'DROP TABLE "{STREAMS}"')
            self._writer.execute(f'ALTER TABLE folded RENAME TO "{STREAMS}"')
        self._marks = self._one(f'SELECT count(*) FROM "{STREAMS}"')
        self._compact_at = max(MARKS_LIMIT, 2 * self._marks)

    def checkpoint(self) -> None:
        """Write the WAL into the file. Raises duckdb.Error, also during other transactions."""
        self._writer.execute("CHECKPOINT")

    def drop_days(self, retention: Retention, today: int, upto: int) -> int:
        """Drop days by retention, the oldest first; returns how many. Raises duckdb.Error.

        upto: an offset; days with rows beyond it stay.
        """
        dropped = 0
        while len(days := self.partitions.days) > 1 and days[1].first_offset <= upto + 1:
            expired = retention.days and days[0].day < today - retention.days
            if not expired and not (retention.bytes and self._daily_bytes(retention.bytes) > retention.bytes):
                break
            self.partitions.drop_oldest()
            # Only a checkpoint makes the space reusable.
            self.checkpoint()
            dropped += 1
        if dropped:
            self.compact_marks()
        return dropped

    def _daily_bytes(self, limit: int) -> int:
        """Size of the daily tables in the file; of all tables if that is within the limit. Free blocks do not count."""
        block_size, blocks = map(int, self._row("SELECT block_size, used_blocks FROM pragma_database_size()"))
        if block_size * blocks <= limit:
            return block_size * blocks
        # What is kept for ever, whoever wrote it, is no reason to drop what others wrote on any day.
        kept = [name for name in (*LOG_COLUMNS, *OWN_COLUMNS) if name not in DAILY]
        segments = " UNION ALL ".join(
            f"SELECT unnest(list_prepend(block_id, additional_block_ids)) AS block FROM pragma_storage_info('{name}')"
            for name in kept
        )
        return block_size * (blocks - self._one(f"SELECT count(DISTINCT block) FROM ({segments}) WHERE block >= 0"))

    def free_share(self) -> tuple[float, int]:
        """The share of the file that nothing uses, and its size in bytes. Raises duckdb.Error."""
        row = self._row("SELECT block_size, total_blocks, free_blocks FROM pragma_database_size()")
        return row[2] / max(row[1], 1), row[0] * row[2]

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
        return int(self._row(query)[0])

    def _row(self, query: str) -> tuple[Any, ...]:
        row: Any = self._writer.execute(query).fetchone()
        return tuple(row)
