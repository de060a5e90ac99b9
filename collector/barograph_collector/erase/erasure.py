"""Erasure: all rows of the jobs of one user leave the log, its journal and the lake, while no collector runs.

The lake comes first, the database last: it has the list of jobs, also for an erasure after one that was interrupted.
Files are written anew, since deleted rows would stay in them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

import duckdb

from barograph_agent.system.system import SYSTEM, System
from barograph_collector.lake.catalog import Catalog
from barograph_collector.lake.files import LakeFiles, columns
from barograph_collector.lake.place import Lake
from barograph_collector.storage.connection import StoreError, reason_of
from barograph_collector.storage.days.archive import FileName, SealedFile
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


def erase(user: str, state: Path, lake: Lake | None = None, *, dry: bool = False, system: System = SYSTEM) -> Erasure:
    """Erase what the log in a state directory has of a user's jobs, or only count it. Raises ErasureError.

    lake: as the collector has it.
    """
    if not (state / LOG).is_file():
        raise ErasureError(f"{state / LOG}: not found, expected the log of a collector")
    try:
        with Store(state / LOG, system=system, lake=lake and lake.data) as store:
            periods = store.database.periods
            if periods.sealed and (lake is None or lake.name != periods.place):
                raise ErasureError(
                    f"{state / LOG} has the lake {periods.place}, expected --lake with it, and --catalog if it has one"
                )
            with store.cursor() as log:
                jobs = {job for (job,) in log.execute('SELECT job FROM jobs WHERE "user" = ?', [user]).fetchall()}
                ended = {job for (job,) in log.execute("SELECT DISTINCT job FROM runs").fetchall()}
            erased = Erased(user, sorted(jobs), sorted(ended & jobs))
            rows = _rows(store, erased)
            others = (state / SNAPSHOT, *state.glob(f"{LOG}.wal.unreadable*"))
            found = Erasure(len(jobs), rows, 0, 0, [path for path in others if path.exists()], [])
            found = found._replace(left=sorted(state.glob("replaced-*")))
            if lake is not None and periods.sealed:
                counted = _erase_lake(store, lake, erased, dry=dry, system=system)
                found = found._replace(lake_rows=sum(counted), lake_files=len(counted))
            if not dry:
                if not store.erase(erased):
                    raise ErasureError(f"{store.path} is open in another process, expected none")
                for path in found.deleted:
                    system.disk.unlink(path, missing_ok=True)
            return found
    except (StoreError, LakeError) as error:
        raise ErasureError(str(error)) from None
    except duckdb.Error as error:
        raise ErasureError(reason_of(error)) from None
    except OSError as error:
        raise ErasureError(f"cannot write {error.filename or state}: {error.strerror or error}") from None


def _rows(store: Store, erased: Erased) -> dict[str, int]:
    tables = {**LOG_COLUMNS, "streams": OWN_COLUMNS["streams"]}
    rows: dict[str, int] = {}
    with store.cursor() as log:
        erased.prepare(log)
        for table, names in tables.items():
            if query := erased.changed(f'"{table}"', names):
                (rows[table],) = log.execute(query).fetchone() or (0,)
    return {table: count for table, count in rows.items() if count}


def _erase_lake(store: Store, lake: Lake, erased: Erased, *, dry: bool, system: System) -> list[int]:
    """Erase, or only count; returns how many rows of each file with any. Files get an edition without them."""
    catalog = Catalog(lake, store.path.with_name(f"{store.path.name}.lake.tmp"), system)
    try:
        lake.data.check(known=True)
        files = LakeFiles(catalog.connection, lake.data, store.database.name)
        counted: list[int] = []
        replaced: dict[SealedFile, SealedFile] = {}
        erased.prepare(catalog.connection)
        for file in store.database.sealed_files():
            name = file.name(store.database.name)
            source = parquet([lake.data.at(name.path)])
            query = erased.changed(source, columns(file.table))
            (rows,) = catalog.connection.execute(query).fetchone() or (0,) if query else (0,)
            if rows:
                counted.append(int(rows))
            if rows and not dry:
                kept = erased.kept(source, columns(file.table))
                replaced[file], _ = files.put(name._replace(edition=name.edition + 1), kept)
        if dry:
            return counted
        for period in files.periods():
            source = parquet([lake.data.at(period.path)])
            (rows,) = catalog.connection.execute(erased.changed(source, ["stream"])).fetchone() or (0,)
            if rows:
                files.rewrite_marks(period, erased.kept(source, ["stream"]))
        store.database.replace_files(replaced)
        catalog.make_anew()
        listed = {file.name(store.database.name).path for file in store.database.sealed_files()}
        for path in lake.data.names("main"):
            name_of = FileName.read(path)
            if name_of is not None and name_of.log == store.database.name and path not in listed:
                lake.data.unlink(path)
        return counted
    finally:
        catalog.close()
