"""The schema of the database: its tables, their columns, and which of them are partitioned by day."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from barograph_agent.protocol.tables import TABLES, Kind
from barograph_collector.storage.text import literal

OFFSET: Final = "log_offset"
STREAMS: Final = "streams"
JOURNAL: Final = ""
"""The stream whose mark is the number of the last journal message in the database. No client can have this name."""
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
    # One row: the name of this log among those that write to one lake, drawn at random when the file is created.
    "identity": {"name": "VARCHAR"},
    # Days of the daily tables. archived: the rows are in files of the lake, and not in tables of this file.
    "partitions": {"day": "BIGINT", "first_offset": "BIGINT", "archived": "BOOLEAN"},
    # Periods that the lake lacks: the first offset, and the period of time since 1970-01-01 in which it was stored.
    "periods": {"first_offset": "BIGINT", "number": "BIGINT"},
    # One row: the place of the lake, and the offset up to which it has all rows.
    "lake": {"place": "VARCHAR", "sealed": "BIGINT"},
    # Files of sealed periods, and what a query needs to know to leave one out.
    "lake_files": {
        "name": "VARCHAR",
        "day": "BIGINT",
        "first_offset": "BIGINT",
        "last_offset": "BIGINT",
        "edition": "BIGINT",
        "width": "BIGINT",
        "rows": "BIGINT",
        "first_job": "VARCHAR",
        "last_job": "VARCHAR",
        "first_at": "DOUBLE",
        "last_at": "DOUBLE",
    },
}
"""Columns and types of the collector's own tables."""
DAILY: Final = ("blocks", "node_blocks", "workers", "phases", "pressures", "silences", "nodes", "scores")
"""Tables that grow with the measured time: one partition a day, dropped by retention."""


MOMENT_TOLERANCE: Final = 1e-15
"""Relative: powers of one number by two libraries differ by rounding."""
FOLLOWING: Final[dict[str, dict[str, str]]] = {
    # Of one interval all follow from its duration; of several with one duration likewise would be a guess.
    "blocks": {
        "sum_squares": "sum_seconds * sum_seconds",
        "sum_cubes": "sum_seconds * sum_seconds * sum_seconds",
        "min_seconds": "sum_seconds",
        "max_seconds": "sum_seconds",
    }
}
"""Columns that are NULL in the lake where they follow from others, and the expression that they then have."""


def stored(table: str, column: str) -> str:
    """A column of the log, as an expression that gives its value in the lake."""
    if (value := FOLLOWING.get(table, {}).get(column)) is None:
        return f'"{column}"'
    follows = f'count = 1 AND abs("{column}" - {value}) <= {MOMENT_TOLERANCE} * {value}'
    return f'CASE WHEN {follows} THEN NULL ELSE "{column}" END AS "{column}"'


def restored(table: str, column: str) -> str:
    """A column of the lake, as an expression that gives its value in the log."""
    if (value := FOLLOWING.get(table, {}).get(column)) is None:
        return f'"{column}"'
    return f'coalesce("{column}", {value}) AS "{column}"'


def default(table: str, column: str) -> str:
    """The value of a column, as SQL, in rows that are older than the column."""
    kind = TABLES[table].columns[column]
    value = str(TABLES[table].defaults.get(column, "" if kind.is_text else 0))
    return f"{literal(value)}::{LOG_COLUMNS[table][column]}"


def declared(columns: dict[str, str]) -> str:
    """Columns with their types, as DDL."""
    return ", ".join(f'"{name}" {kind}' for name, kind in columns.items())


def quoted(names: Iterable[str]) -> str:
    """Quoted names, separated by commas."""
    return ", ".join(f'"{name}"' for name in names)
