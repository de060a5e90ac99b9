"""`barograph status`: prints jobs, their runtime bands and alarms."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from barograph.cli import Parser
from barograph.options import since_argument
from barograph.terminal import console
from barograph.views import queries
from barograph.views.jobs import NAMES, JobQuery, names
from barograph.views.log import Row, limits
from barograph.views.refusal import NothingKnown, OpenedLogs, opened_each, similar
from barograph.views.states import ALARMS, LEGEND, SILENT, shown
from barograph.views.words import figure, json_object, local, number, span, verdict
from barograph_agent.settings import agent, places
from barograph_agent.system.clock import CLOCK
from barograph_collector.client.log_reader import LogReader
from barograph_collector.daemon.service import Exit

MAX_JOBS: Final = 1000
ANSWER_SECONDS: Final = 5.0
MAX_ALARMS: Final = 20
"""Alarms shown of running and of ended jobs each."""
ALARM_DAYS: Final = 7
"""Age in days up to which alarms of ended jobs are shown."""


def jobs(readers: Sequence[LogReader], asked: JobQuery, limit: int) -> list[Row]:
    """The newest jobs, the newest one last, running ones after those that ended.

    readers: of all logs, each of which has the jobs of its collector.
    """
    # No user takes more than half of the lines, unless the user is selected or lines would be left.
    quota = limit if asked.user or asked.name else max(1, limit // 2)
    found = asked.joint(CLOCK.now(), quota, limit).ask(readers, limit)
    if (left := limit - len(found)) and any(row["of_user"] > quota for row in found):
        found = asked.joint(CLOCK.now(), quota + left, limit).ask(readers, limit)
    return [shown(row) for row in found[::-1]]


def jobs_table(found: list[Row], now: float) -> Table:
    """One line per job. now: Unix seconds."""
    table = Table(title="Jobs", title_justify="left")
    for name in ("job", "user", "workload", "ranks", "started", "runtime", "left", "state", "score", "slowdown"):
        table.add_column(name, justify="right" if name in ("ranks", "runtime", "left", "score", "slowdown") else "left")
    for job in found:
        runtime = job["runtime_seconds"]
        table.add_row(
            escape(job["job"]),
            escape(job["user"]),
            escape(job["workload"]),
            str(job["ranks"]),
            local(job["started_at"]),
            "running" if runtime is None else figure(runtime, "s"),
            _left(job, now)[0] if runtime is None else "-",
            job["shown"].word,
            _known(job["score_shown"]),
            _known(job["slowdown_shown"], "x"),
            style="bold red" if job["shown"].name in ALARMS else "",
        )
    return table


def _left(job: Row, now: float) -> tuple[str, str]:
    """What a running job has left by the last row of `predictions`, and its limits, in words; dashes if unknown."""
    if job["expected_seconds"] is None:
        return "-", "-"
    lower, expected, upper = (max(0.0, job["started_at"] + took - now) for took in limits(job))
    return span(expected) if expected else "overdue", f"{span(lower)} to {span(upper)}"


def _known(value: float | None, unit: str = "") -> str:
    return number(value, unit=unit) if value is not None else "-"


def bands_table(logs: OpenedLogs, found: list[Row]) -> Table | None:
    """The runtime bands of the workloads of these jobs; None where there is none."""
    asked = queries.bands(sorted({job["workload"] for job in found}), "kind = 'runtime'")
    bands = asked.ask(logs.readers, MAX_JOBS) if found else []
    table = Table(title="Runtime, 95 % of healthy runs", title_justify="left")
    for name in ("workload", "runs", "lower", "expected", "upper"):
        table.add_column(name, justify="left" if name == "workload" else "right")
    for band in sorted(bands, key=lambda band: str(band["workload"])):
        table.add_row(escape(band["workload"]), str(band["samples"]), *(figure(limit, "s") for limit in limits(band)))
    return table if bands else None


def show_alarms(readers: Sequence[LogReader], console: Console, asked: JobQuery) -> None:
    """Print the alarms of running jobs and those of jobs that ended lately."""
    since = asked.since or CLOCK.now() - ALARM_DAYS * 86400
    when = "" if asked.since else f" in the last {ALARM_DAYS} days"
    found = []
    for ended in (False, True):
        query = replace(asked, ended=ended, since=since if ended else asked.since)
        found.append([row for state in ALARMS for row in jobs(readers, replace(query, state=state), MAX_JOBS)])
    running, over = (f"{len(alarms):,}" if alarms else "none" for alarms in found)
    console.print(f"Alarms: {running} of running jobs, {over} of jobs that ended{when}", highlight=False)
    for row in (row for alarms in found for row in alarms[-MAX_ALARMS:]):
        console.print(f"  {row['job']}: {row['sentence']}", style="bold red", highlight=False, markup=False)


def show_job(console: Console, job: Row, now: float) -> None:
    """Print one job. now: Unix seconds."""
    ended = job["ended_at"] is not None
    left, reach = _left(job, now)
    lines = {
        "job": job["job"],
        "user": job["user"],
        "application": job["app"],
        "workload": job["workload"],
        "ranks": f"{job['ranks']:,}",
        "started": local(job["started_at"]),
        "ended": f"{local(job['ended_at'])}, exit status {job['exit_status']}" if ended else "running",
        **({"runtime": figure(job["runtime_seconds"], "s")} if ended else {"left": f"{left} (95 %: {reach})"}),
        "verdict": f"{job['shown'].word}: {verdict(job['sentence'])}",
    }
    for name, value in lines.items():
        console.print(f"{name:<12} {value}", highlight=False, markup=False, soft_wrap=True)


def check_names(readers: Sequence[LogReader], asked: JobQuery) -> None:
    """Raise NothingKnown, with similar names, for a user, an application or a job that no log has."""
    known = {"user": ("user", asked.user), "application": ("app", asked.app), "job": ("job", asked.name)}
    for noun, (column, value) in known.items():
        if not value:
            continue
        known_names = [str(row["name"]) for row in names(column).ask(readers, NAMES)]
        if value in known_names or (noun == "job" and jobs(readers, asked, 1)):
            continue
        if noun == "job":
            # Numbers of the batch system are typed too.
            known_names += [name.partition("/")[2].partition(".")[0] for name in known_names]
        raise NothingKnown(f"no {noun} {value!r} is in the log{similar(value, known_names)}")


def as_json(job: Row) -> bytes:
    """A job as a JSON object: what the tables show, and more."""
    values = {name: value for name, value in job.items() if name not in ("number", "place", "of_user", "displayed")}
    values |= {"state": job["shown"].name, "score": job["score_shown"], "slowdown": job["slowdown_shown"]}
    for name in ("shown", "score_shown", "slowdown_shown"):
        del values[name]
    return json_object(values)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="barograph status", description="Show jobs, the newest last, their runtime bands, and alarms; or one job."
    )
    places.add_collector_option(parser, agent.endpoint(os.environ), several=True)
    parser.add_argument("job", nargs="?", default="", metavar="JOB", help="a job, or its number in the batch system")
    parser.add_argument("--user", default="", metavar="NAME", help="jobs of this user only")
    parser.add_argument("--app", default="", metavar="NAME", help="jobs of this application only")
    states = [state.name for state in LEGEND if state is not SILENT]
    parser.add_argument("--state", default="", choices=states, help="jobs in this state only")
    parser.add_argument(
        "--since", type=since_argument, default=0.0, metavar="TIME", help="that ended or run since: 2026-05-31, 7d, 12h"
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=20,
        metavar="N",
        help="newest jobs shown, at most 1000 (default: 20)",
    )
    parser.add_argument("--json", action="store_true", help="jobs as JSON, an object per line")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Print the tables; 65 for a name that the log does not have, 69 if a collector does not answer."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not 1 <= options.jobs <= MAX_JOBS:
        parser.error(f"argument --jobs: {options.jobs}, expected 1 to {MAX_JOBS}")
    asked = JobQuery(options.user, options.app, options.state, options.since, name=options.job)
    # Without a terminal, lines are not cut to 80 columns.
    out = console()
    with opened_each(options.collector, ANSWER_SECONDS, read_refused=Exit.UNAVAILABLE) as logs:
        readers = logs.readers
        for reader in readers:
            if trouble := reader.intake_trouble():
                of = f"{reader.endpoint}: " if len(readers) + len(logs.away) > 1 else ""
                print(f"barograph status: {of}{trouble}", file=sys.stderr)
        found = jobs(readers, asked, options.jobs)
        if not found and not logs.away:
            check_names(readers, replace(asked, state="", since=0.0))
        if options.json:
            for job in found:
                sys.stdout.buffer.write(as_json(job) + b"\n")
            sys.stdout.buffer.flush()
        elif options.job and len(found) == 1:
            show_job(out, found[0], CLOCK.now())
        else:
            out.print(jobs_table(found, CLOCK.now()))
            if (bands := bands_table(logs, found)) is not None:
                out.print(bands)
            show_alarms(readers, out, asked)
    return logs.status
