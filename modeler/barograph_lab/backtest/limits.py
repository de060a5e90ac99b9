"""`barograph backtest limits`: runtimes and time limits of the jobs of a log, each predicted at its submission."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barograph.cli import checked
from barograph.terminal import console
from barograph_lab import history
from barograph_lab.columns import add_subject, count, note, progress_bar, table
from barograph_lab.job_log import lake_jobs, read_jobs
from barograph_lab.studies.limits import PREDICTORS, RISKS, LimitsScore, in_order, score, walk
from barograph_lab.studies.series import BadTable

LIMIT_HEADS = ("limit", "part", "jobs", "risk", "killed", "median over", "mean over", "unused hours")


def add_parser(subjects: Any) -> argparse.ArgumentParser:
    """Add the subject `limits` and its options."""
    parser = add_subject(
        subjects,
        "limits",
        _run,
        help="runtimes and time limits of the jobs of a log",
        description="Predict each job of a scheduler's log at its submission, or of a lake at its begin, from the jobs"
        " that have ended by then.",
        listed="predictors",
        known=((one.name, one.help) for one in PREDICTORS),
    )
    add = parser.add_argument
    log = "a log in Standard Workload Format, gzip if it ends in .gz, unless --lake is given"
    add("file", type=Path, nargs="?", metavar="LOG", help=log)
    risks = checked(_risks, lambda risks: all(0 < one < 1 for one in risks), "numbers between 0 and 1 with commas")
    shares = f"shares of jobs that may exceed their limit (default: {','.join(map(str, RISKS))})"
    add("--risk", type=risks, default=RISKS, metavar="SHARE[,SHARE]", help=shares)
    add("--jobs", type=count, metavar="N", help="the first N jobs in order of submission (default: all)")
    history.add_options(parser)
    add("--json", action="store_true", help="print one JSON object")
    return parser


def _risks(text: str) -> tuple[float, ...]:
    return tuple(sorted({float(one) for one in text.split(",")}))


def _run(options: argparse.Namespace) -> None:
    """Print the scores. Raises BadTable and OSError."""
    if (options.file is None) == (options.lake is None):
        raise BadTable("expected a LOG or --lake, one of them")
    scores: list[LimitsScore] = []
    with progress_bar() as progress:
        progress.add_task("reading", total=None)
        read, skipped = lake_jobs(options) if options.file is None else read_jobs(options.file, progress)
        jobs = in_order(read)[: options.jobs]
        for predictor in PREDICTORS:
            if reason := predictor.missing(jobs):
                scores.append(LimitsScore(predictor.name, "all", reason=reason))
                continue
            positions = progress.track(range(len(jobs)), description=predictor.name)
            forecasts = walk(jobs, predictor.make(options.risk), len(options.risk), positions)
            scores += score(predictor.name, forecasts, jobs, options.risk)
    if failed := sum(job.failed for job in jobs):
        skipped["jobs that failed or were cancelled"] = failed
    for reason, left_out in skipped.items():
        note(f"{left_out:,} {reason} of {options.file or options.lake} are left out")
    if options.json:
        print(json.dumps({"jobs": len(jobs), "skipped": skipped, "scores": [one.json() for one in scores]}))
    else:
        _show(scores, len(jobs))


def _show(scores: Sequence[LimitsScore], jobs: int) -> None:
    rows, limits = [], []
    for one in (one for one in scores if one.part == "all"):
        accuracy = {other.part: other.accuracy for other in scores if other.predictor == one.predictor}
        cells = (_number(accuracy.get(part), ".3f") for part in ("all", "first half", "second half"))
        rows.append([one.predictor, f"{one.jobs:,}", *cells, _number(one.mae, ",.0f")])
    heads = ("predictor", "jobs", "accuracy", "first half", "second half", "MAE, s")
    console().print(table(f"runtimes of {jobs:,} jobs", heads, rows))
    for one in scores:
        is_alike = len({limit[1:] for limit in one.limits}) == 1
        for limit in one.limits[:1] if is_alike else one.limits:
            over = (f"{limit.median_over_request:.2f}", f"{limit.mean_over_request:,.1f}")
            shares = ("any" if is_alike else f"{limit.risk:g}", f"{limit.killed:.4f}")
            limits.append([one.predictor, one.part, f"{limit.jobs:,}", *shares, *over, f"{limit.unused_hours:,.0f}"])
    console().print(table("time limits", LIMIT_HEADS, limits, left=(0, 1)))
    for one in scores:
        if one.reason:
            note(f"{one.predictor}: -, because {one.reason}")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
