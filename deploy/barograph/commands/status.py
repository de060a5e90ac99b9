"""`barograph status`: prints jobs, bands and alarms as tables."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from barograph.views.log import Row, limits, rows
from barograph.views.refusal import opened
from barograph.views.states import ALARMS
from barograph.views.words import figure, local
from barograph_agent.protocol.wire import Column
from barograph_agent.settings import agent, places
from barograph_collector.client.log_reader import LogReader
from barograph_collector.daemon.service import Exit

TAIL: Final = 2000
"""Number of newest rows read from each table."""


def latest(columns: Mapping[str, Column], *key: str) -> dict[tuple[Any, ...], Row]:
    """The last row for each value of the key columns."""
    return {tuple(row[name] for name in key): row for row in rows(columns)}


def jobs_table(jobs: list[Row], groups: Mapping[Any, Row], runs: Mapping[Any, Row], scores: Mapping[Any, Row]) -> Table:
    """The jobs with their groups of like work, runtimes, states and scores."""
    table = Table(title="Jobs", title_justify="left")
    for name in ("job", "workload", "ranks", "started", "runtime", "state", "score", "slowdown"):
        table.add_column(name, justify="right" if name in ("ranks", "runtime", "score", "slowdown") else "left")
    for job in jobs:
        key = (job["job"],)
        run, score = runs.get(key), scores.get(key)
        style = "bold red" if score and score["state"] in ALARMS else ""
        table.add_row(
            job["job"],
            groups.get(key, job)["workload"],
            str(job["ranks"]),
            local(job["started_at"]),
            figure(run["runtime_seconds"], "s") if run else "running",
            score["state"] if score else "unknown",
            figure(score["score"]) if score else "-",
            figure(score["slowdown"], "x") if score else "-",
            style=style,
        )
    return table


def bands_table(bands: list[Row]) -> Table:
    """The runtime bands of the workloads."""
    table = Table(title="Runtime, 95 % of healthy runs", title_justify="left")
    for name in ("workload", "runs", "lower", "expected", "upper"):
        table.add_column(name, justify="left" if name == "workload" else "right")
    for band in bands:
        table.add_row(band["workload"], str(band["samples"]), *(figure(limit, "s") for limit in limits(band)))
    return table


def show(reader: LogReader, console: Console, limit: int) -> None:
    """Print the tables."""
    jobs = list(rows(reader.read("jobs", -limit).columns))
    runs = latest(reader.read("runs", -TAIL).columns, "job")
    scores = latest(reader.read("scores", -TAIL).columns, "job")
    bands = latest(reader.read("bands", -TAIL).columns, "workload", "class_id", "method")
    runtimes = [band for band in bands.values() if band["kind"] == "runtime"]
    groups = latest(reader.read("assignments", -TAIL).columns, "job")
    console.print(jobs_table(jobs, groups, runs, scores))
    console.print(bands_table(runtimes))
    console.print(f"{len(bands) - len(runtimes)} interval bands in the newest {TAIL} rows of the log")
    alarms = [row for row in scores.values() if row["state"] in ALARMS and not row["job"].startswith("canary/")]
    console.print(f"Alarms: {len(alarms) or 'none'}")
    for row in alarms:
        console.print(f"  {row['job']}: {row['sentence']}", style="bold red", highlight=False)


def main(arguments: Sequence[str]) -> int:
    """Print the tables; 69 if no collector answers."""
    parser = argparse.ArgumentParser(prog="barograph status", description="Show jobs, bands and alarms.")
    places.add_collector_option(parser, agent.endpoint(os.environ))
    parser.add_argument("--jobs", type=int, default=20, metavar="N", help="newest jobs shown (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"argument --jobs: {options.jobs}, expected at least 1")
    # Without a terminal, lines are not cut to 80 columns.
    console = Console(width=None if sys.stdout.isatty() else 160)
    with opened(options.collector, 5.0, read_refused=Exit.UNAVAILABLE) as reader:
        show(reader, console, options.jobs)
    return Exit.OK
