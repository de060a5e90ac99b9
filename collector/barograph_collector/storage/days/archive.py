"""The archive: sealed files of the lake, from which the rows of days are read that have left the database.

The database lists the files, so a query needs no catalog. What it lists changes in one transaction with the tables.
"""

from __future__ import annotations

import datetime
import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple, Self

import duckdb

from barograph_collector.storage.connection import reason_of
from barograph_collector.storage.days.data_path import DataPath
from barograph_collector.storage.days.retention import EPOCH
from barograph_collector.storage.layout import DAILY, LOG_COLUMNS, OWN_COLUMNS, default, quoted, restored
from barograph_collector.storage.text import parquet

FILES: Final = "lake_files"
MAIN: Final = "main"
"""The directory of the tables: DuckLake's name of their schema."""
TIME_COLUMNS: Final = {table: next(n for n in ("ended_at", "time") if n in LOG_COLUMNS[table]) for table in DAILY}
"""When a row was measured."""
_NAME: Final = re.compile(r"main/(\w+)/day=(\d{4}-\d\d-\d\d)/([0-9a-z.]+)-(\d+)-(\d+)(?:-(\d+))?\.parquet")
_NOWHERE: Final = "/no-lake/"


class LakeAway(Exception):
    """Days in the lake cannot be read. The text names them and the reason."""


class FileName(NamedTuple):
    """The name of a sealed file: a function of table, log and period. edition: how often it was written anew."""

    table: str
    day: int
    log: str
    first: int
    last: int
    edition: int = 0

    @property
    def path(self) -> str:
        """Below the data path of the lake."""
        edition = f"-{self.edition}" if self.edition else ""
        date = EPOCH + datetime.timedelta(days=self.day)
        return f"{MAIN}/{self.table}/day={date}/{self.log}-{self.first}-{self.last}{edition}.parquet"

    @classmethod
    def read(cls, path: PurePosixPath | str) -> Self | None:
        """From its path; None for another file.

        >>> FileName.read("main/blocks/day=2024-10-04/ab-1-9-2.parquet")
        FileName(table='blocks', day=20000, log='ab', first=1, last=9, edition=2)
        """
        if (match := _NAME.fullmatch(str(path))) is None:
            return None
        table, date, log, *numbers = match.groups(default="0")
        return cls(table, (datetime.date.fromisoformat(date) - EPOCH).days, log, *map(int, numbers))


class SealedFile(NamedTuple):
    """A file with the rows of one table and period.

    width: number of the table's columns when it was written: later ones are at the end. first_job, last_job: the least
    and the greatest job in it, empty in a table without jobs. first_at, last_at: bounds of the column with the time
    (Unix seconds), both 0 where they are unknown.
    """

    table: str
    day: int
    first: int
    last: int
    edition: int
    width: int
    rows: int
    first_job: str = ""
    last_job: str = ""
    first_at: float = 0.0
    last_at: float = 0.0

    def name(self, log: str) -> FileName:
        """Its name in the lake."""
        return FileName(self.table, self.day, log, self.first, self.last, self.edition)


class Wanted(NamedTuple):
    """Rows of some jobs, sorted, none for any, with times from `since` to `until` (Unix seconds)."""

    jobs: tuple[str, ...] = ()
    since: float = -math.inf
    until: float = math.inf

    def may_have(self, file: SealedFile) -> bool:
        """Whether a file can have such rows."""
        at = bisect_left(self.jobs, file.first_job)
        if self.jobs and not (at < len(self.jobs) and self.jobs[at] <= file.last_job):
            return False
        # A comparison with NaN is false, and for DuckDB it is the greatest number.
        return (file.first_at, file.last_at) == (0.0, 0.0) or not (
            file.first_at > self.until or file.last_at < self.since
        )


class Archive:
    """The sealed files of the daily tables of one log; unchangeable. data: where they are, None without a lake."""

    def __init__(self, data: DataPath | None, log: str = "", files: Iterable[SealedFile] = ()) -> None:
        self._data = data
        self._log = log
        self._files: dict[tuple[str, int], list[SealedFile]] = defaultdict(list)
        for file in files:
            if file.table in DAILY:
                self._files[file.table, file.day].append(file)

    @classmethod
    def load(cls, connection: duckdb.DuckDBPyConnection, data: DataPath | None) -> Archive:
        """As the database has it in the present transaction. Raises duckdb.Error."""
        (log,) = connection.execute("SELECT name FROM identity").fetchone() or ("",)
        return cls(data, log, listed(connection))

    def with_files(self, files: Iterable[SealedFile]) -> Archive:
        """With further files."""
        return Archive(self._data, self._log, [*(file for part in self._files.values() for file in part), *files])

    def files(self, table: str, days: Iterable[int], wanted: Sequence[Wanted] = (Wanted(),)) -> list[SealedFile]:
        """Those of a table and some days that may have what is wanted, in the order of their offsets."""
        return [
            file
            for day in days
            for file in self._files.get((table, day), ())
            if any(part.may_have(file) for part in wanted)
        ]

    def source(self, files: Sequence[SealedFile]) -> str:
        """What to select from for the rows of files of one table; empty for none."""
        parts = [
            f"SELECT {_selected(files[0].table, width)} FROM"
            f" {parquet(self._at(file) for file in files if file.width == width)}"
            for width in sorted({file.width for file in files})
        ]
        return f"({' UNION ALL '.join(parts)})" if parts else ""

    def away(self, days: Collection[int], error: duckdb.Error) -> LakeAway:
        """For days, counted from 1970-01-01, whose files gave an error."""
        reason = "they are in a lake, and the collector has none"
        if self._data is not None:
            reason = self._data.explain(reason_of(error))
        return LakeAway(f"{_listed(days)} could not be read: {reason}")

    def _at(self, file: SealedFile) -> str:
        path = file.name(self._log).path
        return _NOWHERE + path if self._data is None else self._data.at(path)


def listed(connection: duckdb.DuckDBPyConnection) -> list[SealedFile]:
    """All files that the database lists, of all tables. Raises duckdb.Error."""
    query = f"SELECT {quoted(OWN_COLUMNS[FILES])} FROM {FILES} ORDER BY first_offset"
    return [SealedFile(*row) for row in connection.execute(query).fetchall()]


def store_files(connection: duckdb.DuckDBPyConnection, files: Iterable[SealedFile]) -> None:
    """List further files. Raises duckdb.Error."""
    for file in files:
        connection.execute(f"INSERT INTO {FILES} VALUES ({', '.join('?' * len(file))})", list(file))


def unreadable(error: duckdb.Error) -> bool:
    """Whether an error may be that of a file: a damaged one gives any, but for these."""
    return not isinstance(error, (duckdb.InterruptException, duckdb.FatalException, duckdb.InternalException))


def nothing(table: str) -> str:
    """No rows, with the columns of a table."""
    empty = ", ".join(f'NULL::{kind} AS "{column}"' for column, kind in LOG_COLUMNS[table].items())
    return f"SELECT {empty} WHERE false"


def _selected(table: str, width: int) -> str:
    return ", ".join(
        restored(table, column) if number < width else f'{default(table, column)} AS "{column}"'
        for number, column in enumerate(LOG_COLUMNS[table])
    )


def _listed(days: Collection[int]) -> str:
    """Days in words.

    >>> _listed([20000]), _listed([20003, 20000])
    ('day 2024-10-04', 'days 2024-10-04 to 2024-10-07')
    """
    first, last = (EPOCH + datetime.timedelta(days=day) for day in (min(days), max(days)))
    return f"day {first}" if first == last else f"days {first} to {last}"
