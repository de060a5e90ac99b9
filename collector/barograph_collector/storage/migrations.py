"""Migration of the schema: from that of an earlier version to the present one.

The version of the schema is a number in the table `meta`. New tables, and new columns at the end of a table, do not
change the version. They are added in transactions of one column a table at most: DuckDB may refuse to commit a second
one, as if another transaction had altered the table.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import duckdb

from barograph_collector.storage.connection import StoreError, transaction
from barograph_collector.storage.days.partitions import load
from barograph_collector.storage.layout import DAILY, LOG_COLUMNS, OWN_COLUMNS, declared, default

VERSION: Final = 2


def migrate(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Create missing tables and columns. Raises StoreError where another program wrote the file."""
    while _add_missing(connection, path):
        pass


def _add_missing(connection: duckdb.DuckDBPyConnection, path: Path) -> bool:
    """Create missing tables, and the first missing column of each table; whether more may be missing."""
    more = False
    with transaction(connection):
        connection.execute("CREATE TABLE IF NOT EXISTS meta (version BIGINT)")
        row = connection.execute("SELECT version FROM meta").fetchone()
        if row is None:
            connection.execute("INSERT INTO meta VALUES (?)", [VERSION])
        elif row[0] > VERSION:
            raise StoreError(
                f"cannot use the log {path}: it is of version {row[0]}, expected at most {VERSION}:"
                " it was written by a newer Barograph"
            )
        for name, columns in {**LOG_COLUMNS, **OWN_COLUMNS}.items():
            if name not in DAILY:
                connection.execute(f'CREATE TABLE IF NOT EXISTS "{name}" ({declared(columns)})')
        present = _columns(connection)
        for name, columns in {**LOG_COLUMNS, **OWN_COLUMNS}.items():
            if name not in DAILY:
                more |= _add_column(connection, path, name, name, columns, present[name])
        if connection.execute("SELECT name FROM identity").fetchone() is None:
            connection.execute("INSERT INTO identity VALUES (?)", [secrets.token_hex(6)])
        partitions = load(connection)
        for partition in partitions:
            partition.create(connection)
        present = _columns(connection) if partitions else {}
        for partition in partitions:
            for name in () if partition.archived else DAILY:
                table = partition.table(name)
                more |= _add_column(connection, path, name, table, LOG_COLUMNS[name], present[table])
    return more


def _columns(connection: duckdb.DuckDBPyConnection) -> dict[str, list[tuple[str, str]]]:
    """Names and types of the columns of all tables, in their order."""
    query = "SELECT table_name, column_name, data_type FROM duckdb_columns() ORDER BY table_name, column_index"
    found: dict[str, list[tuple[str, str]]] = {}
    for table, *column in connection.execute(query).fetchall():
        found.setdefault(table, []).append(tuple(column))
    return found


def _add_column(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    name: str,
    table: str,
    columns: dict[str, str],
    present: list[tuple[str, str]],
) -> bool:
    """Add the first new column to a table of the schema `name`, or a partition of a daily table; whether it did.

    present: the columns that it has.
    """
    expected = list(columns.items())
    if present != expected[: len(present)]:
        raise StoreError(
            f"cannot use the log {path}: it has a table {table!r} with columns {_listed(present)},"
            f" expected {_listed(expected)}: it was written by another program, or by a newer Barograph"
        )
    if len(present) == len(expected):
        return False
    column, sql_type = expected[len(present)]
    value = default(name, column) if name in LOG_COLUMNS else f"'0'::{sql_type}"
    connection.execute(f'ALTER TABLE "{table}" ADD COLUMN "{column}" {sql_type} DEFAULT {value}')
    for daily in DAILY:  # `Partitions` creates the views again, with the new column
        connection.execute(f'DROP VIEW IF EXISTS "{daily}"')
    return True


def _listed(columns: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)
