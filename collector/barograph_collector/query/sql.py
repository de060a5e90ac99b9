"""SQL queries: one SELECT over the log and the lake, read-only, with limits on time and size.

DuckDB itself enforces this: its parser classifies the statement, the transaction is read-only, and the database was
opened without access to files. What it does not enforce is in `statement`.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import duckdb
import pyarrow as pa

from barograph_agent.protocol import wire
from barograph_agent.system.clock import CLOCK
from barograph_collector.query.reader import UNSETTLED, failed
from barograph_collector.query.statement import NotAllowed, check
from barograph_collector.storage.days.archive import Archive, LakeAway, Wanted, unreadable
from barograph_collector.storage.days.partitions import Partition, load
from barograph_collector.storage.layout import LOG_COLUMNS, quoted
from barograph_collector.storage.pages import READ_BYTES
from barograph_collector.storage.store import Store

THREADS: Final = 2
"""Queries that run at once: a long one must not block the page."""
_CHECK_SECONDS: Final = 0.05
"""How late a query may be interrupted."""


class Querier:
    """Runs queries; any thread may call `answer`."""

    def __init__(self, store: Store, settle: Callable[..., bool]) -> None:
        """`settle` waits until durable rows are in the database."""
        self._store = store
        self._settle = settle
        self._stopping = False

    def stop(self) -> None:
        """Interrupt running queries and refuse later ones."""
        self._stopping = True

    def answer(self, query: wire.Sql) -> wire.Rows | wire.Result:
        """The rows of a query, as an Arrow stream, or the error in it."""
        limit = min(max(query.limit, 1), wire.MAX_SQL_ROWS)
        seconds = min(max(query.seconds, 0.1), wire.MAX_SQL_SECONDS)
        try:
            is_settled = self._settle()
            found, note = self._select(query.query, limit, seconds)
            note = note if is_settled else f"{UNSETTLED} {note}".rstrip()
        except NotAllowed as error:
            return failed(query, str(error))
        except duckdb.InterruptException:
            why = "the collector is stopping" if self._stopping else f"not done within {seconds:g} s"
            return failed(query, f"{why}: ask for less, or for longer (at most {wire.MAX_SQL_SECONDS:g} s)")
        except duckdb.Error as error:
            self._store.note_error(error)
            return failed(query, str(error))
        except RuntimeError as error:
            # DuckDB's for a connection whose database was closed under it, as by `Store.reopen`.
            return failed(query, f"the database was opened again meanwhile ({error}): ask again")
        rows = found.slice(0, limit)
        stream = _to_stream(rows)
        if len(stream) > READ_BYTES:
            text = f"the result has {len(stream)} bytes, expected at most {READ_BYTES}: ask for fewer rows or columns"
            return failed(query, text)
        return wire.Result(query.request, stream, rows.num_rows, found.num_rows > limit, note=note[:500])

    def _select(self, text: str, limit: int, seconds: float) -> tuple[pa.Table, str]:
        """The rows, one more than `limit` where there are more, and what they lack."""
        deadline = CLOCK.monotonic() + seconds
        try:
            return self._found(text, limit, deadline, archived=True), ""
        except LakeAway as error:
            # Days in the database have an answer all the same.
            return self._found(text, limit, deadline, archived=False), str(error)

    def _found(self, text: str, limit: int, deadline: float, archived: bool) -> pa.Table:
        """archived: whether to read days in the lake. Raises LakeAway."""
        with self._cursor(deadline) as cursor:
            tables = check(text, cursor)
            every = load(cursor) if tables and archived else ()
            away = [day for day in every if day.archived]
            archive = self._archive(cursor, away)
            try:
                if away:
                    join_lake(cursor, archive, tables, every)
                # The limit of a relation is part of the plan, so rows beyond it are not computed.
                return cursor.sql(text).limit(limit + 1).to_arrow_table()
            except duckdb.Error as error:
                days = [day.day for day in away if any(archive.files(table, [day.day]) for table in tables)]
                if not days or not unreadable(error):
                    raise
                raise archive.away(days, error) from None

    def _archive(self, cursor: duckdb.DuckDBPyConnection, days: Sequence[Partition]) -> Archive:
        """The files of these days, which are archived in the present transaction."""
        partitions = self._store.database.partitions
        # They follow a moment after the commit, the days last.
        known = {day.day for day in partitions.days if day.archived}
        archive = partitions.archive
        return archive if known.issuperset(day.day for day in days) else Archive.load(cursor, self._store.lake)

    @contextlib.contextmanager
    def _cursor(self, deadline: float) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection in a read-only transaction that is interrupted at the deadline."""
        done = threading.Event()
        with self._store.cursor() as cursor:
            timer = threading.Thread(target=self._interrupt_at, args=(cursor, deadline, done), daemon=True)
            timer.start()
            try:
                if self._stopping:
                    raise duckdb.InterruptException
                cursor.execute("BEGIN TRANSACTION READ ONLY")
                yield cursor
            finally:
                done.set()
                timer.join()

    def _interrupt_at(self, cursor: duckdb.DuckDBPyConnection, deadline: float, done: threading.Event) -> None:
        """Interrupt at the deadline, repeatedly: an interrupt between two statements has no effect."""
        while not done.wait(_CHECK_SECONDS):
            if self._stopping or CLOCK.monotonic() >= deadline:
                cursor.interrupt()


def join_lake(
    cursor: duckdb.DuckDBPyConnection,
    archive: Archive,
    tables: Mapping[str, Sequence[Wanted]],
    days: Sequence[Partition],
) -> None:
    """Let these daily tables have their archived days too, for this connection. Raises duckdb.Error.

    Where no archived day can have what is wanted, the table is that of the database.
    """
    for table, rows in tables.items():
        archived = archive.source(archive.files(table, (day.day for day in days if day.archived), rows))
        if not archived:
            continue
        parts = [archived, *(f'"{day.table(table)}"' for day in days if not day.archived)]
        selects = (f"SELECT {quoted(LOG_COLUMNS[table])} FROM {part}" for part in parts)
        cursor.execute(f'CREATE TEMP VIEW "{table}" AS {" UNION ALL ".join(selects)}')


def _to_stream(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data
