"""The schema of the database: its tables, their columns, and which of them are partitioned by day."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barograph_agent.protocol.tables import TABLES, Kind

OFFSET: Final = "offset"
STREAMS: Final = "streams"
CLASS_HOURS: Final = "class_hours"
SQL_TYPES: Final = {
    Kind.NAME: "VARCHAR",
    Kind.TEXT: "VARCHAR",
    Kind.F64: "DOUBLE",
    Kind.I64: "BIGINT",
    Kind.U64: "UBIGINT",
}
LOG_COLUMNS: Final = {
    t.name: {OFFSET: "BIGINT", **{c: SQL_TYPES[k] for c, k in t.columns.items()}} for t in TABLES.values()
}
"""Columns and types of the tables that clients append to and read."""
OWN_COLUMNS: Final = {
    # Marks: the highest number of each stream, appended by every commit and compacted now and then. The stream with
    # the empty name, which no client can have, is the journal.
    STREAMS: {"stream": "VARCHAR", "seq": "BIGINT", OFFSET: "BIGINT"},
    # Roll-up of blocks: per class, hour (its beginning in Unix seconds) and workload.
    CLASS_HOURS: {
        "hour": "DOUBLE",
        "workload": "VARCHAR",
        "class_id": "UBIGINT",
        "jobs": "BIGINT",
        "count": "BIGINT",
        "sum_seconds": "DOUBLE",
        "sum_squares": "DOUBLE",
        "sum_cubes": "DOUBLE",
        "min_seconds": "DOUBLE",
        "max_seconds": "DOUBLE",
    },
    "partitions": {"day": "BIGINT", "first_offset": "BIGINT", "rolled_up": "BOOLEAN"},
}
"""Columns and types of the tables that clients do not see."""
DAILY: Final = ("blocks", "node_blocks", "scores")
"""Tables that grow with the intervals measured: one partition a day, dropped by retention."""


def default(table: str, column: str) -> str:
    """The value of a new column in existing rows, as DDL."""
    kind = TABLES[table].columns[column]
    value = TABLES[table].defaults.get(column, "" if kind.is_text else 0)
    return f"'{value}'::{SQL_TYPES[kind]}"


def declared(columns: dict[str, str]) -> str:
    """Columns with their types, as DDL."""
    return ", ".join(f'"{name}" {kind}' for name, kind in columns.items())


def quoted(names: Iterable[str]) -> str:
    """Quoted names, separated by commas."""
    return ", ".join(f'"{name}"' for name in names)
