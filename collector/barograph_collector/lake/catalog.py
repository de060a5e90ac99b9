"""The catalog of the lake: DuckLake tables that list sealed files, a view that can be made again from their names.

One transaction a period. A file is attached for a commit only, so that other programs can read it; collectors with a
catalog in PostgreSQL commit in turns: DuckLake's own detection of conflicts has open reports.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import duckdb

from barograph_agent.system.system import SYSTEM, System
from barograph_collector.lake.files import COLLECTOR, DAY, columns, sealed_names
from barograph_collector.lake.place import Lake
from barograph_collector.storage.connection import reason_of, transaction
from barograph_collector.storage.days.archive import FileName
from barograph_collector.storage.days.data_path import sealed_periods
from barograph_collector.storage.days.extensions import LakeError, extension
from barograph_collector.storage.layout import LOG_COLUMNS, OFFSET, declared
from barograph_collector.storage.text import literal

CATALOG_FILE: Final = "catalog.ducklake"
LOCK_SECONDS: Final = 10
"""How long a commit waits for another process."""
KEEP_SECONDS: Final = 3600
"""How long files that have left the lake are there for readers."""
CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "memory_limit": "512MB",
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
_OTHER_VERSION: Final = ". To automatically migrate"
"""What DuckLake goes on with, where a catalog is not of its version: an option that nobody has here."""
_POLL_SECONDS: Final = 0.02
_HELD: Final = re.compile(r"Conflicting lock is held in (.*?\(PID \d+\))")
_LOCK_NUMBER: Final = 0x6261726F
_ENGLISH: Final = re.compile(r"C|POSIX|C\..*|en_.*|")
_PASSWORD: Final = re.compile(r"(://[^:@/\s]*):[^@/\s]*@")


class Catalog:
    """The catalog of a lake, and a connection to its files; for one thread. All methods raise LakeError."""

    def __init__(self, lake: Lake, scratch: Path, system: System = SYSTEM) -> None:
        """Nothing is opened. scratch: a folder for sorts."""
        self.data = lake.data
        self._name = f"the lake {lake.data.lake}"
        self._file = None if lake.url else lake.directory / CATALOG_FILE
        self._disk, self._clock = system.disk, system.clock
        self.connection = duckdb.connect(config=CONFIG | {"temp_directory": str(scratch)})
        # Otherwise Python variables could be read as tables.
        self.connection.execute("SET python_enable_replacements = false")
        self.connection.execute(f"LOAD {literal(str(extension('ducklake')))}")
        self._target = f"ducklake:{self._file}"
        if lake.url:
            self.connection.execute(f"LOAD {literal(str(extension('postgres_scanner')))}")
            timeout = "" if "connect_timeout=" in lake.url else f"{'&' if urlsplit(lake.url).query else '?'}"
            self._url = lake.url + (timeout and f"{timeout}connect_timeout={LOCK_SECONDS}")
            self._target = f"ducklake:postgres:{self._url}"
        self.data.load(self.connection)

    def sync(self, log: str, files: Collection[FileName]) -> None:
        """List these files of a log, and no others; those that leave are deleted after KEEP_SECONDS."""
        wanted = set(files)
        with self._committing():
            self._create_tables()
            present = {name for name in self._listed() if name.log == log}
            for name in sorted(present - wanted):
                self.connection.execute(
                    f'DELETE FROM lake."{name.table}" WHERE {COLLECTOR} = {literal(log)}'
                    f' AND "{OFFSET}" BETWEEN {name.first} AND {name.last}'
                )
            for name in sorted(wanted - present):
                self.connection.execute(
                    f"CALL ducklake_add_data_files('lake', {literal(name.table)},"
                    f" {literal(self.data.at(name.path))}, hive_partitioning => true)"
                )
        if present - wanted:
            with self._committing():
                before = f"now() - INTERVAL '{KEEP_SECONDS} seconds'"
                self.connection.execute(f"CALL ducklake_expire_snapshots('lake', older_than => {before})")
                self.connection.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")

    def make_anew(self) -> None:
        """Make it again from the names of sealed files, of all logs. Nothing of what it had is left in it."""
        with self._explained():
            if self._file is not None:
                for path in (self._file, self._file.with_name(f"{self._file.name}.wal")):
                    self._disk.unlink(path, missing_ok=True)
            else:
                self._attach_lock()
                for table in self._tables("lock"):
                    if table.startswith("ducklake_"):
                        self.connection.execute(f'DROP TABLE lock."{table}"')
        for log in sorted({period.log for period in sealed_periods(self.data)}):
            self.sync(log, sealed_names(self.data, log))

    def files(self) -> list[FileName]:
        """All files that are listed."""
        with self.reading():
            return self._listed()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _listed(self) -> list[FileName]:
        present = self._tables("lake")
        return [
            name
            for table in LOG_COLUMNS
            if table in present
            for (path,) in self._execute(f"SELECT data_file FROM ducklake_list_files('lake', '{table}')")
            if (name := FileName.read(self.data.below(path))) is not None
        ]

    def _tables(self, database: str) -> set[str]:
        query = f"SELECT table_name FROM duckdb_tables() WHERE database_name = '{database}'"
        return {name for (name,) in self._execute(query)}

    def _execute(self, query: str) -> list[tuple[str, ...]]:
        return self.connection.execute(query).fetchall()

    @contextlib.contextmanager
    def _committing(self) -> Iterator[None]:
        with self.reading(), transaction(self.connection):
            if self._file is None:
                self._wait_for_turn()
            yield

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """The tables are there as `lake`, and no commit comes in between."""
        options = f" (DATA_PATH {literal(self.data.root)}, DATA_INLINING_ROW_LIMIT 0)"
        with self._explained():
            if self._file is not None:
                self._disk.make_directory(self._file.parent, parents=True)
            else:
                self._attach_lock()
            self._attach(f"ATTACH {literal(self._target)} AS lake{options}")
            try:
                yield
            finally:
                with contextlib.suppress(duckdb.Error):
                    self.connection.execute("DETACH lake")

    def _attach_lock(self) -> None:
        self.connection.execute(f"ATTACH IF NOT EXISTS {literal(self._url)} AS lock (TYPE postgres)")

    def _attach(self, statement: str) -> None:
        """Attach, where the catalog is a file between two questions of other programs."""
        deadline = self._clock.monotonic() + LOCK_SECONDS
        while True:
            try:
                self.connection.execute(statement)
                return
            except duckdb.IOException as error:
                if (holder := _HELD.search(str(error))) is None:
                    raise
                if self._clock.monotonic() >= deadline:
                    raise LakeError(
                        f"the catalog {self._file} has been open in {holder[1]} for {LOCK_SECONDS} s,"
                        " expected that it is detached between questions"
                    ) from None
                self._clock.sleep(_POLL_SECONDS)

    def _wait_for_turn(self) -> None:
        """Wait for the commits of other collectors. The lock ends with the transaction or the connection."""
        query = (
            f"SELECT set_config('lock_timeout', '{LOCK_SECONDS}s', true) AS wait,"
            f" pg_advisory_xact_lock({_LOCK_NUMBER})::text AS lock, current_setting('lc_messages') AS language"
        )
        row = self.connection.execute(f"SELECT language FROM postgres_query('lock', {literal(query)})").fetchone()
        if row is None or not _ENGLISH.fullmatch(row[0]):
            raise LakeError(
                f"the catalog's server has lc_messages {row and row[0]!r}, expected C: DuckLake finds conflicts in the"
                " text of errors; ALTER ROLE ... SET lc_messages = 'C'"
            )

    def _create_tables(self) -> None:
        query = "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = 'lake'"
        present: dict[str, list[str]] = {}
        for table, column in self._execute(query):
            present.setdefault(table, []).append(column)
        for table in LOG_COLUMNS:
            expected = columns(table)
            if unknown := sorted(set(present.get(table, ())) - set(expected)):
                raise LakeError(
                    f"{self._name} has a table {table!r} with a column {unknown[0]!r}, expected none"
                    " such: it was written by another program, or by a newer Barograph"
                )
            if table not in present:
                self.connection.execute(f'CREATE TABLE lake."{table}" ({declared(expected)})')
                self.connection.execute(f'ALTER TABLE lake."{table}" SET PARTITIONED BY ("{DAY}")')
                continue
            for column in (name for name in expected if name not in present[table]):
                self.connection.execute(f'ALTER TABLE lake."{table}" ADD COLUMN "{column}" {expected[column]}')

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            reason, other_version, _ = redacted(reason_of(error)).partition(_OTHER_VERSION)
            version = "; another version of DuckLake has written it" if other_version else ""
            raise LakeError(f"cannot use the catalog of {self._name}: {self.data.explain(reason)}{version}") from None
        except OSError as error:
            raise LakeError(f"cannot use {self._name}: {error.strerror}") from None


def redacted(text: str) -> str:
    """A text without the passwords in its URLs.

    >>> redacted('at "postgresql://baro:secret@db/lake": refused')
    'at "postgresql://baro:***@db/lake": refused'
    """
    return _PASSWORD.sub(r"\1:***@", text)
