"""`barograph backtest scaling`: fit scaling models to the smaller scales of each workload, score the larger ones."""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from barograph.cli import checked
from barograph.terminal import console
from barograph_lab import history
from barograph_lab.columns import CSV_FILE, add_subject, names, note, percent, selected, table
from barograph_lab.studies.rivals.laws import MODELS as LAWS
from barograph_lab.studies.rivals.laws import with_copies
from barograph_lab.studies.scaling.accuracy import ModelAccuracy, fit_all, score, summarize
from barograph_lab.studies.scaling.models import models
from barograph_lab.studies.scaling.workloads import (
    ScalingWorkload,
    WorkloadSplit,
    all_but_largest,
    lower_half,
    read_workloads,
    split,
)
from barograph_lab.studies.series import BadTable, Columns
from barograph_modeler.scaling.history import Runs

LOWER_HALF: Final = "lower-half"
RULES: Final = {LOWER_HALF: lower_half, "all-but-largest": all_but_largest}
FEWEST_SCALES: Final = 6
OF_A_FILE: Final = ("file", "time", "ranks", "by", "nodes", "test")


def add_parser(subjects: Any) -> argparse.ArgumentParser:
    """Add the subject `scaling` and its options."""
    parser = add_subject(
        subjects,
        "scaling",
        _run,
        help="errors of scaling models at larger scales",
        description="Fit every model to the runs of each workload at smaller scales, and score it on the larger ones.",
        listed="models",
        known=[model[:2] for model in models().values()],
    )
    add = parser.add_argument
    add("file", type=Path, nargs="?", metavar="FILE.csv", help=f"{CSV_FILE}, unless --lake is given")
    add("--test", type=Path, metavar="FILE2.csv", help="learn all of FILE, score these rows")
    add("--time", metavar="COL", help="the column of runtimes")
    add("--ranks", metavar="COL", help="the column of ranks, or of nodes")
    add("--size", metavar="COL", help="the column of problem sizes; with --lake, the parameter that is one")
    add("--nodes", metavar="COL", help="the column of nodes")
    add("--by", type=names, metavar="COL[,COL]", help="columns that identify a workload")
    history.add_options(parser)
    add(
        "--train",
        type=checked(str, _is_rule, f"{', '.join(RULES)} or <=N with N a number of ranks"),
        metavar="RULE",
        help="what is learned: lower-half of the scales, including the middle one, all-but-largest of them, or <=N"
        " ranks (default: lower-half, or with --test all of FILE)",
    )
    add(
        "--fewest-scales",
        type=int,
        metavar="N",
        help="score workloads with at least N scales; the others are only learned (default: 6 with lower-half, else 1)",
    )
    add("--models", type=names, default=["all"], metavar="all|NAME[,NAME]", help="models to fit (default: %(default)s)")
    favour = "learn runs of the i-th smallest scale of a workload i times in the simple laws (all but PMNF and ours)"
    add("--copies", action="store_true", help=favour)
    add("--seed", type=int, default=0, help="of the models (default: %(default)s)")
    add("--json", action="store_true", help="print one JSON object: summary and workloads")
    return parser


def _is_rule(text: str) -> bool:
    return text in RULES or (text.startswith("<=") and text[2:].isdecimal() and int(text[2:]) > 0)


def _run(options: argparse.Namespace) -> None:
    """Print the results of the models. Raises BadTable and OSError."""
    if options.lake is None:
        if None in (options.file, options.time, options.ranks, options.by):
            raise BadTable("expected FILE.csv with --time, --ranks and --by, or --lake")
        _scored_models(options)
        return
    if given := [f"--{name}" for name in OF_A_FILE if getattr(options, name) is not None]:
        raise BadTable(f"--lake with {given[0]}, expected one of them: its workloads are sets of parameters")
    with tempfile.TemporaryDirectory() as folder:
        options.file = Path(folder, "lake.csv")
        options.time, options.ranks, options.nodes = "seconds", "ranks", "nodes"
        options.by = ["cluster", "app", "params"]
        history.write_runs(options, options.size, options.file)
        options.size = options.size and "size"
        _scored_models(options)


def _scored_models(options: argparse.Namespace) -> None:
    fitted = selected(options.models, models())
    if options.copies:
        fitted = [with_copies(model) if model in LAWS else model for model in fitted]
    scored = _scored(splits := _splits(options), options)
    rows = list(score(fit_all(fitted, splits, options.seed), scored))
    if options.json:
        print(json.dumps({"summary": summarize(rows), "workloads": [asdict(row) for row in rows]}))
        return
    _show(rows)


def _read(path: Path, options: argparse.Namespace) -> list[ScalingWorkload]:
    columns = Columns(options.time, options.ranks, options.by, options.size, options.nodes)
    workloads, blank = read_workloads(path, columns)
    if blank:
        note(f"{blank} rows of {path} have no time above 0, or a blank scale or size, and are left out")
    return workloads


def _splits(options: argparse.Namespace) -> list[WorkloadSplit]:
    workloads = _read(options.file, options)
    if options.test is None:
        return split(workloads, _most(options.train or LOWER_HALF))
    others = _read(options.test, options)
    if unknown := sum(one.name not in {known.name for known in workloads} for one in others):
        note(f"{unknown} of {len(others)} workloads of {options.test} are not in {options.file} and are left out")
    return split(workloads, _most(options.train) if options.train else lambda runs: math.inf, others)


def _most(rule: str) -> Callable[[Runs], float]:
    return RULES.get(rule) or (lambda runs: float(rule[2:]))


def _scored(splits: Sequence[WorkloadSplit], options: argparse.Namespace) -> list[WorkloadSplit]:
    halved = options.train == LOWER_HALF or (options.train is None and options.test is None)
    fewest = options.fewest_scales or (FEWEST_SCALES if halved else 1)
    scored = [one for one in splits if one.scored is not None and one.scales >= fewest]
    if not scored:
        most = max((one.scales for one in splits if one.scored is not None), default=0)
        raise BadTable(
            f"{options.test or options.file}: no workload by {','.join(options.by)} has runs to learn from, runs to"
            f" score and {fewest} scales or more, but {most} at most (--fewest-scales asks for fewer)"
        )
    if len(scored) < len(splits):
        rest = f"{len(splits) - len(scored)} of {len(splits)} workloads"
        note(f"{rest} are only learned: nothing to score or too few scales")
    return scored


def _show(rows: Sequence[ModelAccuracy]) -> None:
    heads = ("model", "workloads", "refused", "median APE", "mean APE", "RMSE of speedup", "coverage of 95 %")
    summary = sorted(summarize(rows), key=lambda row: (row["median_ape"] is None, row["median_ape"]))
    cells = (
        (
            row["model"],
            str(row["workloads"]),
            str(row["refused"]),
            percent(row["median_ape"]),
            percent(row["mean_ape"]),
            "-" if row["rmse_speedup"] is None else f"{row['rmse_speedup']:.3g}",
            percent(row["coverage_95"]),
        )
        for row in summary
    )
    console().print(table("errors over workloads", heads, cells))
