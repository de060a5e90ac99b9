"""Parquet files of the lake: rows of one table, cluster and day, sorted by job; durable before a catalog lists them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import duckdb
import pyarrow as pa

from barograph_agent.system.disk import Disk
from barograph_collector.lake.layout import CLUSTER, COLLECTOR, is_clustered, partition
from barograph_collector.storage.layout import LOG_COLUMNS, OFFSET, stored
from barograph_collector.storage.text import literal, parquet

ROW_GROUP: Final = 122_880
FORMAT: Final = f"FORMAT parquet, PARQUET_VERSION v2, COMPRESSION zstd, ROW_GROUP_SIZE {ROW_GROUP}"
"""Version 2 has delta encodings of integers and splits the bytes of floats."""
MAX_CLUSTERS: Final = 256
"""Of one batch; rows of further ones are those of OTHERS. A producer chooses names of jobs."""
OTHERS: Final = "others"


class LakeFile(NamedTuple):
    """A file that is complete: of which table, where, and how much is in it."""

    table: str
    path: Path
    rows: int
    size: int


class FileWriter:
    """Writes the rows of one collector, named after it and the offsets of the batch, below `directory`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, directory: Path, collector: str, disk: Disk) -> None:
        self._connection = connection
        self._directory = directory
        self._collector = collector
        self._disk = disk

    def write(self, table: str, rows: pa.Table, day: str, first: int, last: int) -> list[LakeFile]:
        """Write rows with the columns of the log, of one day as YYYY-MM-DD. The batch has offsets `first` to `last`.

        Replaces files of a batch that began with the same offset: it was not committed. Raises OSError, duckdb.Error.
        """
        self._connection.register("incoming", rows)
        try:
            if not is_clustered(table):
                return [self._copy(table, {"day": day}, "true", first, last)]
            # `jobs` names its cluster; elsewhere it is the part of the job before the first slash.
            cluster = '"cluster"' if CLUSTER in LOG_COLUMNS[table] else "split_part(job, '/', 1)"
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

    def merge(self, table: str, folder: Path, sources: Sequence[Path], first: int, last: int) -> LakeFile:
        """One file with the rows of several of the same table and folder. Raises OSError, duckdb.Error.

        Its name is new: if it replaced a file of the lake, the deletion of that one would be its own.
        """
        # Files that are older than a column do not have it.
        return self.rewrite(table, folder, first, last, f"SELECT * FROM {parquet(sources, 'union_by_name => true')}")

    def rewrite(self, table: str, folder: Path, first: int, last: int, query: str) -> LakeFile:
        """One file with the rows of a query, which are some of the same table and folder. Raises as `merge`."""
        path = folder / f"{self._collector}-{first}-{last}-{secrets.token_hex(4)}.parquet"
        return self._write(table, f"{query} {_order(table)}", path)

    def _copy(self, table: str, places: dict[str, str], condition: str, first: int, last: int) -> LakeFile:
        folder = self.folder(table, places)
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        for stale in folder.glob(f"{self._collector}-{first}-*.parquet"):
            self._disk.unlink(stale)
        path = folder / f"{self._collector}-{first}-{last}.parquet"
        kept = [column for column in LOG_COLUMNS[table] if column not in partition(table)]
        query = (
            f"SELECT {literal(self._collector)} AS {COLLECTOR}, {', '.join(stored(table, c) for c in kept)}"
            f" FROM incoming WHERE {condition} {_order(table)}"
        )
        return self._write(table, query, path)

    def _write(self, table: str, query: str, path: Path) -> LakeFile:
        row = self._connection.execute(f"COPY ({query}) TO {literal(str(path))} ({FORMAT})").fetchone()
        self._sync(path)
        return LakeFile(table, path, int(row[0]) if row else 0, self._disk.size(path))

    def folder(self, table: str, places: dict[str, str]) -> Path:
        """The directory of files with these values of the columns that partition a table."""
        return self._directory.joinpath("main", table, *(f"{name}={quote(v, safe='')}" for name, v in places.items()))

    def _sync(self, path: Path) -> None:
        descriptor = self._disk.open(path, os.O_RDONLY)
        try:
            self._disk.sync(descriptor)
        finally:
            self._disk.close(descriptor)
        for folder in path.parents:
            self._disk.sync_directory(folder)
            if folder == self._directory:
                break


def _order(table: str) -> str:
    return f'ORDER BY job, "{OFFSET}"' if "job" in LOG_COLUMNS[table] else f'ORDER BY "{OFFSET}"'
