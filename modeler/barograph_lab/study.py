"""`barograph study`: the tables of the two papers on scaling, from existing measurements."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from barograph.cli import Parser, checked
from barograph_collector.daemon.service import Exit
from barograph_lab.columns import CSV_FILE, add_subject, names, note, unusable
from barograph_lab.studies.greybox import greybox_study
from barograph_lab.studies.greybox.fraction import TooFewRuns
from barograph_lab.studies.runs import Condition, Grid, read_runs
from barograph_lab.studies.series import BadTable, Columns
from barograph_lab.studies.weak import weak_study
from barograph_lab.studies.weak.complexity import BadExpression, Complexity
from barograph_lab.studies.weak.planner import rounding
from barograph_lab.studies.weak.weak import Kind
from barograph_modeler.scaling.history import Runs

SCALINGS = ("strong", "hybrid", "weak")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="barograph study",
        description="Make the tables of the papers on scaling from a CSV file of runs, as Markdown.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subjects = parser.add_subparsers(dest="subject", required=True, metavar="SUBJECT")
    share = checked(float, lambda share: 0 < share < 1, "a number between 0 and 1, both excluded")
    grey = add_subject(
        subjects,
        "grey-box",
        _grey_box,
        help="speedups beyond the learned scales: grey-box models, Oliveira's model, Amdahl's law",
        description="Root mean squared errors of speedups, as in Alasandagutti et al. (2024), tables 1 to 6.",
    )
    add = grey.add_argument
    kinds = "strong, hybrid, weak (default: strong); all but strong need --size"
    add("--scaling", type=_scalings, default=["strong"], metavar="KIND[,KIND]", help=kinds)
    add("--nodes", metavar="COL", help="the column of nodes: two levels of parallelism")
    quantile = "quantile of the {} that is {} (default: 0.5)"
    add("--cutoff-ranks", type=share, default=0.5, metavar="Q", help=quantile.format("scales", "c_f"))
    add("--cutoff-size", type=share, default=0.5, metavar="Q", help=quantile.format("sizes", "w_f"))
    add("--seed", type=int, default=0, metavar="N", help="seed of draws, networks and swarms (default: 0)")
    weak = add_subject(
        subjects,
        "weak",
        _weak,
        help="times and performance at fixed work per process: the log-bilinear law and its rivals",
        description="Relative errors at scales beyond those learned, as in Mokrov (2020), tables 2 to 10.",
    )
    add = weak.add_argument
    add("--performance", metavar="COL", help="the column of performance, scored beside times")
    smallest = "learn from P ranks up, such as two nodes (default: 1)"
    add("--smallest", type=int, default=1, metavar="P", help=smallest)
    add("--largest", type=int, metavar="P", help="learn up to P ranks (default: lower half of the scales)")
    favour = "learn runs of the i-th smallest scale i times in the laws that the paper compares with"
    add("--copies", action="store_true", help=favour)
    for subject in (grey, weak):
        add = subject.add_argument
        add("file", type=Path, metavar="FILE.csv", help=CSV_FILE)
        add("--time", required=True, metavar="COL", help="the column of times")
        add("--ranks", required=True, metavar="COL", help="the column of ranks (or of nodes, if all have as many)")
        add("--by", required=True, type=names, metavar="COL[,COL]", help="columns that identify an application")
        add("--size", metavar="COL", help="the column of problem sizes")
        add("--complexity", metavar="EXPR", help="serial work as a function of the size, such as N**2")
        lines = "use these lines only"
        add("--where", type=_condition, action="append", default=[], metavar="COL[!]=VALUE", help=lines)
        add("--json", action="store_true", help="print one JSON object: tables and rows")
    # One page of help for all subjects.
    parser.epilog = "\n".join([grey.format_help(), weak.format_help()])
    return parser


def _scalings(text: str) -> list[str]:
    known = checked(str, lambda kind: kind in SCALINGS, ", ".join(SCALINGS))
    return [known(kind) for kind in text.split(",")]


def _condition(text: str) -> Condition:
    name, sign, value = text.partition("=")
    if not (name and sign and name != "!"):
        raise argparse.ArgumentTypeError(f"{text!r}, expected COLUMN=VALUE or COLUMN!=VALUE")
    return Condition(name.removesuffix("!"), value, not name.endswith("!"))


def main(arguments: Sequence[str]) -> int:
    """Print the tables; 65 if the file cannot be used."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.subject == "grey-box" and options.size is None and options.scaling != ["strong"]:
        parser.error(f"--scaling {','.join(options.scaling)} needs --size")
    if options.complexity is not None and options.size is None:
        parser.error("--complexity is of a size, expected --size too")
    try:
        complexity = None if options.complexity is None else Complexity.parse(options.complexity)
        tables, rows = options.execute(options, complexity)
    except (BadTable, BadExpression, OSError) as error:
        raise unusable(error) from error
    if options.json:
        print(
            json.dumps(_plain({"tables": [asdict(table) for table in tables], "rows": [asdict(row) for row in rows]}))
        )
    else:
        print("\n\n".join(table.markdown() for table in tables))
    return Exit.OK


def _plain(value: Any) -> Any:
    """The value for JSON: arrays become lists, numbers that are not finite null."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(part) for part in value]
    if isinstance(value, float):  # numpy's too
        return float(value) if math.isfinite(value) else None
    return value


def _grey_box(
    options: argparse.Namespace, complexity: Complexity | None
) -> tuple[list[Grid], list[greybox_study.Scored]]:
    columns = Columns(options.time, options.ranks, options.by, options.size, options.nodes)
    applications = read_runs(options.file, columns, options.where, complexity)
    cutoffs = (options.cutoff_ranks, options.cutoff_size)
    rows: list[greybox_study.Scored] = []
    left_out = []
    for scaling in options.scaling:
        for name, runs in applications.items():
            try:
                rows += greybox_study.evaluate(name, runs, scaling, *cutoffs, options.seed)
            except TooFewRuns as error:
                left_out.append(f"{', '.join(name)}, {scaling}: {error}")
    _note_left_out(left_out, len(applications) * len(options.scaling), options.file, bool(rows))
    for model, scaling, reason in dict.fromkeys((row.model, row.scaling, row.reason) for row in rows if row.reason):
        note(f"{model}, {scaling}: {reason}", "study")
    for caution in greybox_study.cautions(rows):
        note(caution, "study")
    return greybox_study.tables(rows), rows


def _weak(options: argparse.Namespace, complexity: Complexity | None) -> tuple[list[Grid], list[weak_study.Target]]:
    targets: list[weak_study.Target] = []
    left_out: list[str] = []
    asked = 0
    kinds: dict[Kind, str | None] = {"time": options.time, "performance": options.performance}
    for kind, column in kinds.items():
        if column is None:
            continue
        columns = Columns(column, options.ranks, options.by, options.size)
        for name, runs in read_runs(options.file, columns, options.where).items():
            asked += 1
            application = ", ".join(name)
            if complexity is not None and kind == "time":
                changes = rounding(complexity, [(int(p), float(n)) for p, n in zip(runs.ranks, runs.size, strict=True)])
                span = f"{min(changes):+.1%} to {max(changes):+.1%}"
                note(f"{application}: work per rank lies {span} from its median", "study")
            size = runs.size if options.size else runs.ranks * weak_study.WORK_PER_RANK
            sized = Runs.of(runs.ranks, runs.seconds, size=size)
            try:
                targets += weak_study.evaluate(
                    name, sized, kind, options.smallest, options.largest, copies=options.copies
                )
            except ValueError as error:
                left_out.append(f"{application}, {kind}: {error}")
    _note_left_out(left_out, asked, options.file, bool(targets))
    for series, law, reason in dict.fromkeys(
        (", ".join(one.series), law, reason) for one in targets for law, reason in one.reasons.items()
    ):
        note(f"{law}, {series}: {reason}", "study")
    return weak_study.tables(targets), targets


def _note_left_out(left_out: Sequence[str], asked: int, path: Path, anything: bool) -> None:
    """Print what is left out, and why. Raises BadTable if nothing is left to study."""
    if not anything:
        raise BadTable(f"{path}: nothing to study in {asked} applications; the first: {left_out[0]}")
    for line in left_out:
        note(f"left out: {line}", "study")
