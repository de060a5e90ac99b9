"""Migrations: from the schema of any earlier version to the present one.

The version is a number in the table `meta`; a database with tables but without that one is of version 1. Each step is
one transaction, so a crash leaves the database before or after it. New tables, and new columns at the end of a table,
need no step of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import duckdb

from barograph_collector.storage.layout import DAILY, LOG_COLUMNS, OWN_COLUMNS, declared, default
from barograph_collector.storage.partitions import Partition
from barograph_collector.storage.transaction import transaction

VERSION: Final = 2


class Foreign(Exception):
    """This version cannot use the database. The text says what was found and what was expected."""


def migrate(connection: duckdb.DuckDBPyConnection, today: int) -> None:
    """Bring the database to the present schema; `today` counts days from 1970-01-01. Raises Foreign."""
    version = _version(connection)
    if version > VERSION:
        raise Foreign(f"is of version {version}, expected at most {VERSION}: it was written by a newer Barograph")
    for number in range(version + 1, VERSION + 1) if version else ():
        with transaction(connection):
            _STEPS[number](connection, today)
            _set_version(connection, number)
    with transaction(connection):
        _add_new(connection)
        if version == 0:
            _set_version(connection, VERSION)


def _version(connection: duckdb.DuckDBPyConnection) -> int:
    """The version of the database, 0 for an empty one."""
    tables = _tables(connection)
    if not tables:
        return 0
    if "meta" not in tables:
        return 1
    (version,) = connection.execute("SELECT version FROM meta").fetchone() or (0,)
    return int(version)


def _set_version(connection: duckdb.DuckDBPyConnection, version: int) -> None:
    connection.execute("CREATE OR REPLACE TABLE meta (version BIGINT)")
    connection.execute("INSERT INTO meta VALUES (?)", [version])


def _tables(connection: duckdb.DuckDBPyConnection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}


def _split_into_days(connection: duckdb.DuckDBPyConnection, today: int) -> None:
    """Version 2: daily tables. The rows of before become the partition of today."""
    first = Partition(today, 1)
    for name in _tables(connection).intersection(DAILY):
        connection.execute(f'ALTER TABLE "{name}" RENAME TO "{first.table(name)}"')
    connection.execute(f"CREATE TABLE partitions ({declared(OWN_COLUMNS['partitions'])})")
    connection.execute("INSERT INTO partitions VALUES (?, ?, false)", [first.day, first.first_offset])


_STEPS: Final[dict[int, Callable[[duckdb.DuckDBPyConnection, int], None]]] = {2: _split_into_days}


def _add_new(connection: duckdb.DuckDBPyConnection) -> None:
    """Create new tables, add new columns at the end of tables. Raises Foreign for any other difference."""
    kept = {name: columns for name, columns in {**LOG_COLUMNS, **OWN_COLUMNS}.items() if name not in DAILY}
    for name, columns in kept.items():
        connection.execute(f'CREATE TABLE IF NOT EXISTS "{name}" ({declared(columns)})')
        _add_columns(connection, name, name, columns)
    for row in connection.execute("SELECT day, first_offset FROM partitions").fetchall():
        day = Partition(*row)
        day.create(connection)
        for name in DAILY:
            _add_columns(connection, name, day.table(name), LOG_COLUMNS[name])


def _add_columns(connection: duckdb.DuckDBPyConnection, name: str, table: str, columns: dict[str, str]) -> None:
    """Add new columns to a table, which is a partition of `name` where that is a daily table."""
    query = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index"
    held = connection.execute(query, [table]).fetchall()
    wanted = list(columns.items())
    if held != wanted[: len(held)]:
        raise Foreign(
            f"has a table {table!r} with columns {_listed(held)}, expected {_listed(wanted)}:"
            " it was written by another program, or by a newer Barograph"
        )
    for column, kind in wanted[len(held) :]:
        connection.execute(f'ALTER TABLE "{table}" ADD COLUMN "{column}" {kind} DEFAULT {default(name, column)}')
        for daily in DAILY:  # `Partitions` creates the views again, with the new column
            connection.execute(f'DROP VIEW IF EXISTS "{daily}"')


def _listed(columns: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)
