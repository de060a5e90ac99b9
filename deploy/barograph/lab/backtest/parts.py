"""`barograph backtest scaling --parts`: files with a row per region of a run."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from barograph.lab.columns import console, names, note, percent, table
from barograph_modeler.studies.regions.models import OURS, PartsCurve, curves
from barograph_modeler.studies.regions.runs import RegionRuns
from barograph_modeler.studies.regions.table import SUM, RegionColumns, RegionTable, read_regions
from barograph_modeler.studies.rivals.laws import RuntimeCurve
from barograph_modeler.studies.scaling.workloads import WorkloadSplit
from barograph_modeler.studies.series import BadTable, Columns

MAX_SHOWN = 4
"""Parts of a workload that are printed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for times of regions."""
    add = parser.add_argument
    add(
        "--parts",
        type=names,
        metavar="COL[,COL]",
        help="the column of regions: a row is the time of one region of a run; or the columns of regions' times",
    )
    add(
        "--total",
        metavar="NAME",
        help="with --parts: the region or column that is the total (default: found, else the sum of regions)",
    )
    add("--run", metavar="COL", help="with --parts: the column that identifies runs (default: repeats in file order)")


def read(path: Path, columns: Columns, options: argparse.Namespace) -> RegionTable:
    """The runs of a file with their regions. Prints what the total is. Raises BadTable and OSError."""
    found = read_regions(path, columns, RegionColumns(options.parts, options.run, options.total))
    if options.total is None and len(options.parts) == 1:
        note(f"the total of {path} is {'the sum of all regions' if found.total == SUM else repr(found.total)}")
    return found


def check(options: argparse.Namespace) -> None:
    """Raises BadTable for options that need --parts."""
    for name in ("total", "run"):
        if getattr(options, name) is not None and options.parts is None:
            raise BadTable(f"--{name} needs --parts, the column of regions")


def fit(
    regions: Mapping[str, RegionRuns], splits: Sequence[WorkloadSplit], seed: int
) -> dict[str, dict[str, RuntimeCurve | str]]:
    """Curves of the models of parts, from the learned runs."""
    learned = {}
    for one in splits:
        every = regions[one.name]
        learned[one.name] = every.select(every.runs.ranks <= one.learned.scales[-1])
    return curves(learned, seed)


def deciding(
    fitted: Mapping[str, Mapping[str, RuntimeCurve | str]], scored: Sequence[WorkloadSplit]
) -> list[dict[str, Any]]:
    """Predicted parts of each workload at its largest scored scale: `by`, `ranks`, `seconds` and `parts` in seconds."""
    rows = []
    for one in scored:
        curve = fitted[OURS][one.name]
        if one.scored is not None and isinstance(curve, PartsCurve):
            at = int(one.scored.ranks.argmax())
            ranks, size = float(one.scored.ranks[at]), float(one.scored.size[at])
            if (answer := curve.at(ranks, size)) is not None:
                parts = dict(answer.parts)
                rows.append({"by": one.key, "ranks": ranks, "seconds": answer.expected_seconds, "parts": parts})
    return rows


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print the parts that decide the largest scale of each workload."""
    cells = (
        (
            ", ".join(row["by"].values()),
            f"{row['ranks']:g}",
            f"{row['seconds']:.4g}",
            ", ".join(f"{percent(s / row['seconds'])} {name}" for name, s in list(row["parts"].items())[:MAX_SHOWN]),
        )
        for row in rows
    )
    title = "parts of the predicted time at the largest scale"
    console().print(table(title, ("workload", "ranks", "seconds", "parts"), cells, left=(0, 3)))
