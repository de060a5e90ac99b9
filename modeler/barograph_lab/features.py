"""`barograph features`: side files of instrumented runs to a table, and the features to keep."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from barograph.cli import Parser
from barograph_agent.feature_files.side_file import Feature, SideFile, merge, read_side_file
from barograph_agent.system.disk import DISK
from barograph_collector.daemon.service import Exit
from barograph_lab.columns import note, unusable

RUNTIME: Final = "runtime_seconds"
KNOWN: Final = ".known.csv"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="barograph features",
        description="Features of instrumented runs.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    table = verbs.add_parser("table", help="side files of runs, one folder each, to a CSV file with a line per run")
    add = table.add_argument
    add("folders", nargs="+", type=Path, metavar="DIR", help="the $BAROGRAPH_FEATURES of a run")
    beside = f"the table; FILE{KNOWN}, beside it, has the times at which features were known"
    add("-o", "--output", dest="target", required=True, type=Path, metavar="FILE.csv", help=beside)
    text = "the features that are known early and informative, for instrument --keep"
    keep = verbs.add_parser("reduce", help=text)
    add = keep.add_argument
    add("file", type=Path, metavar="FILE.csv", help="from `barograph features table`")
    where = "where to write them"
    add("-o", "--output", dest="target", required=True, type=Path, metavar="KEEP.json", help=where)
    early = "latest time to be known, as a share of runtime (default: 0.05)"
    add("--time-share", type=float, default=0.05, metavar="X", help=early)
    add("--importance", type=float, default=0.95, metavar="X", help="share of importance to keep (default: 0.95)")
    add("--seed", type=int, default=0, help="of the forest (default: %(default)s)")
    # One page of help for all verbs.
    parser.epilog = "\n".join(one.format_help() for one in (table, keep))
    return parser


def main(words: Sequence[str]) -> int:
    """Run the verb; 65 if the input cannot be used."""
    options = _parser().parse_args(words)
    try:
        {"table": _table, "reduce": _reduce}[options.verb](options)
    except (ValueError, OSError) as error:
        raise unusable(error) from error
    return Exit.OK


def _table(options: argparse.Namespace) -> None:
    runs, sizes = [], []
    for folder in options.folders:
        paths = sorted(folder.glob("*.features"))
        if not paths:
            raise ValueError(
                f"{folder} holds no side file, expected what a run with BAROGRAPH_FEATURES={folder} leaves"
            )
        files = [read_side_file(path) for path in paths]
        runs.append((folder.name, _runtime(folder, files), merge(files)))
        sizes.append(sum(path.stat().st_size for path in paths))
    names = sorted(set[str]().union(*(features for _, _, features in runs)), key=_place)
    _write(options.target, names, runs, "value")
    _write(options.target.with_suffix(KNOWN), names, runs, "known_at")
    odd = [name for name in names if any(name not in features for _, _, features in runs)]
    print(f"{len(runs)} runs, {len(names)} features, {sum(sizes) / len(sizes) / 1024:.1f} KiB a run")
    if odd:
        note(f"{len(odd)} features are in some runs only, {odd[0]} among them", "features")


def _runtime(folder: Path, files: Sequence[SideFile]) -> float:
    """From the first start to the last end, in seconds. Raises ValueError for an incomplete run."""
    ends = [file.ended_at for file in files if file.ended_at is not None]
    if len(ends) < len(files):
        raise ValueError(
            f"{folder}: {len(files) - len(ends)} of {len(files)} side files have no end, expected a whole run"
        )
    return max(ends) - min(file.started_at for file in files)


def _place(name: str) -> tuple[str, int, int, str]:
    """The sort key of a feature: names given by the program first, then position in the source."""
    if ":" not in name:
        return "", 0, 0, name
    source, line, column, kind = name.split(":", 3)
    return source, int(line), int(column), kind


def _write(path: Path, names: Sequence[str], runs: Sequence[tuple[str, float, dict[str, Feature]]], what: str) -> None:
    """Write a table atomically. A feature without a value is a blank cell. what: the attribute of a feature."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(["run", *names, RUNTIME])
    for run, runtime, features in runs:
        cells = [getattr(features[name], what) if name in features else math.nan for name in names]
        writer.writerow([run, *("" if math.isnan(cell) else repr(cell) for cell in cells), repr(runtime)])
    DISK.replace(path, file.getvalue().encode())


def _reduce(options: argparse.Namespace) -> None:
    from barograph_lab.studies.features.runs import encode, read_runs
    from barograph_lab.studies.series import CsvTable
    from barograph_modeler.features.reduction import by_importance, by_time
    from barograph_modeler.features.sample import Sample

    table, known = CsvTable(options.file), CsvTable(options.file.with_suffix(KNOWN))
    given = [name for name in table.header if name not in ("run", RUNTIME)]
    usable = [name for name in given if "" not in table.column(name) and len(set(table.column(name))) > 1]
    if not usable:
        raise ValueError(f"{options.file}: no feature has a value in every run and differs between runs")
    sample = read_runs(table, RUNTIME, encode(table, RUNTIME, usable))
    early = by_time(np.column_stack([known.numbers(name) for name in usable]), sample.seconds, options.time_share)
    if not early.size:
        raise ValueError(
            f"no feature is known within {options.time_share:g} of the runtime, expected a larger --time-share"
        )
    timely = Sample(tuple(usable[i] for i in early), sample.values[:, early], sample.seconds)
    best = [timely.names[i] for i in by_importance(timely, options.importance, seed=options.seed)]
    DISK.replace(options.target, f"{json.dumps({'features': best}, indent=1)}\n".encode())
    counts = (("full", len(given)), ("that vary", len(usable)), ("by time", len(early)), ("by importance", len(best)))
    for what, number in counts:
        print(f"{what:<15}{number:>6}")
