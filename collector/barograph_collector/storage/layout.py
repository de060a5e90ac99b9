"""The schema of the database: its tables, their columns, and which of them are partitioned by day."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barograph_agent.protocol.tables import TABLES, Kind

OFFSET: Final = "offset"
STREAMS: Final = "streams"
JOURNAL: Final = ""
"""The stream whose mark is the number of the last journal message in the database. No client can have this name."""
CLASS_HOURS: Final = "class_hours"
_SQL_TYPES: Final = {
    Kind.NAME: "VARCHAR",
    Kind.TEXT: "VARCHAR",
    Kind.F64: "DOUBLE",
    Kind.I64: "BIGINT",
    Kind.U64: "UBIGINT",
}
LOG_COLUMNS: Final = {
    t.name: {OFFSET: "BIGINT", **{c: _SQL_TYPES[k] for c, k in t.columns.items()}} for t in TABLES.values()
}
"""Columns and types of the tables that clients append to and read."""
OWN_COLUMNS: Final = {
    # Marks: the highest committed number of each stream, appended by every commit and compacted from time to time.
    STREAMS: {"stream": "VARCHAR", "seq": "BIGINT", OFFSET: "BIGINT"},
    # Roll-up of blocks by class, hour (its start in Unix seconds) and workload.
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
    # One row: the name of this log among those that write to one lake, drawn at random when the file is created.
    "identity": {"name": "VARCHAR"},
    "partitions": {"day": "BIGINT", "first_offset": "BIGINT", "rolled_up": "BOOLEAN"},
}
"""Columns and types of the collector's own tables."""
DAILY: Final = ("blocks", "node_blocks", "phases", "pressures", "silences", "nodes", "scores")
"""Tables that grow with the measured time: one partition a day, dropped by retention."""


def declared(columns: dict[str, str]) -> str:
    """Columns with their types, as DDL."""
    return ", ".join(f'"{name}" {kind}' for name, kind in columns.items())


def quoted(names: Iterable[str]) -> str:
    """Quoted names, separated by commas."""
    return ", ".join(f'"{name}"' for name in names)
