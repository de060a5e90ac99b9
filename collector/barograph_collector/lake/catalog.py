"""The catalog of the lake: DuckLake tables, and one committer that registers files and its position as one.

The position is in the commit itself, in its `extra_info`: the offset up to which the rows of each collector are in the
lake. A commit whose outcome is unknown is looked up there; it is never repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import duckdb
import msgspec

from barograph_agent.system.system import SYSTEM, System
from barograph_collector.lake import pins
from barograph_collector.lake.files import LakeFile
from barograph_collector.lake.layout import COLLECTOR, TABLES, RowRange, columns, partition
from barograph_collector.lake.lease import FileLease, Lease, ServerLease, redacted
from barograph_collector.lake.place import Lake
from barograph_collector.storage.connection import first_line, transaction
from barograph_collector.storage.days.data_path import DATA
from barograph_collector.storage.days.extensions import LakeError, extension
from barograph_collector.storage.layout import OFFSET, declared
from barograph_collector.storage.text import literal

OTHER_VERSION: Final = ". To automatically migrate"
"""What DuckLake goes on with, where a catalog is not of its version: an option that nobody has here."""
AUTHOR: Final = "barograph"
ORPHAN_SECONDS: Final = 2 * 86400.0
"""As far as the clock may jump before its calendar is held: what another collector has just written seems so old."""
CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "memory_limit": "512MB",
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}


class Committed(msgspec.Struct):
    """The extra information of a commit, by collector. writers: the words of the processes that committed last."""

    positions: dict[str, int] = {}
    writers: dict[str, str] = {}


class Catalog:
    """The committer of a lake; for one thread. At most one process commits at a time."""

    def __init__(self, lake: Lake, collector: str, scratch: Path, system: System = SYSTEM) -> None:
        """Nothing is opened. collector: a name that no other producer of this lake has. scratch: a folder for sorts."""
        self.data = lake.data
        self._name = f"the lake {lake.data.lake}"
        self._directory = lake.directory
        self._collector = collector
        self.writer = ""
        """A word of this process, which its commits have."""
        self.accepted: Sequence[str] = ()
        """Words of processes that may have committed last for this collector; none for any."""
        self.last_writer = ""
        """The word of the process that had, when the lake was opened."""
        self._disk = system.disk
        clock = system.clock
        self._lease: Lease = ServerLease(lake.url, clock) if lake.url else FileLease(lake.directory, self._disk, clock)
        self.connection = duckdb.connect(config=CONFIG | {"temp_directory": str(scratch)})
        # Otherwise Python variables could be read as tables.
        self.connection.execute("SET python_enable_replacements = false")
        self.connection.execute(f"LOAD {literal(str(extension('ducklake')))}")
        self._lease.prepare(self.connection)
        self.data.load(self.connection)

    def open(self, known: int) -> int:
        """The offset up to which rows of this collector are in the lake, 0 for none. Creates missing tables.

        known: a position that the lake has had; above 0 no lake is created. Raises LakeError.
        """
        self.check(known)
        with self._transaction(create=not known):
            self._create_tables()
            committed = self._committed()
        position = committed.positions.get(self._collector, 0)
        self.last_writer = committed.writers.get(self._collector, "")
        if self.last_writer and self.accepted and self.last_writer not in self.accepted:
            raise self._foreign()
        if position < known:
            raise LakeError(
                f"{self._name} has rows of collector {self._collector} up to {position},"
                f" expected {known} at least: it is an older copy, or another lake"
            )
        return position

    def _foreign(self) -> LakeError:
        return LakeError(
            f"{self._name} has rows of collector {self._collector} that another process has written,"
            " expected no other collector that has its name: stop one of the two"
        )

    def check(self, known: int) -> None:
        """Raises LakeError where the lake, which has had this position, is not there: an empty directory is none."""
        file = self._lease.file
        if known and file is not None and not self._disk.exists(file):
            raise LakeError(self._missing(file.name, known))
        try:
            self.data.check(known > 0)
        except FileNotFoundError:
            raise LakeError(self._missing(DATA, known)) from None

    def _missing(self, name: str, known: int) -> str:
        rows = f" with rows up to {known}" if known > 1 else ""
        return f"{self._name} has no {name}, expected one{rows}: is its file system mounted?"

    def commit(self, files: Sequence[LakeFile], before: int, position: int) -> None:
        """Register files and the new position in one transaction.

        before: the position that the lake must have. Raises LakeError; whether the commit has happened is then unknown.
        """
        with self._transaction():
            committed = self._committed()
            if committed.positions.get(self._collector, 0) != before:
                raise self._foreign()
            committed.positions[self._collector] = position
            committed.writers[self._collector] = self.writer
            self._describe(f"rows {before + 1} to {position} of {self._collector}", committed)
            for file in files:
                self._register(file)

    def replace(self, within: RowRange, *files: LakeFile, rows: int | None = None) -> None:
        """Register files in place of those with these rows. Raises LakeError.

        rows: how many rows that are; by default as many as the files have.
        """
        with self._transaction():
            self._describe(f"merged {files[0].path.name}", self._committed())
            found, expected = self._delete(within), sum(file.rows for file in files) if rows is None else rows
            if found != expected:
                raise LakeError(
                    f"{self._name} has {found} rows where {files[0].path} is to take the place of"
                    f" {expected}: another program has changed it"
                )
            for file in files:
                self._register(file)

    def remove(self, ranges: Collection[RowRange]) -> int:
        """Delete rows, which are whole files, by one commit; returns how many. Raises LakeError."""
        with self._transaction():
            tables = ", ".join(sorted({within.table for within in ranges}))
            self._describe(f"removed rows of {tables}", self._committed())
            return sum(map(self._delete, ranges))

    def files(self) -> list[tuple[str, PurePosixPath, int]]:
        """The table, path below the data path, and size in bytes of each file. Raises LakeError."""
        with self._attached():
            return [
                (table, self.data.below(path), size)
                for table in TABLES
                for path, size in self.connection.execute(
                    f"SELECT data_file, data_file_size_bytes FROM ducklake_list_files('lake', '{table}')"
                ).fetchall()
            ]

    @contextlib.contextmanager
    def reading(self) -> Iterator[dict[str, int]]:
        """The tables are there as `lake`, and no commit comes in between. Yields the position of each collector.

        Raises LakeError.
        """
        with self._attached():
            yield self._committed().positions

    def expire(self, before: float) -> None:
        """Forget what the lake was before a time (Unix seconds), and delete files of which nothing is left.

        What a backup of the catalog lists stays.
        """
        self._expire(before, pins.read(self._directory, self._disk) if self._lease.file is not None else [])

    def _expire(self, before: float, pinned: Sequence[int]) -> None:
        with self._transaction():
            # Other collectors commit by their clocks.
            before -= max(self._lease.ahead, 0.0)
            query = (
                f"SELECT snapshot_id FROM ducklake_snapshots('lake') WHERE snapshot_time < to_timestamp({before})"
                " ORDER BY snapshot_id"
            )
            newest = self.connection.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchone()
            kept = {*pinned, *(newest or ())}
            if gone := [number for (number,) in self.connection.execute(query).fetchall() if number not in kept]:
                self.connection.execute(f"CALL ducklake_expire_snapshots('lake', versions => {gone})")
            self.connection.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
            # Files of batches and merges that were never committed.
            earlier = f"to_timestamp({before - ORPHAN_SECONDS})"
            self.connection.execute(f"CALL ducklake_delete_orphaned_files('lake', older_than => {earlier})")

    def forget(self, before: float) -> None:
        """Forget what the lake was before a time (Unix seconds), delete what is left of it, and any trace in figures.

        The catalog has the least and the greatest value of each column, also of rows that are deleted. Files that only
        a backup lists go too.
        """
        self._expire(before, [])
        with self._transaction():
            self.connection.execute(
                "UPDATE __ducklake_metadata_lake.ducklake_table_column_stats AS t SET min_value = s.low,"
                " max_value = s.high FROM (SELECT table_id, column_id, min(min_value) AS low, max(max_value) AS high"
                " FROM __ducklake_metadata_lake.ducklake_file_column_stats GROUP BY ALL) AS s"
                " WHERE t.table_id = s.table_id AND t.column_id = s.column_id AND t.column_id IN (SELECT column_id FROM"
                " __ducklake_metadata_lake.ducklake_column AS c WHERE c.table_id = t.table_id"
                " AND c.column_type = 'varchar')"
            )
        try:
            self._lease.rewrite(self.connection)
        except duckdb.Error as error:
            raise LakeError(f"cannot write the catalog of {self._name} anew: {first_line(error)}") from None

    def close(self) -> None:
        """Let another committer in."""
        self.connection.close()

    @contextlib.contextmanager
    def _transaction(self, create: bool = False) -> Iterator[None]:
        """A transaction of the one committer."""
        with self._attached(create), transaction(self.connection):
            self._lease.begin(self.connection)
            yield

    @contextlib.contextmanager
    def _attached(self, create: bool = False) -> Iterator[None]:
        """Attach the catalog: others can read its file whenever nothing is committed."""
        try:
            if create:
                self._disk.make_directory(self._directory, parents=True)
                self.data.make()
            self._lease.hold()
            self._lease.attach(
                self.connection,
                f" (DATA_PATH {literal(self.data.root)}, DATA_INLINING_ROW_LIMIT 0, CREATE_IF_NOT_EXISTS {create})",
            )
        except LakeError:
            self._lease.release()
            raise
        except duckdb.Error as error:
            self._lease.release()
            raise LakeError(f"cannot open {self._name}: {self._reason(error)}") from None
        except OSError as error:
            raise LakeError(f"cannot use {self._name}: {error.strerror}") from None
        try:
            yield
        except duckdb.Error as error:
            raise LakeError(f"cannot use {self._name}: {self._reason(error)}") from None
        finally:
            with contextlib.suppress(duckdb.Error):
                self.connection.execute("DETACH lake")
            self._lease.release()

    def _reason(self, error: duckdb.Error) -> str:
        reason, other_version, _ = redacted(first_line(error)).partition(OTHER_VERSION)
        return self.data.explain(reason) + ("; another version of DuckLake has written it" if other_version else "")

    def _create_tables(self) -> None:
        query = "SELECT table_name, column_name FROM duckdb_columns() WHERE database_name = 'lake'"
        present: dict[str, list[str]] = {}
        for table, column in self.connection.execute(query).fetchall():
            present.setdefault(table, []).append(column)
        if not present and self.data.has_files():
            # They would be deleted as those of batches that were never committed.
            raise LakeError(
                f"{self._name} has files, but its catalog has no tables, expected both or none: it is another catalog,"
                " or the files are of another lake"
            )
        for table in TABLES:
            expected = columns(table)
            if unknown := sorted(set(present.get(table, ())) - set(expected)):
                raise LakeError(
                    f"{self._name} has a table {table!r} with a column {unknown[0]!r}, expected none"
                    " such: it was written by another program, or by a newer Barograph"
                )
            if table not in present:
                keys = ", ".join(f'"{column}"' for column in partition(table))
                self.connection.execute(f'CREATE TABLE lake."{table}" ({declared(expected)})')
                self.connection.execute(f'ALTER TABLE lake."{table}" SET PARTITIONED BY ({keys})')
                continue
            for column in (name for name in expected if name not in present[table]):
                self.connection.execute(f'ALTER TABLE lake."{table}" ADD COLUMN "{column}" {expected[column]}')

    def _describe(self, message: str, committed: Committed) -> None:
        # Every commit: others are forgotten one day.
        info = msgspec.json.encode(committed).decode()
        self.connection.execute(
            f"CALL lake.set_commit_message('{AUTHOR}', {literal(message)}, extra_info => {literal(info)})"
        )

    def _delete(self, within: RowRange) -> int:
        row = self.connection.execute(f'DELETE FROM lake."{within.table}" WHERE {within.condition}').fetchone()
        return int(row[0]) if row else 0

    def _register(self, file: LakeFile) -> None:
        self.connection.execute(
            f"CALL ducklake_add_data_files('lake', {literal(file.table)}, {literal(self.data.at(file.path))},"
            " hive_partitioning => true)"
        )

    def _committed(self) -> Committed:
        query = (
            "SELECT commit_extra_info FROM ducklake_snapshots('lake') WHERE author = ?"
            " AND commit_extra_info IS NOT NULL ORDER BY snapshot_id DESC LIMIT 1"
        )
        if (row := self.connection.execute(query, [AUTHOR]).fetchone()) is not None:
            try:
                return msgspec.json.decode(row[0], type=Committed)
            except msgspec.MsgspecError as error:
                raise LakeError(f"the last commit of {self._name} has no positions: {error}") from None
        # Another program may have expired the commits: rows carry the offsets too.
        found: dict[str, int] = {}
        for table in TABLES:
            rows: list[Any] = self.connection.execute(
                f'SELECT {COLLECTOR}, max("{OFFSET}") FROM lake."{table}" GROUP BY 1'
            ).fetchall()
            for collector, last in rows:
                found[collector] = max(found.get(collector, 0), last)
        return Committed(found)
