"""Batches of the log: which rows belong into the same files, and their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from barograph_agent.protocol.tables import TABLES, Kind
from barograph_collector.lake.layout import MARKS
from barograph_collector.storage.layout import LOG_COLUMNS, OFFSET, STREAMS, quoted
from barograph_collector.storage.store import Store

BATCH_ROWS: Final = 500_000
BATCH_BYTES: Final = 2**28
"""Of texts: a batch with more is halved until it has less, or one row."""


class Batch(NamedTuple):
    """Rows with offsets from `first` to `last`, the first of which was stored on a day (YYYY-MM-DD)."""

    first: int
    last: int
    day: str


class BatchReader:
    """Cuts the rows of a log into batches, for the thread of the publisher. Raises duckdb.Error."""

    limit: ClassVar[int] = BATCH_ROWS
    """Rows of a batch, except of a commit that has more."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def day(self, offset: int) -> str:
        """The day of the row with this offset, or of the next one to come. There is a day."""
        days = self._store.database.partitions.days
        before = [day for day in days if day.first_offset <= offset] or list(days[:1])
        return f"{before[-1].date:%Y-%m-%d}"

    def next(self, after: int, head: int) -> Batch:
        """The batch behind an offset, of rows up to `head`; there is one at least.

        It ends where a commit of the log has ended: the marks of this commit are those of all rows up to there. Of a
        log whose marks were compacted before it had a lake, the next mark may be one of a later day.
        """
        first = after + 1
        ends = [day.first_offset - 1 for day in self._store.database.partitions.days if day.first_offset > first]
        last = self._end_of_commit(first, min([head, first + self.limit - 1, *ends]))
        while last > first and self._text_bytes(first, last) > BATCH_BYTES:
            shorter = self._end_of_commit(first, first + (last - first) // 2)
            if shorter >= last:
                break
            last = shorter
        return Batch(first, last, self.day(first))

    def _end_of_commit(self, first: int, last: int) -> int:
        """The last offset of the commits that have ended by `last`, or of the one that is under way at `first`."""
        query = (
            f'SELECT max("{OFFSET}") FILTER ("{OFFSET}" <= {last}), min("{OFFSET}") FROM "{STREAMS}"'
            f' WHERE "{OFFSET}" >= {first}'
        )
        with self._store.cursor() as log:
            before, following = log.execute(query).fetchone() or (None, None)
        return int(before or following or last)

    def rows(self, batch: Batch) -> Iterator[tuple[str, pa.Table]]:
        """The rows by table, of those tables that have any, and the marks of their streams."""
        with self._store.cursor() as log:
            for table, parts in self._relations(batch.first, batch.last).items():
                selects = (f"SELECT {quoted(LOG_COLUMNS[table])} FROM {part}" for part in parts)
                if (rows := log.execute(" UNION ALL ".join(selects)).to_arrow_table()).num_rows:
                    yield table, rows
            within = f'"{OFFSET}" BETWEEN {batch.first} AND {batch.last}'
            query = f'SELECT stream, max(seq) AS seq, max("{OFFSET}") AS "{OFFSET}" FROM "{STREAMS}" WHERE {within}'
            if (marks := log.execute(f"{query} GROUP BY stream ORDER BY stream").to_arrow_table()).num_rows:
                yield MARKS, marks

    def by_day(self, batch: Batch, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """The rows of a batch by the day on which they were stored."""
        days = [day for day in self._store.database.partitions.days if batch.first < day.first_offset <= batch.last]
        if not days:
            yield batch.day, rows
            return
        starts = np.array([day.first_offset for day in days])
        numbers = np.searchsorted(starts, rows[OFFSET].to_numpy(), side="right")
        for number, day in enumerate([batch.day, *(f"{day.date:%Y-%m-%d}" for day in days)]):
            if (part := rows.filter(pa.array(numbers == number))).num_rows:
                yield day, part

    def _relations(self, first: int, last: int) -> dict[str, list[str]]:
        """For each table with rows after `first`, what to select from: those up to `last`."""
        database = self._store.database
        within = f'WHERE "{OFFSET}" BETWEEN {first} AND {last}'
        return {
            table: [f"{part.source} {within}" for part in database.partitions.after(table, first - 1, last)]
            for table, newest in database.heads.items()
            if newest >= first
        }

    def _text_bytes(self, first: int, last: int) -> int:
        with self._store.cursor() as log:
            return _texts(log, self._relations(first, last))


def _texts(log: duckdb.DuckDBPyConnection, relations: dict[str, list[str]]) -> int:
    """Bytes of the texts in these rows."""
    size = 0
    for table, parts in relations.items():
        texts = [name for name, kind in TABLES[table].columns.items() if kind is Kind.TEXT]
        for part in parts if texts else ():
            lengths = " + ".join(f'strlen("{name}")' for name in texts)
            row = log.execute(f"SELECT coalesce(sum({lengths}), 0) FROM {part}").fetchone()
            size += int(row[0]) if row else 0
    return size
