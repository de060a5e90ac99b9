"""`barograph sql "SELECT ..."`: runs a query in the collector, and prints the rows as a table, CSV or JSON."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
from rich.console import Console
from rich.table import Table
from rich.text import Text

from barograph.views.log import arrow_of
from barograph.views.refusal import opened
from barograph_agent.settings import agent, places
from barograph_collector.daemon.service import Exit


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


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    # Six digits suffice for ratios; Unix seconds need more.
    text = (f"{value:.6g}" if abs(value) < 1e6 else f"{value:.3f}") if isinstance(value, float) else str(value)
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def main(arguments: Sequence[str]) -> int:
    """Print the rows; 65 if the query is refused, 69 if no collector answers."""
    parser = argparse.ArgumentParser(prog="barograph sql", description="Query the log with one SELECT.")
    parser.add_argument("query", help="the SELECT, in DuckDB's SQL; `SHOW TABLES` lists the tables")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="comma-separated values instead of a table")
    form.add_argument("--json", action="store_true", help="a JSON array instead of a table")
    parser.add_argument("--limit", type=int, default=1000, metavar="N", help="limit of rows (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="time limit (default: %(default)s)")
    places.add_collector_option(parser, agent.endpoint(os.environ))
    options = parser.parse_args(arguments)
    if options.limit < 1:
        parser.error(f"argument --limit: {options.limit}, expected at least 1")
    if not options.seconds > 0:
        parser.error(f"argument --seconds: {options.seconds:g}, expected more than 0")
    with opened(options.collector, 5.0) as reader:
        answer = reader.query(options.query, options.limit, options.seconds)
    rows = arrow_of(answer)
    if options.csv or options.json:
        sys.stdout.buffer.write(as_csv(rows) if options.csv else as_json(rows))
        sys.stdout.buffer.flush()
    else:
        Console(width=None if sys.stdout.isatty() else 1000).print(as_table(rows))
    if answer.more:
        print(f"barograph sql: the first {answer.rows} rows; --limit takes more", file=sys.stderr)
    return Exit.OK
