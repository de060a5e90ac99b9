"""`barograph backtest bands`: coverage of later values by bands, for series of a file or of a lake."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from barograph.cli import checked
from barograph.terminal import console
from barograph_lab import history
from barograph_lab.backtest.spread import add_options, spread, workers_of
from barograph_lab.columns import CSV_FILE, add_join, add_subject, join_of, names, note, table
from barograph_lab.studies.bands.bootstraps import single_ranks, whole_runs
from barograph_lab.studies.bands.methods import METHODS
from barograph_lab.studies.bands.score import ScoreRow, summarize
from barograph_lab.studies.bands.tasks import FEWEST, prequential, programs, same_scale, scale_up
from barograph_lab.studies.series import BadTable, Series, read_series

TASKS = {"half": same_scale, "prequential": prequential}


def add_parser(subjects: Any) -> argparse.ArgumentParser:
    """Add the subject `bands` and its options."""
    parser = add_subject(
        subjects,
        "bands",
        _run,
        help="coverage of later values by bands",
        description="Fit bands to part of each series of a CSV file, or of the intervals in a lake, and score them on"
        " the later values.",
        listed="methods",
        known=((method.name, method.help) for method in METHODS),
    )
    add = parser.add_argument
    add("file", type=Path, nargs="?", metavar="FILE.csv", help=f"{CSV_FILE}, unless --lake is given")
    add("--value", metavar="COL", help="the column of measured values")
    add("--by", type=names, metavar="COL[,COL]", help="columns that identify a series")
    add("--scale", metavar="COL", help="column of ranks or nodes: also fit small scales, score larger ones")
    add("--order", metavar="COL", help="column to sort each series by (default: as in the file)")
    add(
        "--mode",
        type=checked(str, lambda mode: mode in TASKS, " or ".join(TASKS)),
        default="half",
        metavar="MODE",
        help="half: fit the first half of each series, score the second; prequential: learn value by value, each scored"
        " before it is learned (default: %(default)s)",
    )
    apart = parser.add_mutually_exclusive_group()
    apart.add_argument("--run", metavar="COL", help="identifies runs of a series: score the total time of each")
    apart.add_argument(
        "--rank", metavar="COL", help="identifies ranks of a series: score the mean maximum over all, from some of them"
    )
    add("--node", metavar="COL", help="with --rank: the column of hosts; without it each rank is a node of its own")
    add_join(parser)
    history.add_options(parser)
    history.add_values(parser, "the newest N single intervals of a class")
    add_options(parser)
    add("--json", action="store_true", help="print one JSON object: summary and series")
    return parser


OF_A_FILE: Final = ("value", "by", "scale", "order", "run", "rank", "node", "join")


def _run(options: argparse.Namespace) -> None:
    given = [name for name in OF_A_FILE if getattr(options, name) is not None]
    if options.lake is not None:
        if options.file is not None or given:
            what = f"--{given[0]}" if given else options.file
            raise BadTable(f"--lake with {what}, expected one of them: its series are classes of intervals")
        task = history.computed(history.series_of, TASKS[options.mode])
        _print(list(spread(task, history.parts(options), workers_of(options))), options)
        return
    if options.file is None or options.value is None or options.by is None:
        raise BadTable("expected FILE.csv with --value and --by, or --lake")
    series = _series(options)
    if options.run is not None:
        rows = list(whole_runs(series, options.run))
    elif options.rank is not None:
        rows = list(single_ranks(series, options.rank, options.node))
    else:
        workers = workers_of(options)
        rows = list(spread(TASKS[options.mode], series, workers))
        if options.scale is not None:
            rows += spread(scale_up, programs(series), workers)
    if not rows:
        wanted = "4 runs of a series" if options.run is not None else "4 ranks of a series with 30 intervals each"
        if options.node is not None:
            wanted += ", on 2 hosts"
        raise BadTable(f"{options.file}: nothing to score, expected at least {wanted}")
    _print(rows, options)


def _print(rows: Sequence[ScoreRow], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps({"summary": summarize(rows), "series": [asdict(row) for row in rows]}))
    else:
        _show(rows)


def _series(options: argparse.Namespace) -> list[Series]:
    """The series that are long enough. Prints the number of shorter ones; raises BadTable if all are too short."""
    by = [*options.by, *filter(None, (options.run, options.rank, options.node))]
    every = read_series(
        options.file, options.value, by, scale=options.scale, order=options.order, join=join_of(options)
    )
    series = [one for one in every if one.values.size >= FEWEST]
    if not series:
        grouped = ",".join([*by, *([options.scale] if options.scale else [])])
        longest = max(one.values.size for one in every)
        values = "value" if longest == 1 else "values"
        raise BadTable(
            f"{options.file}: the longest of {len(every)} series by {grouped} has {longest} {values}, "
            f"expected at least {FEWEST}: some to learn from and some to score"
        )
    if len(series) < len(every):
        note(f"{len(every) - len(series)} of {len(every)} series have fewer than {FEWEST} values and are left out")
    return series


def _show(rows: Sequence[ScoreRow]) -> None:
    summary = summarize(rows)
    heads = (
        "method",
        "series",
        "unknown",
        "coverage",
        "within 2 pp",
        "width ratio",
        "pinball",
        "median off",
        "width / value",
    )
    shown = ("mean_coverage", "share_within_2pp", "median_width_ratio", "pinball", "median_error", "relative_width")
    for task in dict.fromkeys(row["task"] for row in summary):
        cells = (
            (row["method"], str(row["series"]), str(row["unknown"]), *(_number(row[key]) for key in shown))
            for row in summary
            if row["task"] == task
        )
        console().print(table(task, heads, cells))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
