"""What the database looks like: which tables there are, with which columns, and which of them live by the day."""

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
    # How far each stream has come: appended with every commit, folded now and then. The stream with the empty name,
    # which no client can have, is the journal itself.
    STREAMS: {"stream": "VARCHAR", "seq": "BIGINT", OFFSET: "BIGINT"},
    # What remains of blocks: per class and hour (Unix seconds of its beginning), over the runs of one workload.
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
"""Columns and types of the tables that the collector keeps for itself."""
DAILY: Final[tuple[str, ...]] = tuple(
    name for name in ("blocks", "node_blocks", "rank_samples", "scores") if name in TABLES
)
"""Tables that grow with the intervals measured: cut into one partition a day, dropped by retention."""


def default(table: str, column: str) -> str:
    """What rows that are older than a column have in it, as DDL wants it."""
    kind = TABLES[table].columns[column]
    value = TABLES[table].defaults.get(column, "" if kind.is_text else 0)
    return f"'{value}'::{SQL_TYPES[kind]}"


def declared(columns: dict[str, str]) -> str:
    """Columns as DDL wants them."""
    return ", ".join(f'"{name}" {kind}' for name, kind in columns.items())


def quoted(names: Iterable[str]) -> str:
    """Names as a query wants them."""
    return ", ".join(f'"{name}"' for name in names)
