"""Partitions of the daily tables: a table per day, which is dropped as a whole, and a view over all days."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import duckdb

from barograph_collector.storage.layout import DAILY, LOG_COLUMNS, declared, quoted
from barograph_collector.storage.transaction import transaction

DAY_SECONDS: Final = 86400.0
_EPOCH: Final = datetime.date(1970, 1, 1)


@dataclass(slots=True)
class Partition:
    """One day, counted from 1970-01-01. Its first row has the offset `first_offset` or a higher one."""

    day: int
    first_offset: int
    rolled_up: bool = False

    def create(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Create the partitions of all daily tables that do not exist."""
        for name in DAILY:
            connection.execute(f'CREATE TABLE IF NOT EXISTS "{self.table(name)}" ({declared(LOG_COLUMNS[name])})')

    def table(self, name: str) -> str:
        """The name of this day's partition of a daily table."""
        return f"{name}_{_EPOCH + datetime.timedelta(days=self.day):%Y%m%d}"


class Partitions:
    """The days in the database, oldest first. Each change is one transaction; belongs to the writer thread."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        found = connection.execute("SELECT day, first_offset, rolled_up FROM partitions ORDER BY first_offset")
        self.days = tuple(Partition(*row) for row in found.fetchall())
        views = {name for (name,) in connection.execute("SELECT view_name FROM duckdb_views()").fetchall()}
        if not views.issuperset(DAILY):
            with transaction(connection):
                self._create_views(self.days)

    def open(self, day: int, head: int) -> Partition:
        """The partition for rows of this day after offset `head`; the newest one for an earlier day."""
        if self.days and day <= self.days[-1].day:
            return self.days[-1]
        fresh = Partition(day, head + 1)
        with transaction(self._connection):
            fresh.create(self._connection)
            self._connection.execute("INSERT INTO partitions VALUES (?, ?, false)", [fresh.day, fresh.first_offset])
            self._create_views((*self.days, fresh))
        # Replaced as a whole: the reader thread uses it.
        self.days = (*self.days, fresh)
        return fresh

    def drop(self, day: int) -> None:
        """Drop one day of all daily tables."""
        (gone,) = (partition for partition in self.days if partition.day == day)
        left = tuple(partition for partition in self.days if partition is not gone)
        with transaction(self._connection):
            self._create_views(left)
            for name in DAILY:
                self._connection.execute(f'DROP TABLE "{gone.table(name)}"')
            self._connection.execute("DELETE FROM partitions WHERE day = ?", [day])
        self.days = left

    @property
    def dropped(self) -> bool:
        """Whether days were dropped by retention."""
        return bool(self.days) and self.days[0].first_offset > 1

    def after(self, name: str, offset: int, upto: int = 2**63) -> list[str]:
        """The tables that may hold rows of `name` beyond `offset` up to `upto`, in the order of their offsets."""
        days = self.days
        if name not in DAILY or not days:
            return [name]
        ends = [*(partition.first_offset for partition in days), 2**63][1:]
        return [
            partition.table(name)
            for partition, end in zip(days, ends, strict=True)
            if end > offset + 1 and partition.first_offset <= upto
        ]

    def _create_views(self, days: Sequence[Partition]) -> None:
        for name in DAILY:
            columns = quoted(LOG_COLUMNS[name])
            nothing = ", ".join(f'NULL::{kind} AS "{column}"' for column, kind in LOG_COLUMNS[name].items())
            parts = [f'SELECT {columns} FROM "{partition.table(name)}"' for partition in days]
            query = " UNION ALL ".join(parts) or f"SELECT {nothing} WHERE false"
            self._connection.execute(f'CREATE OR REPLACE VIEW "{name}" AS {query}')
