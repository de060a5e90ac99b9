"""The archive: days whose rows are in Parquet files of the lake, and no longer in tables of the database.

The database lists the files, so a question needs no catalog. What it lists changes in one transaction with the tables.
"""

from __future__ import annotations

import datetime
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

import duckdb

from barograph_collector.storage.connection import first_line
from barograph_collector.storage.days.data_path import DataPath
from barograph_collector.storage.days.retention import EPOCH
from barograph_collector.storage.layout import DAILY, LOG_COLUMNS, OWN_COLUMNS, default, quoted, restored
from barograph_collector.storage.text import parquet

FILES: Final = "lake_files"
TIME_COLUMNS: Final = {table: next(n for n in ("ended_at", "at") if n in LOG_COLUMNS[table]) for table in DAILY}
"""When a row was measured."""
_NOWHERE: Final = "/no-lake/"


class LakeAway(Exception):
    """Days in the lake cannot be read. The text names them and the reason."""


class ArchivedFile(NamedTuple):
    """A file with rows of one table and day. path: below the data path of the lake.

    first_job, last_job: the least and the greatest job in it, empty in a table without jobs. lacks: the columns,
    separated by commas, that are younger than the file. first_at, last_at: bounds of the column with the time (Unix
    seconds), both 0 where they are not known.
    """

    day: int
    table: str
    path: str
    rows: int
    last_offset: int
    first_job: str
    last_job: str
    lacks: str = ""
    first_at: float = 0.0
    last_at: float = 0.0


class Wanted(NamedTuple):
    """Rows of some jobs, sorted, none for any, with times from `since` to `until` (Unix seconds)."""

    jobs: tuple[str, ...] = ()
    since: float = -math.inf
    until: float = math.inf

    def may_have(self, file: ArchivedFile) -> bool:
        """Whether a file can have such rows."""
        at = bisect_left(self.jobs, file.first_job)
        if self.jobs and not (at < len(self.jobs) and self.jobs[at] <= file.last_job):
            return False
        # A comparison with NaN is false, and for DuckDB it is the greatest number.
        return (file.first_at, file.last_at) == (0.0, 0.0) or not (
            file.first_at > self.until or file.last_at < self.since
        )


class Archive:
    """The files of the archived days; unchangeable. data: where they are, None for a log without a lake."""

    def __init__(self, data: DataPath | None, files: Iterable[ArchivedFile] = ()) -> None:
        self._data = data
        self._files: dict[tuple[str, int], list[ArchivedFile]] = defaultdict(list)
        for file in files:
            self._files[file.table, file.day].append(file)

    @classmethod
    def load(cls, connection: duckdb.DuckDBPyConnection, data: DataPath | None) -> Archive:
        """As the database has it in the present transaction. Raises duckdb.Error."""
        query = f"SELECT {quoted(OWN_COLUMNS[FILES])} FROM {FILES} ORDER BY path"
        return cls(data, (ArchivedFile(*row) for row in connection.execute(query).fetchall()))

    def store(self, connection: duckdb.DuckDBPyConnection, days: Collection[int]) -> None:
        """Replace what the database lists of these days. Raises duckdb.Error."""
        connection.execute(f"DELETE FROM {FILES} WHERE day IN (SELECT unnest(?::BIGINT[]))", [list(days)])
        for file in self.files():
            if file.day in days:
                connection.execute(f"INSERT INTO {FILES} VALUES ({', '.join('?' * len(file))})", list(file))

    def replaced(self, days: Collection[int], files: Iterable[ArchivedFile]) -> Archive:
        """With other files, or none, for these days."""
        return Archive(self._data, [*(file for file in self.files() if file.day not in days), *files])

    def files(self, day: int | None = None) -> list[ArchivedFile]:
        """Those of a day, or all."""
        return [file for files in self._files.values() for file in files if day in (None, file.day)]

    def rows(self, table: str, day: int) -> int:
        """How many a table has on a day."""
        return sum(file.rows for file in self._files.get((table, day), ()))

    def last_offset(self, table: str, day: int) -> int:
        """That of the last row of a table on a day, 0 for none."""
        return max((file.last_offset for file in self._files.get((table, day), ())), default=0)

    def source(self, table: str, days: Collection[int], wanted: Sequence[Wanted] = (Wanted(),)) -> str:
        """What to select from for the rows of some days, at least those that are wanted; empty where there are none."""
        files = [
            file
            for day in days
            for file in self._files.get((table, day), ())
            if any(one.may_have(file) for one in wanted)
        ]
        parts = [
            f"SELECT {_selected(table, lacks)} FROM {parquet(map(self._at, same))}"
            for lacks in sorted({file.lacks for file in files})
            if (same := [file for file in files if file.lacks == lacks])
        ]
        return f"({' UNION ALL '.join(parts)})" if parts else ""

    def away(self, days: Collection[int], error: duckdb.Error) -> LakeAway:
        """For days, counted from 1970-01-01, whose files gave an error."""
        reason = "they are in a lake, and the collector has none"
        if self._data is not None:
            reason = self._data.explain(first_line(error))
        return LakeAway(f"{_listed(days)} could not be read: {reason}")

    def _at(self, file: ArchivedFile) -> str:
        return _NOWHERE + file.path if self._data is None else self._data.at(file.path)


def unreadable(error: duckdb.Error) -> bool:
    """Whether an error may be that of a file: a damaged one gives any, but for these."""
    return not isinstance(error, (duckdb.InterruptException, duckdb.FatalException, duckdb.InternalException))


def nothing(table: str) -> str:
    """No rows, with the columns of a table."""
    empty = ", ".join(f'NULL::{kind} AS "{column}"' for column, kind in LOG_COLUMNS[table].items())
    return f"SELECT {empty} WHERE false"


def _selected(table: str, lacks: str) -> str:
    absent = set(lacks.split(","))
    return ", ".join(
        f'{default(table, column)} AS "{column}"' if column in absent else restored(table, column)
        for column in LOG_COLUMNS[table]
    )


def _listed(days: Collection[int]) -> str:
    """Days in words.

    >>> _listed([20000]), _listed([20003, 20000])
    ('day 2024-10-04', 'days 2024-10-04 to 2024-10-07')
    """
    first, last = (EPOCH + datetime.timedelta(days=day) for day in (min(days), max(days)))
    return f"day {first}" if first == last else f"days {first} to {last}"
