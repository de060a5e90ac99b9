"""Connections to the DuckDB file: opening, transactions and errors."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb

from barograph_collector.storage.days.data_path import DataPath
from barograph_collector.storage.erased import Erased

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


COPIED_ROWS: Final = 122_880
"""Rows that a copy has in memory at once."""
_DAMAGE: Final = re.compile(r"[Cc]orrupt|checksum|not a valid DuckDB|[Mm]etadata|enough bytes|WAL file")


class StoreError(Exception):
    """The log cannot be opened, or is damaged. The text names the file and what to do."""


class StoreHeld(StoreError):
    """Another process has the database open."""


class StoreDamaged(StoreError):
    """The database cannot be read. Its rows are in a backup, or in the lake and the journal."""


def connect(path: Path, lake: DataPath | None = None) -> duckdb.DuckDBPyConnection:
    """Open or create the file. lake: files that may be read. Raises StoreError, and LakeError."""
    try:
        connection = duckdb.connect(str(path), config=_CONFIG)
    except duckdb.Error as error:
        raise refusal(path, error) from None
    # Only `Database.checkpoint` makes checkpoints: it saves what they overwrite.
    connection.execute("PRAGMA disable_checkpoint_on_shutdown")
    # Otherwise Python variables could be read as tables.
    connection.execute("SET python_enable_replacements = false")
    if lake is not None:
        connection.execute("SET parquet_metadata_cache = true")  # files of the lake never change
        lake.load(connection)
        connection.execute("SET allowed_directories = [?]", [lake.root])
    connection.execute("SET enable_external_access = false")
    return connection


def copy_tables(log: duckdb.DuckDBPyConnection, target: Path, without: Erased | None = None) -> None:
    """Copy all tables to a new file, in the order of their rows, while others read them. Raises duckdb.Error."""
    if without is not None:
        without.prepare(log)
    tables = (
        "SELECT table_name, list(column_name ORDER BY column_index) FROM duckdb_columns() SEMI JOIN duckdb_tables()"
        " USING (table_name) WHERE database_name = current_database() GROUP BY 1"
    )
    with duckdb.connect(str(target), config=_CONFIG) as copy:
        for table, columns in log.execute(tables).fetchall():
            kept = without.kept(f'"{table}"', columns) if without is not None else f'FROM "{table}"'
            copy.register("kept", log.execute(kept).to_arrow_reader(COPIED_ROWS))
            copy.execute(f'CREATE TABLE "{table}" AS FROM kept')
            copy.unregister("kept")
        copy.execute("CHECKPOINT")


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


def refusal(path: Path, error: duckdb.Error, what: str = "BACKUP") -> StoreError:
    """Why the log cannot be used, of an error of DuckDB. what: can be restored."""
    reason = reason_of(error)
    if "Could not set lock" in reason:
        holder = reason[reason.rfind("(PID") :].partition(")")[0].lstrip("(") if "(PID" in reason else "PID unknown"
        return StoreHeld(
            f"cannot open the log {path}: another process has it open ({holder});"
            " stop that one, or choose another state directory"
        )
    text = f"cannot open the log {path}: {reason}"
    if _DAMAGE.search(str(error)) is None:
        return StoreError(text)
    return StoreDamaged(f"{text}; to restore it: barograph restore --replace {what} --state {path.parent}")


def reason_of(error: Exception) -> str:
    """What an error of DuckDB says, on one line, without query, hints and stack: its reason may be in the last line."""
    paragraphs = str(error).strip().split("\n\n")
    while len(paragraphs) > 1 and paragraphs[0].rstrip().endswith(":"):  # what follows is the reason
        paragraphs[:2] = [" ".join(paragraphs[:2])]
    text = paragraphs[0].partition("\n\t")[0].partition("\nStack Trace")[0]
    return " ".join(text.split()).removeprefix("IO Error: ")
