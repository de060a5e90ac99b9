"""Partitions of the daily tables: one table a day, dropped as a whole, and a view over all days."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import duckdb

from barograph_collector.storage.connection import transaction
from barograph_collector.storage.layout import CLASS_HOURS, DAILY, LOG_COLUMNS, declared, quoted

HOUR_SECONDS: Final = 3600
_EPOCH: Final = datetime.date(1970, 1, 1)


@dataclass(slots=True)
class Partition:
    """One day, counted from 1970-01-01. Its rows have offsets of at least `first_offset`."""

    day: int
    first_offset: int
    rolled_up: bool = False

    def create(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Create the missing partitions of the daily tables."""
        for name in DAILY:
            connection.execute(f'CREATE TABLE IF NOT EXISTS "{self.table(name)}" ({declared(LOG_COLUMNS[name])})')

    def table(self, name: str) -> str:
        """The name of this day's partition of a daily table."""
        return f"{name}_{self.date:%Y%m%d}"

    @property
    def date(self) -> datetime.date:
        """The day."""
        return _EPOCH + datetime.timedelta(days=self.day)


class Partitions:
    """The days in the database, oldest first. Belongs to the writer thread. All methods raise duckdb.Error."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        found = connection.execute("SELECT day, first_offset, rolled_up FROM partitions ORDER BY first_offset")
        # Replaced as a whole by each change: the reader thread uses it.
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
        self.days = (*self.days, fresh)
        return fresh

    def roll_up(self) -> None:
        """Roll up the blocks of the days that have ended: one row per class, hour and workload.

        Blocks hold sums, so the rolled-up count, sum, sum of squares and sum of cubes are exact, as are minimum and
        maximum. An hour whose blocks arrived on two days has two rows, which add up. Jobs without a row in `jobs` have
        workload ''.
        """
        for partition in self.days[:-1]:
            if partition.rolled_up:
                continue
            with transaction(self._connection):
                self._connection.execute(
                    f"""
                    INSERT INTO "{CLASS_HOURS}"
                    SELECT floor(ended_at / {HOUR_SECONDS}) * {HOUR_SECONDS} AS hour,
                           coalesce(workload, '') AS workload, class_id,
                           count(DISTINCT job), sum(count), sum(sum_seconds), sum(sum_squares), sum(sum_cubes),
                           min(min_seconds), max(max_seconds)
                    FROM "{partition.table("blocks")}"
                    LEFT JOIN (SELECT job, any_value(workload) AS workload FROM jobs GROUP BY job) USING (job)
                    GROUP BY ALL
                    """
                )
                self._connection.execute("UPDATE partitions SET rolled_up = true WHERE day = ?", [partition.day])
            partition.rolled_up = True

    def drop_oldest(self) -> None:
        """Drop the oldest day of all daily tables."""
        oldest, *rest = self.days
        with transaction(self._connection):
            self._create_views(rest)
            for name in DAILY:
                self._connection.execute(f'DROP TABLE "{oldest.table(name)}"')
            self._connection.execute("DELETE FROM partitions WHERE day = ?", [oldest.day])
        self.days = tuple(rest)

    @property
    def first_offset(self) -> int:
        """The lowest offset that rows of daily tables can have: 1 until a day has been dropped."""
        return self.days[0].first_offset if self.days else 1

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
