"""`barograph backtest runtime`: learn runtimes from the features of some runs, predict those of other runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import track

from barograph.cli import checked
from barograph.terminal import console
from barograph_lab.columns import CSV_FILE, add_subject, names, note, percent, selected, table
from barograph_lab.studies.features.runs import Encoding, encode, read_runs
from barograph_lab.studies.features.runtime import MODELS, RuntimeScore, evaluate, split
from barograph_lab.studies.features.transfer import TRANSFERS, transfer_makers
from barograph_lab.studies.series import BadTable, CsvTable
from barograph_modeler.features.estimators.learners import Maker
from barograph_modeler.features.estimators.trees import importances
from barograph_modeler.features.sample import FEWEST, Sample

TRAIN_SHARE: Final = 0.5
TRANSFER_SHARE: Final = 0.05
SUSPECT: Final = 0.999
"""Rank correlation with the time above which a feature is suspected to be derived from it."""


def add_parser(subjects: Any) -> argparse.ArgumentParser:
    """Add the subject `runtime` and its options."""
    parser = add_subject(
        subjects,
        "runtime",
        _run,
        help="errors of runtimes predicted from features",
        description="Learn runtimes from the features of some runs of a CSV file and predict those of the others.",
        listed="models",
        known=[*(model[:2] for model in MODELS), *TRANSFERS.items()],
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE.csv", help=f"{CSV_FILE}, a run a line")
    add("--test", type=Path, metavar="FILE2.csv", help="learn all of FILE, score these runs")
    add("--time", required=True, metavar="COL", help="the column of runtimes")
    every = "columns known before the run ends (default: all others but identifiers of runs)"
    add("--features", type=names, metavar="COL[,COL]", help=every)
    add(
        "--source",
        type=Path,
        metavar="FILE3.csv",
        help="runs on another machine: learn them all, and from a few of FILE how FILE's machine differs",
    )
    add(
        "--train-share",
        type=checked(float, lambda share: 0 < share <= 1, "a share above 0 and at most 1"),
        metavar="X",
        help=f"share of FILE's runs that are learned (default: {TRAIN_SHARE}, with --source {TRANSFER_SHARE}, with"
        " --test all)",
    )
    add("--models", type=names, default=["all"], metavar="all|NAME[,NAME]", help="models to fit (default: %(default)s)")
    add("--seed", type=int, default=0, help="of the split and the models (default: %(default)s)")
    add("--json", action="store_true", help="print one JSON object: summary, features and left_out")
    return parser


def _run(options: argparse.Namespace) -> None:
    """Print the results of the models. Raises BadTable and OSError."""
    file = CsvTable(options.file)
    encoding = encode(file, options.time, options.features)
    if encoding.left_out:
        note("left out: " + "; ".join(f"{name} ({why})" for name, why in encoding.left_out.items()))
    learned, scored = _parts(read_runs(file, options.time, encoding), encoding, options)
    _warn_of_times(learned)
    makers = _makers(options, encoding)
    shown = track(makers, "fitting", console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True)
    results = [evaluate(maker, learned, scored, options.seed) for maker in shown]
    scores = [score for score, _, _ in results]
    weights = dict(zip(learned.names, importances(learned, seed=options.seed).tolist(), strict=True))
    if options.json:
        summary = [asdict(score) for score in scores]
        print(json.dumps({"summary": summary, "features": weights, "left_out": encoding.left_out}))
    else:
        _show(scores, weights)


def _parts(sample: Sample, encoding: Encoding, options: argparse.Namespace) -> tuple[Sample, Sample]:
    """Runs to learn and runs to score."""
    if options.test is None:
        share = options.train_share or (TRAIN_SHARE if options.source is None else TRANSFER_SHARE)
        learned, scored = split(sample, share, options.seed)
    else:
        learned = split(sample, options.train_share or 1.0, options.seed)[0]
        scored = read_runs(CsvTable(options.test), options.time, encoding)
    for part, least, what in ((learned, FEWEST, "to learn"), (scored, 2, "to score")):
        if len(part) < least:
            raise BadTable(
                f"{options.file}: {len(part)} of {len(sample)} runs are {what}, expected at least {least}:"
                " see --train-share"
            )
    return learned, scored


def _makers(options: argparse.Namespace, encoding: Encoding) -> Sequence[Maker]:
    makers: tuple[Maker, ...] = MODELS
    if options.source is not None:
        note(f"learning {options.source}")
        source = read_runs(CsvTable(options.source), options.time, encoding)
        makers = (*transfer_makers(source, options.seed), *MODELS)
    return selected(options.models, {maker.name: maker for maker in makers})


def _warn_of_times(sample: Sample) -> None:
    """Print which features order the runs as their times do: they are probably measured at the end of a run."""
    from scipy.stats import spearmanr

    for name, column in zip(sample.names, sample.values.T, strict=True):
        if abs(spearmanr(column, sample.seconds).statistic) > SUSPECT:
            note(
                f"column {name!r} orders the runs as their times do;"
                " if it is not known before the run ends, leave it out: --features"
            )


def _show(scores: Sequence[RuntimeScore], weights: dict[str, float]) -> None:
    heads = ("model", "mean APE", "median APE", "rank accuracy", "coverage of 95 %", "upper/lower", "in mu ± sigma")
    rows = []
    for score in sorted(scores, key=lambda score: score.mean_ape):
        shares = (score.mean_ape, score.median_ape, score.rank_accuracy, score.coverage_95)
        spread = f"{score.median_spread:.2f}" if score.median_spread < 100 else f"{score.median_spread:.0e}"
        rows.append((score.model + " *" * score.stopped, *map(percent, shares), spread, percent(score.coverage_sigma)))
    out = console()
    out.print(table(f"{scores[0].learned} runs learned, {scores[0].scored} scored", heads, rows))
    if any(score.stopped for score in scores):
        out.print("* had not converged at its limit of iterations, and is scored as it stood")
    ordered = sorted(weights.items(), key=lambda item: -item[1])
    out.print("importance: " + ", ".join(f"{name} {100 * weight:.0f} %" for name, weight in ordered))
