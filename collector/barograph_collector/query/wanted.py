"""What a query wants of the daily tables, as far as its conditions are constants: files of the lake can be left out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from barograph_collector.storage.days.archive import TIME_COLUMNS, Wanted

_LESS: Final = ("COMPARE_LESSTHAN", "COMPARE_LESSTHANOREQUALTO")
_GREATER: Final = ("COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO")
_MIRRORED: Final = dict(zip(("COMPARE_EQUAL", *_LESS, *_GREATER), ("COMPARE_EQUAL", *_GREATER, *_LESS), strict=True))


def bounds(table: str, names: set[str], condition: Any) -> Wanted:
    """What a query wants of a daily table. names: those of the table in the query.

    condition: which all rows meet, as from `json_serialize_sql`; None for none.
    """
    jobs: tuple[str, ...] = ()
    since, until = -math.inf, math.inf
    for kind, column, value in _comparisons(names, condition):
        if column == "job" and kind in ("COMPARE_EQUAL", "COMPARE_IN"):
            among = value if kind == "COMPARE_IN" else [value]
            jobs = tuple(sorted(among)) if all(isinstance(one, str) for one in among) else jobs
        elif column == TIME_COLUMNS[table] and isinstance(value, int | float):
            if kind in ("COMPARE_EQUAL", *_GREATER):
                since = max(since, value)
            if kind in ("COMPARE_EQUAL", *_LESS):
                until = min(until, value)
    return Wanted(jobs, since, until)


def _comparisons(names: set[str], condition: Any) -> Iterator[tuple[str, str, Any]]:
    """Comparisons of a column with a constant, all of which hold: kind, column, constant; with several, as a list."""
    if not isinstance(condition, dict):
        return
    if condition.get("type") == "CONJUNCTION_AND":
        for child in condition["children"]:
            yield from _comparisons(names, child)
    elif (kind := condition.get("type")) in _MIRRORED:
        left, right = condition["left"], condition["right"]
        if right.get("type") == "COLUMN_REF":
            left, right, kind = right, left, _MIRRORED[kind]
        if right.get("type") == "VALUE_CONSTANT" and (column := _column(left, names)):
            yield kind, column, _constant(right["value"])
    elif condition.get("type") == "COMPARE_IN":
        asked, *among = condition["children"]
        if all(one.get("type") == "VALUE_CONSTANT" for one in among) and (column := _column(asked, names)):
            yield "COMPARE_IN", column, [_constant(one["value"]) for one in among]


def _column(node: Any, names: set[str]) -> str:
    """The name of a column of a table that has these names; empty for other nodes, and what may be another table's."""
    if node.get("type") != "COLUMN_REF":
        return ""
    *qualified, column = node["column_names"]
    # Another name is that of a table outside of a subquery.
    return column if not qualified or (len(qualified) == 1 and qualified[0] in names) else ""


def _constant(value: Any) -> Any:
    if value["is_null"]:
        return None
    if value["type"]["id"] == "DECIMAL":
        return value["value"] / 10 ** value["type"]["type_info"]["scale"]
    return value["value"]
