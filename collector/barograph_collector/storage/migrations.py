"""Migration of the schema: from that of an earlier version to the present one.

The version of the schema is a number in the table `meta`. New tables, and new columns at the end of a table, do not
change the version. Each statement is a transaction: after a crash the next start adds the rest.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import duckdb

from barograph_collector.storage.connection import StoreError
from barograph_collector.storage.days.partitions import load
from barograph_collector.storage.layout import DAILY, LOG_COLUMNS, OWN_COLUMNS, declared, default

VERSION: Final = 2


def migrate(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    """Create missing tables and columns. Raises StoreError where another program wrote the file."""
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
            _add_columns(connection, path, name, name, columns)
    if connection.execute("SELECT name FROM identity").fetchone() is None:
        connection.execute("INSERT INTO identity VALUES (?)", [secrets.token_hex(6)])
    for partition in load(connection):
        partition.create(connection)
        for name in () if partition.archived else DAILY:
            _add_columns(connection, path, name, partition.table(name), LOG_COLUMNS[name])


def _add_columns(
    connection: duckdb.DuckDBPyConnection, path: Path, name: str, table: str, columns: dict[str, str]
) -> None:
    """Add the new columns to a table of the schema `name`, or a partition of a daily table."""
    query = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index"
    present, expected = connection.execute(query, [table]).fetchall(), list(columns.items())
    if present != expected[: len(present)]:
        raise StoreError(
            f"cannot use the log {path}: it has a table {table!r} with columns {_listed(present)},"
            f" expected {_listed(expected)}: it was written by another program, or by a newer Barograph"
        )
    for column, sql_type in expected[len(present) :]:
        for daily in DAILY:  # `Partitions` creates the views again, with the new column
            connection.execute(f'DROP VIEW IF EXISTS "{daily}"')
        value = default(name, column) if name in LOG_COLUMNS else f"'0'::{sql_type}"
        connection.execute(f'ALTER TABLE "{table}" ADD COLUMN "{column}" {sql_type} DEFAULT {value}')


def _listed(columns: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)
