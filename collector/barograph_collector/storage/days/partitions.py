"""Partitions of the daily tables: one table a day, dropped as a whole, and a view over all days."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import duckdb

from barograph_collector.storage.connection import transaction
from barograph_collector.storage.days.archive import Archive, SealedFile, Wanted, nothing
from barograph_collector.storage.days.data_path import DataPath
from barograph_collector.storage.days.retention import EPOCH
from barograph_collector.storage.layout import DAILY, LOG_COLUMNS, declared, quoted


@dataclass(slots=True)
class Partition:
    """One day, counted from 1970-01-01. Its rows have offsets of at least `first_offset`."""

    day: int
    first_offset: int
    archived: bool = False
    """Whether its rows are in the lake, and not in tables."""

    def create(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Create the missing partitions of the daily tables."""
        for name in () if self.archived else DAILY:
            connection.execute(f'CREATE TABLE IF NOT EXISTS "{self.table(name)}" ({declared(LOG_COLUMNS[name])})')

    def table(self, name: str) -> str:
        """The name of this day's partition of a daily table."""
        return f"{name}_{self.date:%Y%m%d}"

    @property
    def date(self) -> datetime.date:
        """The day."""
        return EPOCH + datetime.timedelta(days=self.day)


class DaySource(NamedTuple):
    """Where a table has rows of some offsets: what to select from.

    archived: the day of files in the lake, in the order of their offsets; None in the database.
    """

    source: str
    archived: int | None = None
    files: Sequence[SealedFile] = ()


class Partitions:
    """The days in the order of the log. Belongs to the writer thread. All methods raise duckdb.Error.

    A day in the future is followed by earlier ones, where a clock was ahead.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, lake: DataPath | None = None) -> None:
        """lake: where the files of archived days are."""
        self._connection = connection
        # Replaced as a whole by each change: the reader threads use them.
        self.days = load(connection)
        self.archive = Archive.load(connection, lake)
        views = {name for (name,) in connection.execute("SELECT view_name FROM duckdb_views()").fetchall()}
        if not views.issuperset(DAILY):
            with transaction(connection):
                self._create_views(self.days)

    def open(self, day: int, head: int) -> Partition:
        """The partition for rows of this day after offset `head`; the newest one for a day that the log has had."""
        if any(known.day == day for known in self.days):
            return self.days[-1]
        fresh = Partition(day, head + 1)
        with transaction(self._connection):
            fresh.create(self._connection)
            self._connection.execute("INSERT INTO partitions VALUES (?, ?, false)", [fresh.day, fresh.first_offset])
            self._create_views((*self.days, fresh))
        self.days = (*self.days, fresh)
        return fresh

    def drop_oldest(self) -> None:
        """Drop the oldest day of all daily tables."""
        oldest, *rest = self.days
        self._drop(oldest, rest, "DELETE FROM partitions WHERE day = ?")

    def archive_day(self, day: Partition) -> None:
        """Let a day have its rows in the sealed files, which have all of them, and drop its tables."""
        now = [replace(other, archived=True) if other is day else other for other in self.days]
        self._drop(day, now, "UPDATE partitions SET archived = true WHERE day = ?")

    def _drop(self, day: Partition, now: Sequence[Partition], change: str) -> None:
        """Drop the tables of a day. now: the days from then on, which a statement lists."""
        with transaction(self._connection):
            self._create_views(now)
            for name in DAILY:
                self._connection.execute(f'DROP TABLE IF EXISTS "{day.table(name)}"')
            self._connection.execute(change, [day.day])
        self.days = tuple(now)

    @property
    def first_offset(self) -> int:
        """The lowest offset that rows of daily tables can have: 1 until a day has been dropped."""
        return self.days[0].first_offset if self.days else 1

    def day_of(self, offset: int) -> int:
        """The day of the row with this offset. There is a day."""
        days = self.days
        return next((day.day for day in reversed(days) if day.first_offset <= offset), days[0].day)

    def after(self, name: str, offset: int, upto: int = 2**63, job: str = "") -> list[DaySource]:
        """Where rows of `name` beyond `offset` up to `upto` may be, or those of a job, in the order of their offsets.

        One part at least.
        """
        days = self.days
        if name not in DAILY or not days:
            return [DaySource(f'"{name}"')]
        ends = [*(partition.first_offset for partition in days), 2**63][1:]
        found: list[DaySource] = []
        for partition, end in zip(days, ends, strict=True):
            if end <= offset + 1 or partition.first_offset > upto:
                continue
            if not partition.archived:
                found.append(DaySource(f'"{partition.table(name)}"'))
            else:
                files = [
                    file
                    for file in self.archive.files(name, [partition.day], [Wanted((job,) if job else ())])
                    if file.last > offset and file.first <= upto
                ]
                if files:
                    found.append(DaySource(self.archive.source(files), partition.day, files))
        return found or [DaySource(f'"{name}"')]

    def _create_views(self, days: Sequence[Partition]) -> None:
        for name in DAILY:
            columns = quoted(LOG_COLUMNS[name])
            parts = [f'SELECT {columns} FROM "{partition.table(name)}"' for partition in days if not partition.archived]
            query = " UNION ALL ".join(parts) or nothing(name)
            self._connection.execute(f'CREATE OR REPLACE VIEW "{name}" AS {query}')


def actual_day(partition: Partition, days: Sequence[Partition]) -> int:
    """The day of a partition, or where that is in the future the one that followed: a clock was ahead.

    >>> days = Partition(21_000, 1), Partition(20_001, 5), Partition(20_002, 9)
    >>> [actual_day(day, days) for day in days]
    [20001, 20001, 20002]
    """
    if partition.day <= days[-1].day:
        return partition.day
    return min(later.day for later in days if later.first_offset >= partition.first_offset)


def load(connection: duckdb.DuckDBPyConnection) -> tuple[Partition, ...]:
    """The days as the database has them in the present transaction, oldest first. Raises duckdb.Error."""
    query = "SELECT day, first_offset, archived FROM partitions ORDER BY first_offset"
    return tuple(Partition(*row) for row in connection.execute(query).fetchall())
