"""Connections to the DuckDB file: opening, transactions and errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb

from barograph_collector.storage.days.data_path import DataPath
from barograph_collector.storage.erased import Erased
from barograph_collector.storage.text import literal

_CONFIG: Final[dict[str, str | bool | int | float | list[str]]] = {
    "memory_limit": "512MB",
    # Appending is faster with one thread than with two, whose results DuckDB has to put in order.
    "threads": 1,
    # SQL comes from users: no downloads and no other files.
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    # Otherwise DuckDB reads a directory in that of the user.
    "allow_persistent_secrets": False,
    # Automatic checkpoints would delay commits.
    "checkpoint_threshold": "1TB",
}


class StoreError(Exception):
    """The log cannot be opened, or is damaged. The text names the file and what to do."""


class StoreHeld(StoreError):
    """Another process has the database open."""


def connect(path: Path, lake: DataPath | None = None) -> duckdb.DuckDBPyConnection:
    """Open or create the file. lake: files that may be read. Raises StoreError, and LakeError."""
    try:
        connection = duckdb.connect(str(path), config=_CONFIG)
    except duckdb.Error as error:
        reason = first_line(error)
        if "Could not set lock" in reason:
            holder = reason[reason.rfind("(PID") :].partition(")")[0].lstrip("(") if "(PID" in reason else "PID unknown"
            raise StoreHeld(
                f"cannot open the log {path}: another process has it open ({holder});"
                " stop that one, or choose another state directory"
            ) from None
        raise StoreError(f"cannot open the log {path}: {reason}") from None
    # Otherwise Python variables could be read as tables.
    connection.execute("SET python_enable_replacements = false")
    if lake is not None:
        connection.execute("SET parquet_metadata_cache = true")  # files of the lake never change
        lake.load(connection)
        connection.execute("SET allowed_directories = [?]", [lake.root])
    connection.execute("SET enable_external_access = false")
    return connection


def copy_tables(path: Path, target: Path, without: Erased | None = None) -> None:
    """Copy all tables of a file that nobody has open to a new file, in the order of their rows. Raises duckdb.Error."""
    with duckdb.connect(config=_CONFIG) as connection:
        for file, name, mode in ((path, "old", "READ_ONLY"), (target, "new", "READ_WRITE")):
            connection.execute(f"ATTACH {literal(str(file))} AS {name} ({mode})")
        if without is not None:
            without.prepare(connection)
        query = (
            "SELECT table_name, list(column_name) FROM duckdb_columns() SEMI JOIN duckdb_tables()"
            " USING (database_name, table_name) WHERE database_name = 'old' GROUP BY 1"
        )
        for table, columns in connection.execute(query).fetchall():
            source = f'old."{table}"'
            kept = without.kept(source, columns) if without is not None else f"SELECT * FROM {source}"
            connection.execute(f'CREATE TABLE new."{table}" AS {kept}')
        connection.execute("CHECKPOINT new")


@contextlib.contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Commit at the end of the block; roll back where it raises."""
    connection.begin()
    try:
        yield
        connection.commit()
    except BaseException:
        # Fails after a failed commit, which has rolled back, and where the database is unusable.
        with contextlib.suppress(duckdb.Error):
            connection.rollback()
        raise


def first_line(error: duckdb.Error) -> str:
    """The first line of an error; the others describe DuckDB itself."""
    return str(error).strip().splitlines()[0].removeprefix("IO Error: ")
