"""`barograph backtest sets`: models of scaling over several files, by what `backtest scaling --json` printed."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from barograph.terminal import console
from barograph_lab.columns import add_subject, names, percent, table
from barograph_lab.studies.scaling.sets import ERRORS, ModelOverSets, ScoredSet, SetComparison, compare, over_sets
from barograph_lab.studies.series import BadTable


def add_parser(subjects: Any) -> argparse.ArgumentParser:
    """Add the subject `sets` and its options."""
    parser = add_subject(
        subjects,
        "sets",
        _run,
        help="scaling models over several files, each used for all of them",
        description="Compare models of scaling over several files: each used for all of them, and the rival that is"
        " chosen on all files but the one that it is judged on.",
    )
    add = parser.add_argument
    add("files", type=Path, nargs="+", metavar="FILE.json", help="what `backtest scaling --json` printed of a file")
    together = "draw workloads with the same cells in these columns together, for the interval of the coverage"
    add("--together", type=names, default=[], metavar="COL[,COL]", help=together)
    add("--seed", type=int, default=0, help="of these draws (default: %(default)s)")
    add("--json", action="store_true", help="print one JSON object: models and sets")
    return parser


def _run(options: argparse.Namespace) -> None:
    """Print the comparison. Raises BadTable and OSError."""
    sets = [_read(path) for path in options.files]
    compared = compare(sets, options.together, options.seed)
    models = over_sets(sets)
    if options.json:
        print(json.dumps({"models": [asdict(one) for one in models], "sets": [asdict(one) for one in compared]}))
        return
    _show_models(models)
    _show_sets(compared)


def _read(path: Path) -> ScoredSet:
    try:
        found = json.loads(path.read_text())
        return ScoredSet(path.stem, found["summary"], found["workloads"])
    except (ValueError, KeyError, TypeError):
        raise BadTable(f"{path}: expected what `barograph backtest scaling --json` prints") from None


def _show_models(models: list[ModelOverSets]) -> None:
    heads = ("model", "sets", "median: mean ratio", "worst", "mean: mean ratio", "worst")
    rows = (
        (
            one.model,
            str(one.sets),
            *(f"{ratio[kind]:.2f}" for kind in ERRORS for ratio in (one.mean_ratio, one.worst_ratio)),
        )
        for one in models
    )
    console().print(table("errors of each model, as ratios to those of the best model of each set", heads, rows))


def _show_sets(compared: list[SetComparison]) -> None:
    heads = ("set", "workloads", "median", "to the best", "to the chosen", "mean", "to the best", "to the chosen",
             "coverage", "of other draws")  # fmt: skip
    rows = [
        [
            one.name,
            str(one.workloads),
            *(
                cell
                for kind in ERRORS
                for cell in (
                    percent(one.ours[kind]),
                    f"{one.to_best[kind]:.2f}",
                    f"{one.to_chosen[kind]:.2f} {one.chosen[kind]}",
                )
            ),
            percent(one.coverage),
            f"{percent(one.lower)} to {percent(one.upper)}",
        ]
        for one in compared
    ]
    ratios = [[ratio[kind] for kind in ERRORS for ratio in (one.to_best, one.to_chosen)] for one in compared]
    best, chosen, best_of_means, chosen_of_means = (f"{ratio:.2f}" for ratio in np.exp(np.log(ratios).mean(axis=0)))
    rows.append(["geometric mean", "", "", best, chosen, "", best_of_means, chosen_of_means, "", ""])
    title = "errors of barograph, and as ratios to the best rival of this set, and to the best one on all other sets"
    console().print(table(title, heads, rows))
