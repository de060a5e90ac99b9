"""The archiver: days that the lake has leave the database, whose questions read the files from then on.

A day is archived by one transaction of the database: its tables go, and the list of its files comes. Before that the
rows of both are compared.
"""

from __future__ import annotations

import datetime
import itertools
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePosixPath

import duckdb

from barograph_collector.lake.catalog import Catalog
from barograph_collector.lake.compaction import Span
from barograph_collector.lake.layout import is_clustered
from barograph_collector.storage.days.archive import TIME_COLUMNS, ArchivedFile
from barograph_collector.storage.days.data_path import DataPath
from barograph_collector.storage.days.partitions import Partition, actual_day
from barograph_collector.storage.days.retention import EPOCH, KEEP_ALL, Retention
from barograph_collector.storage.layout import DAILY, FOLLOWING, LOG_COLUMNS, OFFSET, quoted
from barograph_collector.storage.store import Store
from barograph_collector.storage.text import literal, parquet

_log = logging.getLogger(__name__)

Listing = dict[tuple[int, str], list[PurePosixPath]]
"""The files of this log in the lake, by day and table, below the data path."""


class Archiver:
    """For the thread of the publisher, except `retention`."""

    def __init__(self, store: Store) -> None:
        self.call: Callable[[Callable[[], None]], object] = lambda function: function()
        """Runs a function in the thread that commits to the store, and returns once it has; raises as that."""
        self.beside: Callable[[Callable[[], None]], None] = lambda work: work()
        """Does what takes long, and returns once that is done; raises as that."""
        self.retention: Retention = KEEP_ALL
        """Its `hot_days` and `bytes` decide which days stay in the database. From any thread."""
        self.archived = 0
        """Days since the start of this process."""
        self._store = store
        self._stale = True
        self._refused: set[int] = set()

    def forget(self) -> None:
        """The files of the lake may have changed: compare them with those that the database lists."""
        self._stale = True

    def step(self, catalog: Catalog, position: int) -> bool:
        """Archive the oldest day that is to leave the database; whether there was one.

        position: the offset up to which the lake has all rows. All files of days that have ended are merged.
        Raises LakeError, OSError and duckdb.Error.
        """
        due = self._due(position)
        if due is None and not self._stale:
            return False
        listing = self._listing(catalog)
        if self._stale:
            self._refresh(catalog, listing)
        if due is None:
            return False
        files = self._described(catalog, listing, due.day)
        problems: list[str] = []
        self.beside(lambda: problems.extend(itertools.islice(self._differences(catalog, due, files), 1)))
        if problems:
            self._refused.add(due.day)
            _log.error("day %s stays in the database: %s", due.date, problems[0])
            return True
        self.call(lambda: self._store.archive([due.day], files))
        self.archived += 1
        _log.info("day %s is in the lake only: %d files", due.date, len(files))
        return True

    def refresh(self, catalog: Catalog) -> None:
        """Let archived days have the files that the lake has now. Raises as `step`."""
        self._refresh(catalog, self._listing(catalog))

    def _due(self, position: int) -> Partition | None:
        """The oldest day that is to leave the database and can."""
        days = self._store.database.partitions.days
        for day, following in itertools.pairwise(days):
            if day.archived or day.day in self._refused:
                continue
            complete = day.rolled_up and following.first_offset <= position + 1
            old = actual_day(day, days) < days[-1].day - self.retention.hot_days
            return day if complete and (old or self._store.database.exceeds(self.retention.bytes)) else None
        return None

    def _listing(self, catalog: Catalog) -> Listing:
        found: Listing = defaultdict(list)
        for table, path, size in catalog.files():
            if table in DAILY and Span.of(path, size, self._store.database.name) is not None:
                date = datetime.date.fromisoformat(path.parent.name.partition("=")[2])
                found[(date - EPOCH).days, table].append(path)
        return found

    def _refresh(self, catalog: Catalog, listing: Listing) -> None:
        """The same for files that are listed: others have been merged, or are gone."""
        archive = self._store.database.partitions.archive
        changed = []
        for partition in self._store.database.partitions.days:
            day = partition.day
            known = {(file.table, file.path) for file in archive.files(day)}
            if partition.archived and known != {
                (table, str(path)) for table in DAILY for path in listing.get((day, table), ())
            }:
                changed.append(day)
        if changed:
            files = [file for day in changed for file in self._described(catalog, listing, day)]
            self.call(lambda: self._store.archive(changed, files))
        self._stale = False

    def _described(self, catalog: Catalog, listing: Listing, day: int) -> list[ArchivedFile]:
        return [
            file
            for table in DAILY
            for file in describe(catalog.connection, catalog.data, day, table, listing.get((day, table), ()))
        ]

    def _differences(self, catalog: Catalog, day: Partition, files: Sequence[ArchivedFile]) -> Iterator[str]:
        """What rows of the database the files lack, in words, for each table that has such; in any thread."""
        with catalog.connection.cursor() as lake:
            for table in DAILY:
                of_table = [file for file in files if file.table == table]
                if problem := self._difference(lake, catalog.data, day, table, of_table):
                    yield problem

    def _difference(
        self,
        lake: duckdb.DuckDBPyConnection,
        data: DataPath,
        day: Partition,
        table: str,
        files: Sequence[ArchivedFile],
    ) -> str:
        """What rows of the database the files lack, in words; empty for none."""
        absent = {column for file in files for column in file.lacks.split(",")} | set(FOLLOWING.get(table, {}))
        columns = [column for column in LOG_COLUMNS[table] if column not in absent]
        # The sum of hashes does not depend on the order.
        query = f"SELECT count(*), coalesce(sum(hash({quoted(columns)})), 0)"
        with self._store.cursor() as log:
            name = day.table(table)
            rows, total, last = log.execute(f'{query}, coalesce(max("{OFFSET}"), 0) FROM "{name}"').fetchone() or ()
        found, checksum = 0, 0
        if files and rows:
            relation = parquet(data.at(file.path) for file in files)
            # The lake may have rows that a log restored from a backup has lost.
            condition = f'WHERE "{OFFSET}" <= {last}'
            found, checksum = lake.execute(f"{query} FROM {relation} {condition}").fetchone() or (0, 0)
        if (found, checksum) == (rows, total):
            return ""
        return f"the lake has {found} rows of table {table!r}, expected {rows}" + (
            " with the same values" if found == rows else ""
        )


def describe(
    connection: duckdb.DuckDBPyConnection, data: DataPath, day: int, table: str, paths: Sequence[PurePosixPath]
) -> list[ArchivedFile]:
    """What the log lists of the files of a table and day."""
    if not paths:
        return []
    files = [data.at(path) for path in paths]
    relation = parquet(files, "union_by_name => true", "filename => true")
    jobs = "min(job), max(job)" if is_clustered(table) else "'', ''"
    at = f'"{TIME_COLUMNS[table]}"'
    rows = connection.execute(
        f'SELECT filename, count(*), max("{OFFSET}"), {jobs}, min({at}), max({at}) FROM {relation} GROUP BY filename'
    ).fetchall()
    listed = ", ".join(map(literal, files))
    schema = connection.execute(f"SELECT file_name, list(name) FROM parquet_schema([{listed}]) GROUP BY 1")
    has = dict(schema.fetchall())
    return [
        ArchivedFile(
            day,
            table,
            str(data.below(file)),
            count,
            last,
            first_job,
            last_job,
            ",".join(column for column in LOG_COLUMNS[table] if column not in has[file]),
            first_at,
            last_at,
        )
        for file, count, last, first_job, last_job, first_at, last_at in rows
    ]
