"""A stand-in for the database: tables in memory, committed as one, as durable as DuckDB's.

Opening DuckDB takes longer than a whole schedule. A test holds the two to the same answers.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barograph_agent.protocol.tables import TABLES
from barograph_agent.protocol.wire import Column
from barograph_collector.storage.days.archive import Archive, SealedFile
from barograph_collector.storage.days.partitions import Partition
from barograph_collector.storage.days.periods import OpenPeriod, Periods
from barograph_collector.storage.days.retention import Retention
from barograph_collector.storage.layout import JOURNAL, LOG_COLUMNS, OFFSET
from barograph_collector.storage.pages import READ_BYTES, LogPage, _weights
from barograph_collector.storage.rows import Entry, numbered, to_arrow


class _Sorted(NamedTuple):
    """Rows of a table in the order of their offsets, and the bytes of all up to each."""

    rows: pa.Table
    offsets: np.ndarray
    bytes: np.ndarray

    @classmethod
    def of(cls, rows: pa.Table) -> _Sorted:
        offsets = rows[OFFSET].to_numpy()
        assert (np.diff(offsets) > 0).all()
        return cls(rows, offsets, np.cumsum(_weights(rows)))

    def between(self, after: int, upto: int) -> _Sorted:
        """Those behind an offset, up to another one."""
        first, last = self.offsets.searchsorted((after, upto), side="right").tolist()
        return self.part(first, max(last - first, 0))

    def part(self, first: int, count: int) -> _Sorted:
        """So many from one on, by its number."""
        chosen = slice(first, first + count)
        before = self.bytes[first - 1] if first else 0.0
        return _Sorted(self.rows.slice(first, count), self.offsets[chosen], self.bytes[chosen] - before)

    def fitting(self, limit: int, room: float) -> _Sorted:
        """The first, as many as a message has room for, but at least one."""
        fits = int(np.searchsorted(self.bytes[:limit], room, side="right"))
        return self.part(0, min(max(fits, 1), len(self.offsets)))


class Tables:
    """What is in the file: it outlives the processes that open it."""

    def __init__(self, name: str = "log", rows_of_day: int = 40) -> None:
        """rows_of_day: after so many rows the next commit begins a new day."""
        self.rows: dict[str, list[pa.Table]] = {name: [] for name in LOG_COLUMNS}
        self.marks: dict[str, int] = {}
        self.mark_rows: list[tuple[int, str, int]] = []
        """The head after each commit, and its marks: stream and number."""
        self.head = 0
        self.name = name
        self.rows_of_day = rows_of_day
        self.days: tuple[Partition, ...] = ()
        self.unsealed: tuple[OpenPeriod, ...] = ()
        self.files: list[SealedFile] = []
        self.sealed = 0
        """Of the lake, the last offset."""
        self.fails = lambda: False
        """Whether the next commit fails."""
        self._sorted: dict[str, tuple[int, _Sorted]] = {}

    @property
    def last(self) -> int:
        """The offset of the last row."""
        return max((parts[-1][OFFSET][-1].as_py() for parts in self.rows.values() if parts), default=0)

    def sorted(self, table: str) -> _Sorted:
        """All rows of a table."""
        parts = self.rows[table]
        if not parts:
            return _Sorted.of(_empty(table))
        if self._sorted.get(table, (0, None))[0] != len(parts):
            self._sorted[table] = len(parts), _Sorted.of(pa.concat_tables(parts).combine_chunks())
        return self._sorted[table][1]

    def all(self, table: str) -> dict[str, list[Any]]:
        """All rows of a table, as columns."""
        parts = self.rows[table]
        names = LOG_COLUMNS[table]
        return (
            {n: [v for part in parts for v in part[n].to_pylist()] for n in names} if parts else {n: [] for n in names}
        )


class SimulatedPeriods(Periods):
    """Periods that are kept in tables in memory."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.unsealed, self.sealed, self.place = tables.unsealed, tables.sealed, ""

    def seal(self, last: int, files: Sequence[SealedFile], place: str) -> None:
        self._tables.files += files
        self._tables.sealed = self.sealed = last
        self._replace(self.after(last))

    def _replace(self, periods: Sequence[OpenPeriod]) -> None:
        self._tables.unsealed = self.unsealed = tuple(periods)


class SimulatedDatabase:
    """What Database offers to Store."""

    def __init__(self, tables: Tables, has_lake: bool = False) -> None:
        self._tables = tables
        self._has_lake = has_lake
        self.periods = SimulatedPeriods(tables)
        self.pages = self.rounds = self
        self.partitions = self
        self.head = tables.head
        self.heads = {name: parts[-1][OFFSET][-1].as_py() if parts else 0 for name, parts in tables.rows.items()}

    @property
    def journal_mark(self) -> int:
        return self._tables.marks.get(JOURNAL, 0)

    def journal_mark_at(self, offset: int) -> int:
        marks = (seq for head, name, seq in self._tables.mark_rows if name == JOURNAL and head <= offset)
        return max(marks, default=0)

    def marks_between(self, first: int, last: int) -> dict[str, int]:
        """The marks of the commits that have ended there."""
        found: dict[str, int] = {}
        for head, name, seq in self._tables.mark_rows:
            if first <= head <= last:
                found[name] = max(found.get(name, 0), seq)
        return found

    @property
    def sealed(self) -> int:
        return self.periods.sealed if self._has_lake else 2**63 - 1

    def begin_period(self, number: int) -> None:
        if self._has_lake and self.days:
            self.periods.begin(number, self.head, [day.first_offset for day in self.days])

    def day_of(self, offset: int) -> int:
        return next((day.day for day in reversed(self.days) if day.first_offset <= offset), self.days[0].day)

    def seal(self, last: int, files: Sequence[SealedFile], place: str) -> None:
        self.periods.seal(last, files, place)

    def sealed_files(self) -> list[SealedFile]:
        return list(self._tables.files)

    @property
    def days(self) -> tuple[Partition, ...]:
        return self._tables.days

    @property
    def name(self) -> str:
        return self._tables.name

    archive = Archive(None)

    def between(self, first: int, last: int) -> Iterator[tuple[str, pa.Table]]:
        """The rows with these offsets, by table."""
        for table in LOG_COLUMNS:
            found = self._tables.sorted(table).between(first - 1, last)
            if found.rows.num_rows:
                yield table, found.rows

    def owners(self, jobs: Collection[str]) -> dict[str, str]:
        return {}

    def marks(self, streams: Collection[str]) -> dict[str, int]:
        return {name: seq for name, seq in self._tables.marks.items() if name in streams}

    def commit(self, entries: Sequence[Entry], marks: Mapping[str, int], day: int, period: int = 0) -> int:
        by_table, head, heads = numbered(entries, self.head, self.heads)
        new = {name: to_arrow(name, same) for name, same in by_table.items()}
        if self._tables.fails():
            raise duckdb.IOException("the simulated disk of the database failed")
        size, days = self._tables.rows_of_day, self._tables.days
        if not days or (self.head + 1 >= days[-1].first_offset + size):
            self._tables.days = (*days, Partition(20_000 + len(days), self.head + 1))
        self.begin_period(period)
        for name, rows in new.items():
            plain = pa.table(
                {
                    c: rows[c].cast(pa.string()) if pa.types.is_dictionary(rows[c].type) else rows[c]
                    for c in rows.column_names
                }
            )
            self._tables.rows[name].append(plain)
        self._tables.marks |= marks
        self._tables.mark_rows += [(head, name, seq) for name, seq in marks.items()]
        self._tables.head = self.head = head
        self.heads = heads
        return head

    def read(self, table: str, after: int, limit: int, job: str = "") -> LogPage:
        found = self._tables.sorted(table).between(max(after, 0), self._tables.head)
        if job:
            found = _Sorted.of(found.rows.filter(pc.equal(found.rows["job"], job)))
        if after < 0:
            if not len(found.offsets):
                return LogPage(_columns(found.rows), 0, self.heads[table])
            first = max(len(found.offsets) + after, 0)
            found = found.part(first, len(found.offsets) - first)
            after = int(found.offsets[0]) - 1
        found = found.fitting(limit, READ_BYTES)
        last = int(found.offsets[-1]) if len(found.offsets) else after
        return LogPage(_columns(found.rows), len(found.offsets), last)

    def read_round(self, offsets: Mapping[str, int], upto: int, limit: int) -> tuple[int, dict[str, dict[str, Column]]]:
        found: dict[str, _Sorted] = {}
        for table, after in offsets.items():
            rows = self._tables.sorted(table).between(after, upto)
            fitting = rows.fitting(limit, READ_BYTES / len(offsets))
            if 0 < len(fitting.offsets) < len(rows.offsets) or len(fitting.offsets) == limit:
                upto = min(upto, int(fitting.offsets[-1]))
            if len(fitting.offsets):
                found[table] = fitting
        cut = {table: rows.between(offsets[table], upto) for table, rows in found.items()}
        return upto, {table: _columns(rows.rows) for table, rows in cut.items() if len(rows.offsets)}

    def compact_marks(self) -> None:
        pass

    def checkpoint(self) -> None:
        pass

    def retire(self, retention: Retention, today: int | None) -> int:
        return 0

    def row_counts(self) -> dict[str, int]:
        return {name: sum(part.num_rows for part in parts) for name, parts in self._tables.rows.items()}

    def cursor(self) -> SimulatedDatabase:
        return self

    __enter__ = cursor

    def close(self, *error: object) -> None:
        pass

    __exit__ = close


@functools.cache
def _empty(table: str) -> pa.Table:
    kinds = {OFFSET: pa.int64()} | {
        name: pa.string() if kind.is_text else pa.from_numpy_dtype(kind.dtype)
        for name, kind in TABLES[table].columns.items()
    }
    return pa.table({name: pa.array([], kind) for name, kind in kinds.items()}).select(list(LOG_COLUMNS[table]))


def _columns(rows: pa.Table) -> dict[str, Column]:
    return {
        name: column.to_pylist() if pa.types.is_string(column.type) else column.to_numpy()
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    }
