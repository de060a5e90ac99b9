"""`barograph backtest remaining`: how well the remaining time of running jobs is known."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from barograph.cli import checked
from barograph.lab.backtest.alerts import add_runs, workloads
from barograph.lab.columns import CSV_FILE, add_subject, console, count, percent, table
from barograph_alerts.studies.pairs import MeasuredRun
from barograph_alerts.studies.remaining import METHODS, RemainingError, remaining_errors, simulated_runs, summarize
from barograph_modeler.studies.series import BadTable

FEWEST: Final = 10
"""Fewest windows of a run."""
HISTORY: Final = 16
SIMULATED_WINDOW: Final = 10


def add_parser(subjects: Any) -> argparse.ArgumentParser:
    """Add the subject `remaining` and its options."""
    parser = add_subject(
        subjects,
        "remaining",
        _run,
        help="errors and limits of the remaining time of running jobs",
        description="Ask at 10, 25, 50, 75 and 90 % of each run how much is left, by the other runs of its workload: of"
        " a CSV file, or of simulated programs.",
        listed="methods",
        known=METHODS.items(),
    )
    add = parser.add_argument
    add("file", type=Path, nargs="?", metavar="FILE.csv", help=f"{CSV_FILE}; without one, runs are simulated")
    add_runs(parser, required=False)
    add("--history", type=count, default=HISTORY, metavar="N", help="most runs to learn from (default: %(default)s)")
    add("--scenarios", type=count, default=20, metavar="N", help="simulated workloads (default: %(default)s)")
    add("--healthy", type=count, metavar="N", help="healthy runs of each, beside 3 disturbed (default: 3, 5 or 9)")
    add("--seed", type=checked(int, lambda seed: seed >= 0, "an integer of at least 0"), default=0, help="of these")
    add("--json", action="store_true", help="print one JSON object: summary and errors")
    return parser


def _run(options: argparse.Namespace) -> None:
    """Print the results. Raises BadTable and OSError."""
    rows = [row for runs, window in _workloads(options) for row in remaining_errors(runs, window, options.history)]
    if not rows:
        raise BadTable(f"{options.file}: no run has another of its workload with as many values, expected at least one")
    if options.json:
        print(json.dumps({"summary": summarize(rows), "errors": [asdict(row) for row in rows]}))
    else:
        _show(rows)


def _workloads(options: argparse.Namespace) -> Iterator[tuple[Sequence[MeasuredRun], int]]:
    if options.file is None:
        for number in range(options.scenarios):
            yield simulated_runs(number, options.seed, options.healthy), SIMULATED_WINDOW
        return
    missing = [f"--{name}" for name in ("value", "by", "run") if not getattr(options, name)]
    if missing:
        raise BadTable(
            f"{options.file} without {', '.join(missing)}, expected the columns of times, workloads and runs"
        )
    for runs in workloads(options, FEWEST).values():
        yield runs, options.window


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
