"""`barograph backtest remaining`: how well the remaining time of running jobs is known."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from barograph.cli import checked
from barograph.terminal import console
from barograph_lab import history
from barograph_lab.backtest.alerts import add_runs, workloads
from barograph_lab.backtest.spread import add_options, spread, workers_of
from barograph_lab.columns import CSV_FILE, add_subject, count, percent, table
from barograph_lab.studies.alerts.pairs import MeasuredRun
from barograph_lab.studies.alerts.remaining import METHODS, RemainingError, remaining_errors, simulated_runs, summarize
from barograph_lab.studies.series import BadTable

FEWEST: Final = 10
"""Fewest windows of a run."""
HISTORY: Final = 16
NEWEST: Final = 50
OF_A_FILE: Final = ("file", "value", "by", "run", "order", "join", "disturbed", "healthy")
SIMULATED_WINDOW: Final = 10


def add_parser(subjects: Any) -> argparse.ArgumentParser:
    """Add the subject `remaining` and its options."""
    parser = add_subject(
        subjects,
        "remaining",
        _run,
        help="errors and limits of the remaining time of running jobs",
        description="Ask at 10, 25, 50, 75 and 90 % of each run how much is left, by the other runs of its workload: of"
        " a CSV file, of the lake of a facility, or of simulated programs.",
        listed="methods",
        known=METHODS.items(),
    )
    add = parser.add_argument
    add("file", type=Path, nargs="?", metavar="FILE.csv", help=f"{CSV_FILE}; without it and --lake, runs are simulated")
    add_runs(parser, required=False)
    add("--history", type=count, default=HISTORY, metavar="N", help="most runs to learn from (default: %(default)s)")
    add("--scenarios", type=count, default=20, metavar="N", help="simulated workloads (default: %(default)s)")
    add("--healthy", type=count, metavar="N", help="healthy runs of each, beside 3 disturbed (default: 3, 5 or 9)")
    add("--seed", type=checked(int, lambda seed: seed >= 0, "an integer of at least 0"), default=0, help="of these")
    history.add_options(parser)
    history.add_values(parser, "N times of a run; of more intervals several are added up")
    add("--newest", type=count, default=NEWEST, metavar="N",
        help="with --lake: the newest N runs of a workload (default: %(default)s)")  # fmt: skip
    add_options(parser)
    add("--json", action="store_true", help="print one JSON object: summary and errors")
    return parser


def _run(options: argparse.Namespace) -> None:
    """Print the results. Raises BadTable and OSError."""
    rows = list(_of_lake(options) if options.lake is not None else _of_file(options))
    if not rows:
        source = options.file if options.lake is None else options.lake
        raise BadTable(f"{source}: no run has another of its workload with as many values, expected at least one")
    if options.json:
        print(json.dumps({"summary": summarize(rows), "errors": [asdict(row) for row in rows]}))
    else:
        _show(rows)


def _of_lake(options: argparse.Namespace) -> Iterator[RemainingError]:
    if given := [name for name in OF_A_FILE if getattr(options, name)]:
        what = options.file or f"--{given[0]}"
        raise BadTable(f"--lake with {what}, expected one of them: its workloads are groups of like work")
    task = history.computed(history.runs_of, partial(_errors, options.window, options.history))
    return spread(task, history.parts(options, options.newest), workers_of(options))


def _of_file(options: argparse.Namespace) -> Iterator[RemainingError]:
    window = SIMULATED_WINDOW if options.file is None else options.window
    task = partial(_errors_of_all, window, options.history)
    return spread(task, list(_workloads(options)), workers_of(options))


def _workloads(options: argparse.Namespace) -> Iterator[list[MeasuredRun]]:
    if options.file is None:
        for number in range(options.scenarios):
            yield simulated_runs(number, options.seed, options.healthy)
        return
    missing = [f"--{name}" for name in ("value", "by", "run") if not getattr(options, name)]
    if missing:
        raise BadTable(
            f"{options.file} without {', '.join(missing)}, expected the columns of times, workloads and runs"
        )
    yield from workloads(options, FEWEST).values()


def _errors_of_all(window: int, most: int, workloads: Sequence[Sequence[MeasuredRun]]) -> Iterator[RemainingError]:
    for runs in workloads:
        yield from _errors(window, most, runs)


def _errors(window: int, most: int, runs: Sequence[MeasuredRun]) -> Iterator[RemainingError]:
    """Of the runs of a workload that are long enough."""
    yield from remaining_errors([one for one in runs if len(one.values) >= FEWEST * window], window, most)


def _show(rows: Sequence[RemainingError]) -> None:
    heads = ("asked at", "method", "answers", "median error", "mean error", "coverage of 95 %", "median width")
    summary = summarize(rows)
    for kind in dict.fromkeys(row["runs"] for row in summary):
        cells = (
            (
                f"{row['share']:.0%}",
                row["method"],
                str(row["answers"]),
                *(percent(row[key]) for key in ("median_error", "mean_error", "coverage_95", "median_width")),
            )
            for row in summary
            if row["runs"] == kind
        )
        console().print(table(f"{kind} runs: errors and widths as shares of the run", heads, cells, left=(1,)))
