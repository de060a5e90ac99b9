"""From whatever version of Barograph wrote the database to the layout of this one.

A version is one number in the table `meta`; a database without that table but with others is of version 1. Each step is
one transaction, so a collector that dies in the middle finds the database before or after it. New columns at the end of
a table, which is how tables grow, need no step of their own.
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
    """The database is not one that this version can use. The text says what was found and what was expected."""


def migrate(connection: duckdb.DuckDBPyConnection, today: int) -> None:
    """Bring the database to this layout; `today` counts days from 1970-01-01. Raises Foreign."""
    version = _version(connection)
    if version > VERSION:
        raise Foreign(f"is of version {version}, expected at most {VERSION}: it was written by a newer Barograph")
    if version == 0:
        with transaction(connection):
            _create(connection)
            _set_version(connection, VERSION)
    else:
        for number in range(version + 1, VERSION + 1):
            with transaction(connection):
                _STEPS[number](connection, today)
                _set_version(connection, number)
    with transaction(connection):
        _grow(connection)


def _version(connection: duckdb.DuckDBPyConnection) -> int:
    tables = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if not tables:
        return 0
    if "meta" not in tables:
        return 1
    (version,) = connection.execute("SELECT version FROM meta").fetchone() or (0,)
    return int(version)


def _set_version(connection: duckdb.DuckDBPyConnection, version: int) -> None:
    connection.execute("CREATE OR REPLACE TABLE meta (version BIGINT)")
    connection.execute("INSERT INTO meta VALUES (?)", [version])


def _create(connection: duckdb.DuckDBPyConnection) -> None:
    for name, columns in {**LOG_COLUMNS, **OWN_COLUMNS}.items():
        if name not in DAILY:
            connection.execute(f'CREATE TABLE IF NOT EXISTS "{name}" ({declared(columns)})')


def _split_into_days(connection: duckdb.DuckDBPyConnection, today: int) -> None:
    """Version 2: daily tables. What was there becomes one partition, as if it had come today."""
    held = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    first = Partition(today, 1)
    for name in DAILY:
        if name in held:
            connection.execute(f'ALTER TABLE "{name}" RENAME TO "{first.table(name)}"')
        else:
            connection.execute(f'CREATE TABLE "{first.table(name)}" ({declared(LOG_COLUMNS[name])})')
    _create(connection)
    connection.execute("INSERT INTO partitions VALUES (?, ?, false)", [first.day, first.first_offset])


_STEPS: Final[dict[int, Callable[[duckdb.DuckDBPyConnection, int], None]]] = {2: _split_into_days}


def _grow(connection: duckdb.DuckDBPyConnection) -> None:
    """Create tables that are new, add columns that are new at a table's end; everything else must be as expected."""
    _create(connection)
    days = [Partition(*row) for row in connection.execute("SELECT day, first_offset FROM partitions").fetchall()]
    expected = {name: columns for name, columns in {**LOG_COLUMNS, **OWN_COLUMNS}.items() if name not in DAILY}
    logical = {name: name for name in expected}
    for daily in DAILY:
        for day in days:
            connection.execute(f'CREATE TABLE IF NOT EXISTS "{day.table(daily)}" ({declared(LOG_COLUMNS[daily])})')
            expected[day.table(daily)] = LOG_COLUMNS[daily]
            logical[day.table(daily)] = daily
    for name, columns in expected.items():
        query = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index"
        held = connection.execute(query, [name]).fetchall()
        wanted = list(columns.items())
        if held != wanted[: len(held)]:
            raise Foreign(
                f"has a table {name!r} with columns {_listed(held)}, expected {_listed(wanted)}:"
                " it was written by another program, or by a newer Barograph"
            )
        for column, kind in wanted[len(held) :]:
            value = default(logical[name], column)
            connection.execute(f'ALTER TABLE "{name}" ADD COLUMN "{column}" {kind} DEFAULT {value}')
            for daily in DAILY:  # made again with the new column
                connection.execute(f'DROP VIEW IF EXISTS "{daily}"')


def _listed(columns: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)
