"""`barograph backtest parts`: runtimes from phases of small runs, on simulated programs of up to 65,536 ranks."""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from barograph.lab.columns import add_subject, console, count, percent, progress_bar, table
from barograph_modeler.studies.parts.noise import read_noise
from barograph_modeler.studies.parts.scenario import LEARNED, TARGETS
from barograph_modeler.studies.parts.study import ScenarioError, study, summarize

MODELS = (
    ("parts", "ours: own work, its maximum over ranks, point-to-point and collectives of each call-site class"),
    ("barograph", "ours: the predictor of the total, which refuses beyond 100 times the largest scale"),
    ("amdahl-log", "s + w/p + c log p, from the totals of the problem that is asked for"),
)


def add_parser(subjects: Any) -> argparse.ArgumentParser:
    """Add the subject `parts` and its options."""
    parser = add_subject(
        subjects,
        "parts",
        _run,
        help="errors of runtimes from measured phases, on simulated programs",
        description=f"Simulate programs on {LEARNED[0]} to {LEARNED[-1]} ranks, learn what Barograph would measure, and"
        f" predict their time on {TARGETS[0]} to {TARGETS[-1]} ranks.",
        listed="models",
        known=MODELS,
    )
    add = parser.add_argument
    add("--scenarios", type=count, default=20, metavar="N", help="simulated programs (default: %(default)s)")
    add("--seed", type=int, default=0, help="of the scenarios (default: %(default)s)")
    add(
        "--noise",
        type=Path,
        metavar="FILE.csv",
        help="traces of the system's noise: trace_no and sum_us per window of 10 ms, or mean_sum_us_10ms, p99_sum_us"
        " and max_sum_us per trace (default: synthetic)",
    )
    add("--json", action="store_true", help="print one JSON object: summary and predictions")
    add("--plot", type=Path, metavar="FILE.png", help="draw the parts of the predicted time over ranks")
    return parser


def _run(options: argparse.Namespace) -> None:
    """Print the results. Raises BadTable and OSError."""
    traces = read_noise(options.noise) if options.noise is not None else []
    with progress_bar() as progress:
        scenarios = progress.add_task("scenarios", total=options.scenarios)
        done = functools.partial(progress.advance, scenarios)
        rows = list(study(options.scenarios, options.seed, traces, done))
    if options.plot is not None:
        from barograph_modeler.studies.parts.plot import plot_parts

        plot_parts(rows, options.plot)
    if options.json:
        print(json.dumps({"summary": summarize(rows), "predictions": [asdict(row) for row in rows]}))
    else:
        _show(rows)


def _show(rows: Sequence[ScenarioError]) -> None:
    heads = ("ranks", "model", "runs", "refused", "median APE", "mean APE", "coverage of 95 %")
    cells = (
        (
            "all" if row["ranks"] is None else str(row["ranks"]),
            row["model"],
            str(row["runs"]),
            str(row["refused"]),
            percent(row["median_ape"]),
            percent(row["mean_ape"]),
            percent(row["coverage_95"]),
        )
        for row in summarize(rows)
    )
    console().print(table("errors over scenarios", heads, cells, left=(1,)))
