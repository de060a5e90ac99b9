"""`barograph sql "SELECT ..."`: runs a query in the collector, and prints or writes the rows."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from rich.table import Table
from rich.text import Text

from barograph.cli import CommandError, Parser
from barograph.commands.output_file import SUFFIXES, flat, json_lines, write
from barograph.terminal import console
from barograph.views.log import arrow_of
from barograph.views.refusal import NoResult, opened, opened_each
from barograph_agent.protocol import wire
from barograph_agent.protocol.wire import Result
from barograph_agent.settings import agent, places
from barograph_collector.client.log_reader import LogReader
from barograph_collector.daemon.service import Exit
from barograph_collector.storage.connection import reason_of

COLLECTOR: Final = "collector"
"""The column with the address of the collector that has a row, where there are several."""
PAGE_ROWS: Final = 10_000
"""Rows of a page of a file: the widest table has 3 MB in so many."""


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
    """Rows as one JSON array of objects, one row per line."""
    return b"[" + b",\n ".join(json_lines(rows)) + b"]\n"


def pages(reader: LogReader, query: str, seconds: float, page_rows: int = PAGE_ROWS) -> Iterator[pa.Table]:
    """All rows of a query; with a column `log_offset` in its order and `page_rows` at a time, so in any number.

    seconds: for each page. Raises NoResult for more than MAX_SQL_ROWS without such a column, and ReadRefused.
    """

    def whole(text: str, rows: int) -> Result:
        if (answer := reader.query(text, rows, seconds)).note:
            raise NoResult(f"the file would lack rows: {answer.note}")
        return answer

    within = query.rstrip("; \t\n")
    paged = "log_offset" in arrow_of(reader.query(query, 1, seconds)).column_names
    # Rows of an outer join may have none.
    if not paged or reader.query(f"SELECT 1 FROM ({within}\n) WHERE coalesce(log_offset, -1) < 0", 1, seconds).rows:
        answer = whole(query, wire.MAX_SQL_ROWS)
        if answer.more:
            expected = "a column `log_offset`, in whose order any number is read"
            raise NoResult(f"the result has more than {wire.MAX_SQL_ROWS} rows, expected fewer or {expected}")
        yield arrow_of(answer)
        return
    offset, more = -1, True
    while more:
        text = f"SELECT * FROM ({within}\n) WHERE log_offset > {offset} ORDER BY log_offset"
        answer = whole(text, page_rows)
        page, more = arrow_of(answer), answer.more
        if more:
            # A join may have several rows of one offset, of which the page has some.
            offset = page["log_offset"][-1].as_py() - 1
            page = page.filter(pc.less_equal(page["log_offset"], offset))
            if not page.num_rows:
                raise NoResult(f"more than {page_rows} rows have log_offset {offset + 1}, expected fewer")
        yield page


def of_collector(rows: pa.Table, endpoint: str) -> pa.Table:
    """Rows with the address of their collector in a first column. Raises NoResult if they have one of that name."""
    if COLLECTOR in rows.column_names:
        raise NoResult(f"the result has a column {COLLECTOR!r}, expected another name: it has the address")
    return rows.add_column(0, COLLECTOR, pa.array([endpoint] * rows.num_rows, pa.string()))


def of_all(answers: Mapping[str, Result], several: bool, merge: str | None) -> pa.Table:
    """The rows of all answers, by collector. several: in a column `collector` there is its address.

    merge: a SELECT over `parts`, which are these rows. Raises ArrowException and duckdb.Error.
    """
    parts = {endpoint: arrow_of(answer) for endpoint, answer in answers.items()}
    if several:
        parts = {endpoint: of_collector(part, endpoint) for endpoint, part in parts.items()}
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


def _output_file(text: str) -> Path:
    if (path := Path(text)).suffix not in SUFFIXES:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a name that ends with {' or '.join(SUFFIXES)}")
    return path


def _write(options: argparse.Namespace) -> int:
    """Write the rows of all collectors to a file, or none."""
    # A file that lacks the rows of one collector would be taken for a whole one.
    with ExitStack() as stack:
        readers = [stack.enter_context(opened(one, options.seconds)) for one in places.endpoints(options.collector)]
        several = len(readers) > 1
        every = (
            of_collector(page, reader.endpoint) if several else page
            for reader in readers
            for page in pages(reader, options.query, options.seconds)
        )
        try:
            rows = write(options.output, every)
        except OSError as error:
            raise CommandError(f"cannot write {options.output}: {error.strerror}", Exit.STATE) from None
        except pa.ArrowException as error:
            raise NoResult(f"cannot write {options.output}: {reason_of(error)}") from None
    print(f"{options.output}: {rows:,} rows")
    return Exit.OK


def main(arguments: Sequence[str]) -> int:
    """Print or write the rows; 65 if the query is refused, 69 if a collector does not answer, 73 for the file."""
    parser = Parser(prog="barograph sql", description="Query the log with one SELECT.")
    parser.add_argument("query", help="the SELECT, in DuckDB's SQL; `SHOW TABLES` lists the tables")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="comma-separated values instead of a table")
    form.add_argument("--json", action="store_true", help="a JSON array instead of a table")
    written = f"replace FILE ({', '.join(SUFFIXES)}) by all rows, of any number if the query has `log_offset`"
    form.add_argument("--output", type=_output_file, metavar="FILE", help=written)
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
    if options.output is not None:
        if options.merge is not None:
            parser.error("argument --merge: not allowed with argument --output")
        return _write(options)
    with opened_each(options.collector, 5.0) as logs:
        answers = {
            reader.endpoint: reader.query(options.query, options.limit, options.seconds) for reader in logs.readers
        }
    try:
        rows = of_all(answers, len(answers) + len(logs.away) > 1, options.merge)
    except (pa.ArrowException, duckdb.Error) as error:
        raise NoResult(f"cannot join what the collectors have answered: {reason_of(error)}") from None
    if options.csv:
        pa.csv.write_csv(flat(rows), sys.stdout.buffer)
    elif options.json:
        sys.stdout.buffer.write(as_json(rows))
    else:
        console().print(as_table(rows))
    for endpoint, answer in answers.items():
        if answer.more:
            of = f" of {endpoint}" if len(answers) > 1 else ""
            print(f"barograph sql: the first {answer.rows} rows{of}; --limit takes more", file=sys.stderr)
    return logs.status
