"""Sealed files of one log: what is written of a period, in which order, and what is there of it.

The name of a file is a function of the log, the table and the offsets of the period, so a collector that was killed
writes the same file again. The marks of the streams come last: a period with marks is sealed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Final

import duckdb
import pyarrow as pa

from barograph_collector.storage.days.archive import TIME_COLUMNS, FileName, SealedFile
from barograph_collector.storage.days.data_path import DataPath, MarksName, last_sealed, sealed_periods
from barograph_collector.storage.days.retention import EPOCH
from barograph_collector.storage.layout import LOG_COLUMNS, OFFSET, STREAMS, quoted, stored
from barograph_collector.storage.store import Store
from barograph_collector.storage.text import literal, parquet

ROW_GROUP: Final = 122_880
FORMAT: Final = f"FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP}"
"""Version 2 has delta encodings of integers and splits the bytes of floats."""
COLLECTOR: Final = "collector"
"""The column with the name of the log."""
DAY: Final = "day"
"""The column that is in the names of directories, not in files."""
CLAIMS: Final = "claims"
"""The directory with the word of the process that seals periods of a log: a file for each log."""
MAX_JOB: Final = "\U0010ffff"
Marks = dict[str, int]
"""The number of the last message of each stream in a period."""


class LakeFiles:
    """The files of one log; for the thread of the sealer. All methods raise OSError, LakeError and duckdb.Error."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, data: DataPath, log: str) -> None:
        self._connection = connection
        self._data = data
        self._log = log

    def claim(self, word: str) -> None:
        """Let this process be the one that seals periods of the log."""
        self._data.put(f"{CLAIMS}/{self._log}", word.encode())

    def has_claim(self, word: str) -> bool:
        """Whether no other process has claimed the log since."""
        return self._data.read(f"{CLAIMS}/{self._log}") == word.encode()

    def periods(self) -> list[MarksName]:
        """Those that are sealed."""
        return [period for period in sealed_periods(self._data) if period.log == self._log]

    def discard(self, position: int) -> None:
        """Delete what was written of periods that were not sealed: of offsets beyond a position, and in part."""
        for path in self._data.names("main"):
            name = FileName.read(path.removesuffix(".part"))
            if name is not None and name.log == self._log and (name.first > position or path.endswith(".part")):
                self._data.unlink(path)

    def marks_of(self, store: Store, first: int, last: int) -> Marks:
        """The last mark of each stream with rows of these offsets in the log."""
        within = f'"{OFFSET}" BETWEEN {first} AND {last}'
        query = f'SELECT stream, max(seq) FROM "{STREAMS}" WHERE {within} GROUP BY 1 ORDER BY 1'
        with store.cursor() as log:
            return dict(log.execute(query).fetchall())

    def rows_of(self, store: Store, first: int, last: int) -> dict[str, int]:
        """The number of rows of these offsets in the log, of each table that has any."""
        with store.cursor() as log:
            counts = (
                (table, log.execute(f"SELECT count(*) FROM ({rows})").fetchone())
                for table, rows in self._selects(store, first, last)
            )
            return {table: row[0] for table, row in counts if row and row[0]}

    def write(self, store: Store, day: int, first: int, last: int) -> Iterator[tuple[SealedFile, int]]:
        """Write the rows of a period, table by table; yields each file and its size in bytes."""
        with store.cursor() as log:
            for table, rows in self._selects(store, first, last):
                if log.execute(f"{rows} LIMIT 1").fetchone():
                    name = FileName(table, day, self._log, first, last)
                    self._connection.register("incoming", log.execute(rows).to_arrow_reader(ROW_GROUP))
                    try:
                        values = ", ".join(stored(table, column) for column in LOG_COLUMNS[table])
                        query = f"SELECT {literal(self._log)} AS {COLLECTOR}, {values} FROM incoming"
                        yield self.put(name, query)
                    finally:
                        self._connection.unregister("incoming")

    def _selects(self, store: Store, first: int, last: int) -> Iterator[tuple[str, str]]:
        """For each table that may have rows of these offsets, a query for them."""
        within = f'WHERE "{OFFSET}" BETWEEN {first} AND {last}'
        for table, newest in store.database.heads.items():
            if newest >= first:
                columns = quoted(LOG_COLUMNS[table])
                parts = [part.source for part in store.database.partitions.after(table, first - 1, last)]
                yield table, " UNION ALL ".join(f"SELECT {columns} FROM {part} {within}" for part in parts)

    def of_period(self, first: int, last: int) -> list[SealedFile]:
        """The files of a sealed period."""
        names = (name for name in sealed_names(self._data, self._log) if (name.first, name.last) == (first, last))
        return self.describe(list(names))

    def put(self, name: FileName, query: str) -> tuple[SealedFile, int]:
        """Write the rows of a query, sorted by job, so that few row groups have those of a job."""
        order = f'job, "{OFFSET}"' if "job" in LOG_COLUMNS[name.table] else f'"{OFFSET}"'
        size = self._copy(f"{query} ORDER BY {order}", name.path)
        (file,) = self.describe([name])
        return file, size

    def write_marks(self, day: int, first: int, last: int, marks: Marks) -> None:
        """Write the marks of a period whose files are there: it is sealed once this returns."""
        rows = pa.table({"stream": pa.array(marks, pa.string()), "seq": pa.array(marks.values(), pa.int64())})
        self._connection.register("incoming", rows)
        try:
            name = MarksName(self._log, first, last, f"{EPOCH + timedelta(days=day)}")
            self._copy("SELECT * FROM incoming", name.path)
        finally:
            self._connection.unregister("incoming")

    def rewrite_marks(self, period: MarksName, query: str) -> None:
        """Let the marks of a sealed period be the rows of a query."""
        self._copy(query, period.path)

    def marks(self, periods: Sequence[MarksName]) -> Marks:
        """The last mark of each stream in sealed periods."""
        if not periods:
            return {}
        source = parquet(self._data.at(period.path) for period in periods)
        return dict(self._connection.execute(f"SELECT stream, max(seq) FROM {source} GROUP BY 1").fetchall())

    def forget_marks(self, before: int) -> None:
        """Delete the marks of periods before a day, but the last: it says how far the lake is."""
        for period in self.periods()[:-1]:
            if period.day < f"{EPOCH + timedelta(days=before)}":
                self._data.unlink(period.path)

    def describe(self, names: Sequence[FileName]) -> list[SealedFile]:
        """What the log lists of files, from their footers, in the order of their names."""
        found = []
        for table in sorted({name.table for name in names}):
            by_file = {self._data.at(name.path): name for name in names if name.table == table}
            listed = ", ".join(map(literal, by_file))
            at = TIME_COLUMNS.get(table, "")
            query = f"""
            SELECT file_name, count(DISTINCT path_in_schema) - 1,
                coalesce(min(stats_min_value) FILTER (path_in_schema = 'job'), ''),
                coalesce(max(stats_max_value) FILTER (path_in_schema = 'job'), ''),
                bool_or(stats_max_value IS NULL AND path_in_schema = 'job'),
                min(TRY_CAST(stats_min_value AS DOUBLE)) FILTER (path_in_schema = '{at}'),
                max(TRY_CAST(stats_max_value AS DOUBLE)) FILTER (path_in_schema = '{at}'),
                bool_or(stats_max_value IS NULL AND path_in_schema = '{at}'),
            FROM parquet_metadata([{listed}]) GROUP BY 1"""
            about = {row[0]: row[1:] for row in self._connection.execute(query).fetchall()}
            counts = self._connection.execute(f"SELECT file_name, num_rows FROM parquet_file_metadata([{listed}])")
            for file, rows in counts.fetchall():
                name = by_file[file]
                # A file without rows has no row groups.
                width, *bounds = about.get(file, (len(LOG_COLUMNS[table]), "", "", False, 0.0, 0.0, False))
                first_job, last_job, lacks_job, first_at, last_at, lacks_time = bounds
                jobs = ("", MAX_JOB) if lacks_job else (first_job, last_job)
                times = (0.0, 0.0) if lacks_time or not at else (first_at, last_at)
                period = (table, name.day, name.first, name.last, name.edition)
                found.append(SealedFile(*period, width, rows, *jobs, *times))
        return sorted(found)

    def _copy(self, query: str, path: str) -> int:
        target = literal(self._data.begin(path))
        self._connection.execute(f"COPY ({query}) TO {target} ({FORMAT})")
        return self._data.finish(path)


def columns(table: str) -> dict[str, str]:
    """Columns and types of a table of the lake."""
    return {COLLECTOR: "VARCHAR", DAY: "DATE", **LOG_COLUMNS[table]}


def sealed_names(data: DataPath, log: str) -> list[FileName]:
    """The files of the sealed periods of a log, the last edition of each. Raises OSError and LakeError."""
    position = last_sealed(data, log)
    found = (name for name in sorted(filter(None, map(FileName.read, data.names("main")))) if name.log == log)
    return list({(name.table, name.first): name for name in found if name.last <= position}.values())
