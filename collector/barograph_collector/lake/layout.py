"""The tables of the lake: those of the log, with the origin of each row, and without columns that follow."""

from __future__ import annotations

from typing import Final

from barograph_collector.storage.layout import LOG_COLUMNS

COLLECTOR: Final = "collector"
CLUSTER: Final = "cluster"
DAY: Final = "day"
MOMENT_TOLERANCE: Final = 1e-15
"""Relative: powers of one number by two libraries differ by rounding."""


def _moments() -> dict[str, str]:
    # Of one interval all follow from its duration; of several with one duration likewise would be a guess.
    return {
        "sum_squares": "sum_seconds * sum_seconds",
        "sum_cubes": "sum_seconds * sum_seconds * sum_seconds",
        "min_seconds": "sum_seconds",
        "max_seconds": "sum_seconds",
    }


FOLLOWING: Final[dict[str, dict[str, str]]] = {"blocks": _moments()}
"""Columns that are NULL in the lake where they follow from others, and the expression that they then have."""


def is_clustered(table: str) -> bool:
    """Whether rows belong to a cluster: those of a job do, whose name begins with it."""
    return "job" in LOG_COLUMNS[table]


def columns(table: str) -> dict[str, str]:
    """Columns and types of a table of the lake."""
    # `jobs` has a column of this name.
    cluster = {CLUSTER: "VARCHAR"} if is_clustered(table) else {}
    return {COLLECTOR: "VARCHAR", **cluster, DAY: "DATE", **LOG_COLUMNS[table]}


def partition(table: str) -> list[str]:
    """The columns by which the files of a table are kept apart: they are in the names of directories, not in files."""
    return [CLUSTER, DAY] if is_clustered(table) else [DAY]


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
