"""Parquet files of the lake: rows of one table, cluster and day, sorted by job; durable before a catalog lists them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple
from urllib.parse import quote

import duckdb
import pyarrow as pa

from barograph_collector.lake.layout import CLUSTER, COLLECTOR, MAIN, TABLES, is_clustered, partition
from barograph_collector.storage.days.data_path import DataPath
from barograph_collector.storage.layout import OFFSET, stored
from barograph_collector.storage.text import literal, parquet

ROW_GROUP: Final = 122_880
FORMAT: Final = f"FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP}"
"""Version 2 has delta encodings of integers and splits the bytes of floats."""
MAX_CLUSTERS: Final = 256
"""Of one batch; rows of further ones are those of OTHERS. A producer chooses names of jobs."""
OTHERS: Final = "others"


class LakeFile(NamedTuple):
    """A file that is complete: of which table, where below the data path, and how much is in it."""

    table: str
    path: PurePosixPath
    rows: int
    size: int


class FileWriter:
    """Writes the rows of one collector, named after it and the offsets of the batch.

    word: of this process; what another one has written with a copy of the log is not replaced.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, data: DataPath, collector: str, word: str) -> None:
        self._connection = connection
        self._data = data
        self._collector = collector
        self._word = word

    def write(self, table: str, rows: pa.Table, day: str, first: int, last: int) -> list[LakeFile]:
        """Write rows with the columns of the log, of one day as YYYY-MM-DD. The batch has offsets `first` to `last`.

        What this process has written of a batch that began with the same offset was not committed.
        Raises OSError, duckdb.Error.
        """
        self._connection.register("incoming", rows)
        try:
            if not is_clustered(table):
                return [self._copy(table, {"day": day}, "true", first, last)]
            # `jobs` names its cluster; elsewhere it is the part of the job before the first slash.
            cluster = '"cluster"' if CLUSTER in TABLES[table] else "split_part(job, '/', 1)"
            found = self._connection.execute(f"SELECT {cluster}, count(*) FROM incoming GROUP BY 1 ORDER BY 2 DESC, 1")
            names = [name for name, _ in found.fetchall()]
            named = names[:MAX_CLUSTERS]
            files = [
                self._copy(table, {CLUSTER: name, "day": day}, f"{cluster} = {literal(name)}", first, last)
                for name in named
            ]
            if len(names) > len(named):
                rest = f"{cluster} NOT IN ({', '.join(map(literal, named))})"
                files.append(self._copy(table, {CLUSTER: OTHERS, "day": day}, rest, first, last))
            return files
        finally:
            self._connection.unregister("incoming")

    def merge(
        self, table: str, folder: PurePosixPath, sources: Sequence[PurePosixPath], first: int, last: int
    ) -> LakeFile:
        """One file with the rows of several of the same table and folder; in any thread. Raises OSError, duckdb.Error.

        Its name is new: if it replaced a file of the lake, the deletion of that one would be its own.
        """
        # Files that are older than a column do not have it.
        source = parquet(map(self._data.at, sources), "union_by_name => true")
        with self._connection.cursor() as connection:
            writer = FileWriter(connection, self._data, self._collector, self._word)
            return writer.rewrite(table, folder, first, last, f"SELECT * FROM {source}")

    def rewrite(self, table: str, folder: PurePosixPath, first: int, last: int, query: str) -> LakeFile:
        """One file with the rows of a query, which are some of the same table and folder. Raises as `merge`."""
        path = folder / f"{self._collector}-{first}-{last}-{secrets.token_hex(4)}.parquet"
        return self._write(table, f"{query} {_order(table)}", path)

    def _copy(self, table: str, places: dict[str, str], condition: str, first: int, last: int) -> LakeFile:
        folder = PurePosixPath(MAIN, table, *(f"{name}={quote(value, safe='')}" for name, value in places.items()))
        self._data.clear(folder, f"{self._collector}-{first}-*-{self._word}.parquet")
        path = folder / f"{self._collector}-{first}-{last}-{self._word}.parquet"
        kept = [column for column in TABLES[table] if column not in partition(table)]
        query = (
            f"SELECT {literal(self._collector)} AS {COLLECTOR}, {', '.join(stored(table, c) for c in kept)}"
            f" FROM incoming WHERE {condition} {_order(table)}"
        )
        return self._write(table, query, path)

    def _write(self, table: str, query: str, path: PurePosixPath) -> LakeFile:
        row = self._connection.execute(f"COPY ({query}) TO {literal(self._data.at(path))} ({FORMAT})").fetchone()
        return LakeFile(table, path, int(row[0]) if row else 0, self._data.finish(path))


def _order(table: str) -> str:
    return f'ORDER BY job, "{OFFSET}"' if "job" in TABLES[table] else f'ORDER BY "{OFFSET}"'
