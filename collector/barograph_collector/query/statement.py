"""Which SELECT is answered: one that names tables of the log, and whose single steps are short.

DuckDB ends a query between two blocks of at most 2,048 rows, and counts most of its memory. Within a block nothing ends
a function, so those are allowed that need no more time and memory than their arguments have bytes, and values may grow
by few of them: a product of lengths would have no limit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import duckdb
import msgspec

from barograph_collector.storage.days.archive import TIME_COLUMNS, Wanted
from barograph_collector.storage.layout import DAILY

MAX_CHARACTERS: Final = 2**16
"""Limit on the text of a query without its constants: nothing ends its planning."""
MAX_PATTERN: Final = 128
"""Limit on the characters of what a function looks for."""
MAX_STATES: Final = 1024
"""Limit on the characters of a regular expression times the numbers in its braces."""
VALUE_CHARACTERS: Final = 2**10
"""A constant with so many counts as a value of a table."""
MAX_LENGTH: Final = 16.0
"""How many values of tables a value may be as long as."""
MAX_SEARCHED: Final = 4.0
"""The same of a value that a regular expression, GLOB or a window goes through."""
MAX_TABLES: Final = 100
"""Tables that are joined or united, those of a common table expression once for each reference to it."""
_TABLE_FUNCTIONS: Final = {"range", "generate_series", "unnest", "duckdb_columns", "duckdb_tables"}
_COLLECTING: Final = frozenset({"array_agg", "group_concat", "histogram", "list", "listagg", "string_agg"})
"""Aggregates whose value has all rows, within the limit of memory."""
_JOINING: Final = frozenset({"||", "concat", "concat_ws", "list_pack", "list_value", "map", "row", "struct_pack"})
_REPLACING: Final = frozenset({"replace", "regexp_replace"})
_SEARCHING: Final = frozenset({"contains", "instr", "position", "split_part", "str_split", "string_split", "strpos"})
_REGULAR: Final = frozenset({"~", "regexp_extract", "regexp_full_match", "regexp_matches", "regexp_replace"})
_MATCHING: Final = frozenset({"~~", "!~~"})
"""LIKE: with a constant that has no _ the time grows with the length."""
_BACKTRACKING: Final = frozenset({"~~*", "!~~*", "~~~", "like_escape", "not_like_escape", "ilike_escape"})
_LINEAR: Final = """
% & * ** + - / // << >> @ ^ ^@ | mod abs sign ceil ceiling floor round trunc even exp ln log log10 log2 sqrt cbrt pow
power pi sin cos tan cot asin acos atan atan2 isfinite isinf isnan fdiv fmod greatest least random uuid hash md5
sha256 bit_count coalesce ifnull nullif if typeof unnest ascii char_length character_length chr ends_with starts_with
lower upper left right len length strlen ltrim rtrim trim reverse substr substring translate hex to_hex format_bytes
regexp_escape parse_filename array_length list_extract struct_extract age current_date date_diff date_part date_trunc
datediff datepart datetrunc day dayname dayofmonth dayofweek dayofyear epoch epoch_ms epoch_ns epoch_us hour last_day
make_date make_time make_timestamp minute month monthname now quarter second strftime strptime try_strptime
time_bucket timezone to_days to_hours to_milliseconds to_minutes to_months to_seconds to_timestamp to_weeks to_years
today week weekday year any_value approx_count_distinct approx_quantile arg_max arg_min avg bit_and bit_or bit_xor
bool_and bool_or corr count count_if countif covar_pop covar_samp first kurtosis last max max_by mean median min
min_by mode quantile quantile_cont quantile_disc regr_intercept regr_r2 regr_slope sem skewness stddev stddev_pop
stddev_samp sum var_pop var_samp variance cume_dist dense_rank first_value lag last_value lead nth_value ntile
percent_rank rank row_number count_star get_current_timestamp get_current_time date_add date_sub ->> json_extract_string
"""
_FUNCTIONS: Final = {*_LINEAR.split()}.union(
    _COLLECTING, _JOINING, _REPLACING, _SEARCHING, _REGULAR, _MATCHING, _BACKTRACKING
)
_KINDS: Final = """
BETWEEN CASE COLLATE COMPARISON CONJUNCTION OPERATOR POSITIONAL_REFERENCE EMPTY EXPRESSION_LIST JOIN PIVOT SHOW_REF
CTE_NODE SET_OPERATION_NODE DISTINCT_MODIFIER LIMIT_MODIFIER LIMIT_PERCENT_MODIFIER ORDER_MODIFIER ORDER_DEFAULT
ASCENDING DESCENDING
"""
_TRANSPARENT: Final = {"", *_KINDS.split()}
"""Nodes of the parse tree that need what their parts need."""
_LESS: Final = ("COMPARE_LESSTHAN", "COMPARE_LESSTHANOREQUALTO")
_GREATER: Final = ("COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO")
_MIRRORED: Final = dict(zip(("COMPARE_EQUAL", *_LESS, *_GREATER), ("COMPARE_EQUAL", *_GREATER, *_LESS), strict=True))
_ARGUMENTS: Final = {"max": 1, "min": 1, "arg_max": 2, "arg_min": 2, "max_by": 2, "min_by": 2}  # more: a list


class NotAllowed(ValueError):
    """A query that is not one short-stepped SELECT over the log. The text says what was expected."""


class _Size(NamedTuple):
    """length: of the longest value, in values of tables. tables: that are read."""

    length: float = 0.0
    tables: int = 0


class _Scope(NamedTuple):
    """What surrounds a part of a query: common table expressions, and the length of the values in columns.

    wanted: gets what the query wants of daily tables.
    """

    wanted: dict[str, list[Wanted]]
    expressions: Mapping[str, _Size] = {}
    column: float = 1.0
    is_nested: bool = False
    condition: Any = None
    """That of a SELECT, for its only table: of a join it may not apply to all rows that are read."""


def check(text: str, cursor: duckdb.DuckDBPyConnection) -> dict[str, list[Wanted]]:
    """The daily tables that `text` names, with what it wants of them.

    Raises NotAllowed unless it is one SELECT of the log that a limit of time ends, duckdb.Error for bad syntax.
    """
    if (length := len(re.sub("'[^']*'", "''", text))) > MAX_CHARACTERS:
        raise NotAllowed(f"query has {length} characters, expected at most {MAX_CHARACTERS}")
    statements = cursor.extract_statements(text)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        kinds = ", ".join(str(statement.type).rpartition(".")[2] for statement in statements) or "nothing"
        raise NotAllowed(f"query is {kinds}, expected one SELECT")
    ((tree,),) = cursor.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    try:
        parsed = msgspec.json.decode(tree)
        if parsed["error"]:  # pragmas and the like, which have the type of a SELECT
            raise NotAllowed(f"query is no SELECT: {parsed['error_message']}")
        found: dict[str, list[Wanted]] = {}
        _measure(parsed, _Scope(found))
        return found
    except RecursionError:
        raise NotAllowed("query is nested too deeply, expected fewer levels") from None


def _measure(node: Any, scope: _Scope) -> _Size:
    if isinstance(node, list):
        return _all(node, scope)
    if not isinstance(node, dict):
        return _Size()
    kind = str(node.get("class") or node.get("type", ""))
    measure = _MEASURES.get(str(node.get("type"))) or _MEASURES.get(kind)
    if measure is None and kind not in _TRANSPARENT and not kind.endswith("_TYPE_INFO"):
        raise NotAllowed(f"query has a part of kind {kind[:40]}, expected columns, conditions, joins and subqueries")
    try:
        return (measure or _rest)(node, _with_expressions(node, scope))
    except KeyError as error:
        expected = f"expected as DuckDB 1 has it, not {duckdb.__version__}"
        raise NotAllowed(f"query has a part of kind {kind or 'WITH'} without {error}, {expected}") from None


def _rest(node: dict[str, Any], scope: _Scope, *without: str) -> _Size:
    return _all([child for name, child in node.items() if name not in ("cte_map", *without)], scope)


def _all(nodes: Any, scope: _Scope) -> _Size:
    sizes = [_measure(node, scope) for node in nodes]
    size = _Size(max((size.length for size in sizes), default=0.0), sum(size.tables for size in sizes))
    if size.tables > MAX_TABLES:
        raise NotAllowed(f"query reads more than {MAX_TABLES} tables, those of WITH once for each reference")
    return size


def _with_expressions(node: dict[str, Any], scope: _Scope) -> _Scope:
    for entry in node["cte_map"]["map"] if "cte_map" in node else ():
        size = _measure(entry["value"]["query"]["node"], scope._replace(is_nested=True))
        scope = scope._replace(expressions={**scope.expressions, entry["key"].lower(): size})
    return scope


def _select(node: dict[str, Any], scope: _Scope) -> _Size:
    stars = [part["relation_name"].lower() for part in node["select_list"] if part["type"] == "STAR"]
    if len(stars) > 1 and ("" in stars or len({*stars}) < len(stars)):
        raise NotAllowed("query selects the same columns by several *, expected one * for each table")
    origin = node["from_table"]
    is_only = origin["type"] == "BASE_TABLE" and not origin["column_name_alias"]
    source = _measure(origin, scope._replace(condition=node["where_clause"] if is_only else None))
    inner = scope._replace(column=max(1, scope.column, source.length))
    rest = _rest(node, inner, "from_table")
    return _Size(max(source.length, rest.length), max(source.tables, 1) + rest.tables)


def _recursion(node: dict[str, Any], scope: _Scope) -> _Size:
    first = _measure(node["left"], scope)
    start = _Size(max(first.length, 1), first.tables)
    name = node["cte_name"].lower()
    again = _measure(node["right"], scope._replace(expressions={**scope.expressions, name: start}))
    if again.length > start.length:
        raise NotAllowed(f"query lengthens the values of {name} with each step of its recursion, expected not")
    return _Size(start.length, first.tables + again.tables)


def _function(node: dict[str, Any], scope: _Scope) -> _Size:
    name = node.get("function_name", "-> or lambda").lower()
    if name not in _FUNCTIONS:
        raise NotAllowed(f"query calls {name}(), expected functions whose time and memory the length of a value limits")
    if node["class"] == "WINDOW" and node["exclude_clause"] != "NO_OTHER":
        raise NotAllowed("query has a window with EXCLUDE, expected none: its time grows with a power of the rows")
    arguments = node["children"]
    collects = name in _COLLECTING or len(arguments) > _ARGUMENTS.get(name, len(arguments))
    if collects and (scope.is_nested or node["class"] == "WINDOW"):
        raise NotAllowed(f"query calls {name}() in a nested query or window, expected it in the outermost SELECT")
    sizes = [_measure(argument, scope) for argument in arguments]
    rest = _rest(node, scope, "children")
    length = max((size.length for size in (*sizes, rest)), default=0.0)
    if name in _SEARCHING | _REPLACING | _REGULAR | _MATCHING | _BACKTRACKING:
        pattern = _constant(name, arguments[1:2])
        is_plain = name in _MATCHING and "_" not in pattern
        # A wildcard before the last character but one makes the time grow with a power of the length.
        if name in _MATCHING | _BACKTRACKING and not is_plain and sum(map(pattern[:-1].count, "%*")) > 1:
            raise NotAllowed(f"pattern is {pattern!r}, expected one % besides one at its end, or regexp_matches()")
        repeats = re.findall(r"[1-9]\d*", "".join(re.findall(r"\{[^}]*", pattern)))
        if name in _REGULAR and len(pattern) * math.prod(map(int, repeats)) > MAX_STATES:
            raise NotAllowed(f"pattern is {pattern!r}, expected a shorter one, or smaller numbers in its braces")
    if (name in _REGULAR | _BACKTRACKING or node["class"] == "WINDOW") and length > MAX_SEARCHED:
        raise NotAllowed(f"{name} has a text as long as {length:.3g} of the tables, expected {MAX_SEARCHED:g} at most")
    if name in _REPLACING:
        length *= max(1, len(_constant(name, arguments[2:3])))
    elif name in _JOINING:
        length = sum(size.length for size in sizes)
    if length > MAX_LENGTH:
        raise NotAllowed(f"{name} makes values as long as {length:g} of the tables, expected {MAX_LENGTH:g} at most")
    return _Size(MAX_LENGTH / 2 if collects else length, rest.tables + sum(size.tables for size in sizes))


def _table(node: dict[str, Any], scope: _Scope) -> _Size:
    parts = [node[part] for part in ("catalog_name", "schema_name", "table_name") if node[part]]
    name = parts[-1]
    if "/" in name:  # a file
        raise NotAllowed(f"query names {name!r}, expected a table of the log")
    # Archived days are in a view of this connection, which is found by its name and by main.NAME only.
    if name.lower() in DAILY and parts[:-1] not in ([], ["main"]):
        raise NotAllowed(f"query names {'.'.join(parts)}, expected {name}")
    if name.lower() in DAILY:
        found = bounds(name.lower(), {node["alias"] or name}, scope.condition)
        scope.wanted.setdefault(name.lower(), []).append(found)
    return scope.expressions.get(name.lower(), _Size(1, 1))


def _table_function(node: dict[str, Any], scope: _Scope) -> _Size:
    if (name := node["function"]["function_name"].lower()) not in _TABLE_FUNCTIONS:
        raise NotAllowed(f"query calls {name}(), expected none but {', '.join(sorted(_TABLE_FUNCTIONS))}")
    return _Size(max(1, _all(node["function"]["children"], scope).length), 1)


def _cast(node: dict[str, Any], scope: _Scope) -> _Size:
    types = set(re.findall(r"'id': '(\w+)'", str(node["cast_type"])))
    if types in ({"LIST", "BIGINT"}, {"LIST", "DOUBLE"}) and node["child"]["type"] == "VALUE_CONSTANT":
        return _Size()
    if nested := {"ARRAY", "LIST", "MAP", "STRUCT", "UNION"} & types:
        raise NotAllowed(f"query casts to a type with {min(nested)}, expected numbers, texts and times")
    return _rest(node, scope)


def _text(node: dict[str, Any]) -> str:
    """The text of a constant; empty for NULL."""
    return "" if node["value"]["is_null"] else str(node["value"]["value"])


def _constant(name: str, arguments: Sequence[dict[str, Any]]) -> str:
    """What a function looks for, or puts in its place: its only argument of these."""
    text = "".join(_text(node) for node in arguments if node["type"] == "VALUE_CONSTANT")
    if not arguments or arguments[0]["type"] != "VALUE_CONSTANT" or len(text) > MAX_PATTERN:
        raise NotAllowed(f"{name} has an expression or a long text to look for, expected {MAX_PATTERN} characters")
    return text


def bounds(table: str, names: set[str], condition: Any) -> Wanted:
    """What a query wants of a daily table, as far as its conditions are constants. names: of the table in the query.

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
            yield kind, column, _value(right["value"])
    elif condition.get("type") == "COMPARE_IN":
        asked, *among = condition["children"]
        if all(one.get("type") == "VALUE_CONSTANT" for one in among) and (column := _column(asked, names)):
            yield "COMPARE_IN", column, [_value(one["value"]) for one in among]


def _column(node: Any, names: set[str]) -> str:
    """The name of a column of a table that has these names; empty for other nodes, and what may be another table's."""
    if node.get("type") != "COLUMN_REF":
        return ""
    *qualified, column = node["column_names"]
    # Another name is that of a table outside of a subquery.
    return column if not qualified or (len(qualified) == 1 and qualified[0] in names) else ""


def _value(value: Any) -> Any:
    if value["is_null"]:
        return None
    if value["type"]["id"] == "DECIMAL":
        return value["value"] / 10 ** value["type"]["type_info"]["scale"]
    return value["value"]


_MEASURES: Final[Mapping[str, Callable[[dict[str, Any], _Scope], _Size]]] = {
    "VALUE_CONSTANT": lambda node, scope: _Size(len(_text(node)) / VALUE_CHARACTERS),
    "COLUMN_REF": lambda node, scope: _Size(scope.column),
    "STAR": lambda node, scope: _Size(max(scope.column, _rest(node, scope).length)),
    "SUBQUERY": lambda node, scope: _rest(node, scope._replace(is_nested=True)),
    "BASE_TABLE": _table,
    "TABLE_FUNCTION": _table_function,
    "SELECT_NODE": _select,
    "RECURSIVE_CTE_NODE": _recursion,
    "CAST": _cast,
    "LAMBDA": _function,
    "FUNCTION": _function,
    "WINDOW": _function,
}
