"""`barograph export`: writes rows of the log to a file for other tools, atomically."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from barograph.cli import CommandError
from barograph.commands import extrap
from barograph.commands.sql import COLLECTOR
from barograph.options import identifier, since_argument
from barograph.views.jobs import NAMES, names
from barograph.views.log import arrow_of
from barograph.views.refusal import NoResult, opened_all, similar
from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES, Kind
from barograph_agent.settings import agent, places
from barograph_agent.system.disk import DISK
from barograph_collector.client.log_reader import LogReader
from barograph_collector.daemon.service import Exit

_TIMES: Final = ("ended_at", "started_at", "fitted_at", "at")
"""Candidate time columns; the first one that a table has is its time."""


class NotExportable(NoResult):
    """A selection that the log cannot serve. The text names it and what was expected."""


class Selection:
    """Rows of a table: those since a time, in Unix seconds, or of one application's jobs, or both."""

    def __init__(self, reader: LogReader, table: str, since: float | None, app: str | None) -> None:
        """Queries the number of rows and the first offset. Raises NotExportable, LogUnavailable and ReadRefused."""
        columns = TABLES[table].columns
        self.table = table
        self.collector = reader.endpoint
        self._since = since
        self._time = next((name for name in _TIMES if columns.get(name) is Kind.F64), "")
        if since is not None and not self._time:
            raise NotExportable(f"table {table!r} has no time, expected no --since")
        if app and "job" not in columns:
            with_job = ", ".join(name for name, held in TABLES.items() if "job" in held.columns)
            raise NotExportable(f"table {table!r} has no job, expected no --app or one of {with_job}")
        self._jobs = pa.array(_jobs_of(reader, app), pa.string()) if app else None
        conditions = [] if since is None else [f'"{self._time}" >= {since!r}']
        if app:
            conditions.append(f"job IN (SELECT job FROM jobs WHERE app = '{app}')")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        query = f'SELECT count(*), coalesce(min("offset") - 1, 0) FROM "{table}"{where}'
        self.rows, self._before = (column[0].as_py() for column in arrow_of(reader.query(query, seconds=60.0)).columns)
        self._reader = reader

    def pages(self) -> Iterator[pa.Table]:
        """The rows in log order, by page, including those appended since the selection was made."""
        schema = schema_of(self.table)
        for batch in self._reader.read_all(self.table, self._before) if self.rows else ():
            page = pa.table([pa.array(batch.columns[field.name], field.type) for field in schema], schema)
            if self._since is not None:
                page = page.filter(pc.greater_equal(page[self._time], self._since))
            if self._jobs is not None:
                page = page.filter(pc.is_in(page["job"], self._jobs))
            yield page


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, which replaces `path` on success and is removed on failure."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.touch()  # its OSError has a shorter text than pyarrow's
        yield partial
        with partial.open("rb") as written:
            DISK.sync(written.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_rows(selections: Sequence[Selection], path: Path, form: str, progress: Callable[[int], None]) -> int:
    """Write selections of one table as `parquet` or `csv`; returns the number of rows.

    Those of several collectors have the address of each in a first column `collector`.
    """
    schema = schema_of(selections[0].table)
    if len(selections) > 1:
        schema = schema.insert(0, pa.field(COLLECTOR, pa.string()))
    rows = 0
    made = pa.csv.CSVWriter if form == "csv" else functools.partial(pa.parquet.ParquetWriter, compression="zstd")
    with made(path, schema) as writer:
        for selection in selections:
            for page in selection.pages():
                if len(selections) > 1:
                    named = pa.array([selection.collector] * page.num_rows, pa.string())
                    page = page.add_column(0, schema.field(0), named)  # noqa: PLW2901 - the same rows
                writer.write_table(page)
                rows += page.num_rows
                progress(rows)
    return rows


def schema_of(table: str) -> pa.Schema:
    """The Arrow schema of a table, with its `offset`."""
    kinds = TABLES[table].columns.items()
    types = ((name, pa.string() if kind.is_text else pa.from_numpy_dtype(kind.dtype)) for name, kind in kinds)
    return pa.schema([("offset", pa.int64()), *types])


def _jobs_of(reader: LogReader, app: str) -> list[str]:
    answer = reader.query(f"SELECT DISTINCT job FROM jobs WHERE app = '{app}'", wire.MAX_SQL_ROWS, wire.MAX_SQL_SECONDS)
    if answer.more:
        raise NotExportable(
            f"app {app!r} has more than {wire.MAX_SQL_ROWS} jobs, expected fewer: export all and filter there"
        )
    jobs: list[str] = arrow_of(answer)["job"].to_pylist()
    return jobs


def _check_app(readers: Sequence[LogReader], app: str) -> None:
    """Raises NotExportable, with similar names, for an application that no log has."""
    known = [str(row["name"]) for row in names("app").ask(readers, NAMES)]
    if app not in known and not any(_jobs_of(reader, app) for reader in readers):
        raise NotExportable(
            f"app {app!r} has no jobs in the log, expected one that `barograph status` shows{similar(app, known)}"
        )


def _export(options: argparse.Namespace, readers: Sequence[LogReader], console: Console) -> str:
    """Write the file; returns a description of its content."""
    with replaced(options.output) as path:
        if options.format == "extrap":
            lines = extrap.write(readers, path, options.app, options.since)
            if not lines:
                raise NotExportable(f"app {options.app!r} has no run that ended well, expected at least one")
            return f"{lines:,} measurements"
        if options.app:
            _check_app(readers, options.app)
        selections = [Selection(reader, options.table, options.since, options.app) for reader in readers]
        bars = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*bars, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(options.table, total=sum(one.rows for one in selections))
            rows = write_rows(selections, path, options.format, lambda done: progress.update(task, completed=done))
        return f"{rows:,} rows of {options.table}"


def main(arguments: Sequence[str]) -> int:
    """Write a file; 65 without such rows, 69 if a collector does not answer, 73 if the file cannot be written."""
    parser = argparse.ArgumentParser(prog="barograph export", description="Write rows of the log to a file.")
    parser.add_argument("table", nargs="?", choices=list(TABLES), help="the table; not with --format extrap")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="replaced after a complete export")
    parser.add_argument("--format", choices=("parquet", "csv", "extrap"), default="parquet", help="(default: parquet)")
    parser.add_argument("--since", type=since_argument, metavar="TIME", help="only newer rows: 2026-05-31, 7d, 12h")
    parser.add_argument("--app", type=identifier, metavar="NAME", help="only rows of this application's jobs")
    places.add_collector_option(parser, agent.endpoint(os.environ), several=True)
    options = parser.parse_args(arguments)
    if (options.table is None) != (options.format == "extrap"):
        parser.error("expected a table or --format extrap, one of the two")
    if options.format == "extrap" and not options.app:
        parser.error("--format extrap needs --app: one file models one application")
    try:
        # A file that lacks the rows of one collector would be taken for a whole one.
        with opened_all(options.collector, 20.0) as readers:
            wrote = _export(options, readers, Console(stderr=True))
    except OSError as error:
        raise CommandError(f"cannot write {options.output}: {error.strerror}", Exit.STATE) from None
    print(f"{options.output}: {wrote}")
    return Exit.OK
