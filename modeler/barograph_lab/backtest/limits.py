"""`barograph backtest limits`: runtimes and time limits of the jobs of a log, each predicted at its submission."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any, Final

import numpy as np

from barograph.cli import checked
from barograph.terminal import console
from barograph_lab import history
from barograph_lab.columns import add_subject, count, note, progress_bar, table
from barograph_lab.job_log import lake_jobs, read_jobs
from barograph_lab.studies.limits.logged_job import RISKS
from barograph_lab.studies.limits.rivals import OURS, PREDICTORS
from barograph_lab.studies.limits.score import LimitScore, LimitsScore, Truth, not_computed, score
from barograph_lab.studies.limits.walk import in_order, walk
from barograph_lab.studies.series import BadTable

TOLERANCE: Final = 0.2
"""How far a share may be from the one asked for, as a share of that."""


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
    add(
        "--risk",
        type=checked(_risks, lambda risks: all(0 < one < 1 for one in risks), "numbers between 0 and 1 with commas"),
        default=RISKS,
        metavar="SHARE[,SHARE]",
        help=f"shares of jobs that may exceed their limit (default: {','.join(map(str, RISKS))})",
    )
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
    risks = options.risk
    scores: list[LimitsScore] = []
    with progress_bar() as progress:
        progress.add_task("reading", total=None)
        read, skipped = lake_jobs(options) if options.file is None else read_jobs(options.file, progress)
        jobs = in_order(read)[: options.jobs]
        truth, failed = Truth(jobs), np.array([job.failed for job in jobs])
        submitted = [one.submitted for one in jobs]
        for predictor in PREDICTORS:
            if reason := predictor.missing(submitted):
                scores.append(not_computed(predictor.name, reason))
                continue
            positions = progress.track(range(len(jobs)), description=predictor.name)
            forecasts = walk(jobs, predictor.make(risks), len(risks), positions)
            forecasts.seconds[failed] = np.nan
            scores += score(predictor.name, forecasts, truth, risks)
    for one in (one for one in scores if one.predictor == OURS and one.part == "all"):
        for reason in filter(None, map(_missed, one.limits)):
            note(f"{one.predictor}: {reason}")
    if failed.any():
        skipped["jobs that failed or were cancelled"] = int(failed.sum())
    for reason, left_out in skipped.items():
        note(f"{left_out:,} {reason} of {options.file or options.lake} are left out")
    if options.json:
        print(json.dumps({"jobs": len(jobs), "skipped": skipped, "scores": [asdict(one) for one in scores]}))
    else:
        _show(scores, len(jobs))


def _show(scores: Sequence[LimitsScore], jobs: int) -> None:
    parts = ("all", "first half", "second half")
    rows = []
    for one in (one for one in scores if one.part == "all"):
        accuracy = {other.part: other.accuracy for other in scores if other.predictor == one.predictor}
        cells = (_number(accuracy.get(part), ".3f") for part in parts)
        rows.append([one.predictor, f"{one.jobs:,}", *cells, _number(one.mae, ",.0f")])
    heads = ("predictor", "jobs", "accuracy", "first half", "second half", "MAE, s")
    console().print(table(f"runtimes of {jobs:,} jobs", heads, rows))
    rows = []
    for one in (one for one in scores if one.limits):
        alike = len({astuple(limit)[1:] for limit in one.limits}) == 1
        for limit in one.limits[:1] if alike else one.limits:
            over = (f"{limit.median_over_request:.2f}", f"{limit.mean_over_request:,.1f}")
            shares = ("any" if alike else f"{limit.risk:g}", f"{limit.killed:.4f}", _number(limit.burst, ","))
            rows.append([one.predictor, one.part, f"{limit.jobs:,}", *shares, *over, f"{limit.unused_hours:,.0f}"])
    limit_heads = (
        "limit",
        "part",
        "jobs",
        "risk",
        "killed",
        "in one burst",
        "median over",
        "mean over",
        "unused hours",
    )
    console().print(table("time limits", limit_heads, rows, left=(0, 1)))
    for one in scores:
        if one.reason:
            note(f"{one.predictor}: -, because {one.reason}")


def _missed(limit: LimitScore) -> str:
    """Why the share asked for was not held, if it was not and one burst of jobs explains it."""
    killed, asked = limit.killed * limit.jobs, limit.risk * limit.jobs
    is_missed = killed > (1 + TOLERANCE) * asked
    if not is_missed or not limit.burst or limit.burst < max(TOLERANCE * asked, killed - (1 + TOLERANCE) * asked):
        return ""
    return (
        f"{killed:,.0f} jobs exceeded their limit at risk {limit.risk:g}, {asked:,.0f} were asked for: {limit.burst:,}"
        " are of one user, who submitted them before the first of them exceeded its limit"
    )


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
