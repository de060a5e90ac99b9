"""Erasure: all rows of the jobs of one user leave the log, its journal and the lake, while no collector runs.

The lake comes first, the database last: it has the list of jobs, also for an erasure after one that was interrupted.
Files are written anew, since deleted rows would stay in them.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

import duckdb

from barograph_agent.system.system import SYSTEM, System
from barograph_collector.lake.archiver import Archiver
from barograph_collector.lake.catalog import Catalog
from barograph_collector.lake.compaction import Span
from barograph_collector.lake.files import FileWriter
from barograph_collector.lake.layout import COLLECTOR, RowRange, columns, places_of
from barograph_collector.lake.place import Lake
from barograph_collector.lake.publisher import LakeMark
from barograph_collector.storage.connection import StoreError, first_line
from barograph_collector.storage.days.extensions import LakeError
from barograph_collector.storage.erased import Erased
from barograph_collector.storage.layout import LOG_COLUMNS, OWN_COLUMNS
from barograph_collector.storage.store import LOG, Store
from barograph_collector.storage.text import parquet

SNAPSHOT: Final = "modeler.snapshot"
"""The modeler's, which has the names of jobs; without it the modeler reads the log again."""


class ErasureError(Exception):
    """Nothing, or not all, could be erased. The text says what and what was expected."""


class Erasure(NamedTuple):
    """What is, or was, stored of a user.

    rows: in the database, by table. lake_rows, lake_files: rows in the lake, and the files with them. deleted: other
    files that may have them. left: what this does not touch.
    """

    jobs: int
    rows: dict[str, int]
    lake_rows: int
    lake_files: int
    deleted: list[Path]
    left: list[Path]


class LakeRows(NamedTuple):
    """A file of the lake, the offsets in its name, and how many of its rows are the user's."""

    table: str
    path: PurePosixPath
    span: Span
    rows: int


def erase(user: str, state: Path, lake: Lake | None = None, *, dry: bool = False, system: System = SYSTEM) -> Erasure:
    """Erase what the log in a state directory has of a user's jobs, or only count it. Raises ErasureError.

    lake: as the collector has it.
    """
    if not (state / LOG).is_file():
        raise ErasureError(f"{state / LOG}: not found, expected the log of a collector")
    mark = LakeMark.read(state / LOG, system.disk)
    if mark.lake and (lake is None or lake.name != mark.lake):
        raise ErasureError(
            f"{state / LOG} has the lake {mark.lake}, expected --lake with it, and --catalog if that has one"
        )
    try:
        with Store(state / LOG, system=system, lake=lake and lake.data) as store:
            found = _Found(store, user, lake, system)
            try:
                return found.count() if dry else found.erase()
            finally:
                found.close()
    except (StoreError, LakeError) as error:
        raise ErasureError(str(error)) from None
    except duckdb.Error as error:
        raise ErasureError(first_line(error)) from None
    except OSError as error:
        raise ErasureError(f"cannot write {error.filename or state}: {error.strerror or error}") from None


class _Found:
    def __init__(self, store: Store, user: str, lake: Lake | None, system: System) -> None:
        self._store = store
        self._state = store.path.parent
        self._disk = system.disk
        self._now = system.clock.now
        self._catalog: Catalog | None = None
        with store.cursor() as log:
            rows = log.execute('SELECT DISTINCT job FROM jobs WHERE "user" = ?', [user]).fetchall()
            jobs = {job for (job,) in rows}
            ended = {job for (job,) in log.execute("SELECT DISTINCT job FROM runs").fetchall()}
        if lake is not None:
            scratch = store.path.with_name(f"{store.path.name}.lake.tmp")
            self._catalog = Catalog(lake, store.database.name, scratch, system)
            self._catalog.check(1)  # rather than make a new lake
            self._catalog.open(0)
            jobs |= self._jobs_of_lake(user)
        self._erased = Erased(user, sorted(jobs), sorted(ended & jobs))

    def close(self) -> None:
        if self._catalog is not None:
            self._catalog.close()

    def count(self) -> Erasure:
        """What there is."""
        return self._count(self._files())

    def _count(self, files: list[LakeRows]) -> Erasure:
        deleted = [path for path in self._others() if path.exists()]
        return Erasure(
            len(self._erased.jobs), self._rows(), sum(one.rows for one in files), len(files), deleted, self._left()
        )

    def erase(self) -> Erasure:
        """Remove it."""
        files = self._files()
        found = self._count(files)
        if self._catalog is not None:
            self._erase_lake(self._catalog, files)
        if not self._store.erase(self._erased):
            raise ErasureError(f"{self._store.path} is open in another process, expected none")
        for path in found.deleted:
            self._disk.unlink(path, missing_ok=True)
        return found

    def _rows(self) -> dict[str, int]:
        tables = {**LOG_COLUMNS, "streams": OWN_COLUMNS["streams"]}
        rows: dict[str, int] = {}
        with self._store.cursor() as log:
            self._erased.prepare(log)
            for table, names in tables.items():
                if query := self._erased.changed(f'"{table}"', names):
                    (rows[table],) = log.execute(query).fetchone() or (0,)
        return {table: count for table, count in rows.items() if count}

    def _files(self) -> list[LakeRows]:
        """The files of the lake with rows of the user."""
        if self._catalog is None:
            return []
        found = []
        connection = self._catalog.connection
        self._erased.prepare(connection)
        for table, path, size in self._catalog.files():
            span = Span.of(path, size, self._store.database.name)
            query = self._erased.changed(parquet([self._catalog.data.at(path)]), columns(table))
            if span is None or not query:
                continue
            (rows,) = connection.execute(query).fetchone() or (0,)
            if rows:
                found.append(LakeRows(table, path, span, int(rows)))
        return found

    def _jobs_of_lake(self, user: str) -> set[str]:
        assert self._catalog is not None
        files = [self._catalog.data.at(path) for table, path, _ in self._catalog.files() if table == "jobs"]
        if not files:
            return set()
        source = parquet(files, "union_by_name => true")
        query = f'SELECT DISTINCT job FROM {source} WHERE "user" = ? AND {COLLECTOR} = ?'
        return {job for (job,) in self._catalog.connection.execute(query, [user, self._store.database.name]).fetchall()}

    def _erase_lake(self, catalog: Catalog, files: list[LakeRows]) -> None:
        writer = FileWriter(catalog.connection, catalog.data, self._store.database.name, catalog.writer)
        for table, path, span, _ in files:
            places = places_of(table, path.parent)
            within = RowRange(table, self._store.database.name, places, span.first, span.last)
            source = parquet([catalog.data.at(path)])
            (rows,) = catalog.connection.execute(f"SELECT count(*) FROM {source}").fetchone() or (0,)
            kept = self._erased.kept(source, columns(table))
            file = writer.rewrite(table, path.parent, span.first, span.last, kept)
            if file.rows:
                catalog.replace(within, file, rows=rows)
            else:
                catalog.remove([within])
                catalog.data.unlink(file.path)
        Archiver(self._store).refresh(catalog)
        catalog.forget(self._now() + 60.0)
        listed = {path for _, path, _ in catalog.files()}
        for path in catalog.data.find(f"{self._store.database.name}-"):
            if path not in listed:
                catalog.data.unlink(path)

    def _others(self) -> list[Path]:
        return [self._state / SNAPSHOT, *self._state.glob(f"{LOG}.wal.unreadable*")]

    def _left(self) -> list[Path]:
        """Older logs in the state directory, as a restore leaves them."""
        return sorted(self._state.glob("replaced-*"))
