"""`barograph sql "SELECT ..."`: runs a query in the collector, and prints the rows as a table, CSV or JSON."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.csv
from rich.console import Console
from rich.table import Table
from rich.text import Text

from barograph.views.log import arrow_of
from barograph.views.refusal import NoResult, opened_each
from barograph_agent.protocol.wire import Result
from barograph_agent.settings import agent, places
from barograph_collector.storage.connection import first_line

COLLECTOR: Final = "collector"
"""The column with the address of the collector that has a row, where there are several."""


def as_table(rows: pa.Table) -> Table:
    """Rows for a terminal: numbers right-aligned, control characters escaped."""
    table = Table()
    for field in rows.schema:
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        table.add_column(Text(field.name), justify="right" if is_number else "left")
    for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        table.add_row(*(Text(_cell(value)) for value in row))
    return table


def as_json(rows: pa.Table) -> bytes:
    """Rows as one JSON array of objects, one row per line. Values without a JSON equivalent, such as nan, are null."""
    lines = (msgspec.json.encode(row, enc_hook=str) for row in rows.to_pylist())
    return b"[" + b",\n ".join(lines) + b"]\n"


def as_csv(rows: pa.Table) -> bytes:
    """Rows as CSV with a header; lists and structs as JSON."""
    flat = [
        pa.array([msgspec.json.encode(value, enc_hook=str).decode() for value in column.to_pylist()])
        if pa.types.is_nested(column.type)
        else column
        for column in rows.columns
    ]
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(pa.table(flat, rows.column_names), sink)
    text: bytes = sink.getvalue().to_pybytes()
    return text


def of_all(answers: Mapping[str, Result], several: bool, merge: str | None) -> pa.Table:
    """The rows of all answers, by collector. several: in a column `collector` there is its address.

    merge: a SELECT over `parts`, which are these rows. Raises ArrowException and duckdb.Error.
    """
    parts = {endpoint: arrow_of(answer) for endpoint, answer in answers.items()}
    if several:
        for endpoint, part in parts.items():
            if COLLECTOR in part.column_names:
                raise NoResult(f"the result has a column {COLLECTOR!r}, expected another name: it has the address")
            parts[endpoint] = part.add_column(0, COLLECTOR, pa.array([endpoint] * part.num_rows, pa.string()))
    rows = pa.concat_tables(parts.values(), promote_options="permissive")
    if merge is None:
        return rows
    with duckdb.connect(config={"enable_external_access": False}) as connection:
        connection.register("parts", rows)
        return connection.execute(merge).to_arrow_table()


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    # Six digits suffice for ratios; Unix seconds need more.
    text = (f"{value:.6g}" if abs(value) < 1e6 else f"{value:.3f}") if isinstance(value, float) else str(value)
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def main(arguments: Sequence[str]) -> int:
    """Print the rows; 65 if the query is refused, 69 if a collector does not answer."""
    parser = argparse.ArgumentParser(prog="barograph sql", description="Query the log with one SELECT.")
    parser.add_argument("query", help="the SELECT, in DuckDB's SQL; `SHOW TABLES` lists the tables")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="comma-separated values instead of a table")
    form.add_argument("--json", action="store_true", help="a JSON array instead of a table")
    parser.add_argument("--limit", type=int, default=1000, metavar="N", help="limit of rows (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="time limit (default: %(default)s)")
    over = "a SELECT over `parts`, the rows of all collectors, each with its address in `collector`"
    parser.add_argument("--merge", metavar="SELECT", help=over)
    places.add_collector_option(parser, agent.endpoint(os.environ), several=True)
    options = parser.parse_args(arguments)
    if options.limit < 1:
        parser.error(f"argument --limit: {options.limit}, expected at least 1")
    if not options.seconds > 0:
        parser.error(f"argument --seconds: {options.seconds:g}, expected more than 0")
    with opened_each(options.collector, 5.0) as logs:
        answers = {
            reader.endpoint: reader.query(options.query, options.limit, options.seconds) for reader in logs.readers
        }
    try:
        rows = of_all(answers, len(answers) + len(logs.away) > 1, options.merge)
    except (pa.ArrowException, duckdb.Error) as error:
        raise NoResult(f"cannot join what the collectors have answered: {first_line(error)}") from None
    if options.csv or options.json:
        sys.stdout.buffer.write(as_csv(rows) if options.csv else as_json(rows))
        sys.stdout.buffer.flush()
    else:
        Console(width=None if sys.stdout.isatty() else 1000).print(as_table(rows))
    for endpoint, answer in answers.items():
        if answer.more:
            of = f" of {endpoint}" if len(answers) > 1 else ""
            print(f"barograph sql: the first {answer.rows} rows{of}; --limit takes more", file=sys.stderr)
    return logs.status
