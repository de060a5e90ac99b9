"""`barograph backtest`: how Barograph's predictions would have done on measurements that are there already."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from barograph.cli import MISSING_EXTRA
from barograph.lab.backtest import alerts as backtest_alerts
from barograph.lab.backtest import runtime as backtest_runtime
from barograph.lab.backtest import scaling as backtest_scaling
from barograph.lab.columns import names
from barograph_collector.daemon.service import Exit
from barograph_modeler.studies.bands.bootstraps import single_ranks, whole_runs
from barograph_modeler.studies.bands.methods import METHODS
from barograph_modeler.studies.bands.score import Row, summarize
from barograph_modeler.studies.bands.tasks import FEWEST, prequential, same_scale, scale_up
from barograph_modeler.studies.series import BadTable, Join, Series, read_series

SUBJECTS = {"scaling": backtest_scaling.run, "runtime": backtest_runtime.run, "alerts": backtest_alerts.run}
TASKS = {"half": same_scale, "prequential": prequential}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barograph backtest",
        description="Score predictions on measurements that are there already.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subjects = parser.add_subparsers(dest="subject", required=True, metavar="SUBJECT")
    bands = subjects.add_parser(
        "bands",
        help="do bands hold the share of later values that they promise?",
        description="Fit bands to part of each series of a CSV file and count how many of the later values they hold.",
        epilog="methods:\n" + "\n".join(f"  {method.name}: {method.help}" for method in METHODS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bands.add_argument("file", type=Path, metavar="FILE.csv", help="a CSV file with a line of column names")
    bands.add_argument("--value", required=True, metavar="COL", help="the column of measured values")
    bands.add_argument("--by", required=True, type=names, metavar="COL[,COL]", help="columns that tell series apart")
    bands.add_argument(
        "--scale", metavar="COL", help="column of ranks or nodes: also fit small scales, score larger ones"
    )
    bands.add_argument("--order", metavar="COL", help="column to sort each series by (default: as in the file)")
    bands.add_argument(
        "--mode",
        type=_mode,
        default="half",
        metavar="MODE",
        help="half: fit the first half of each series, score the second; prequential: learn value by value, each scored"
        " before it is learned (default: %(default)s)",
    )
    apart = bands.add_mutually_exclusive_group()
    apart.add_argument("--run", metavar="COL", help="tells runs of a series apart: score how long each takes in all")
    apart.add_argument(
        "--rank",
        metavar="COL",
        help="tells ranks of a series apart: score the mean maximum over all, from some of them",
    )
    bands.add_argument("--join", type=Path, metavar="FILE2.csv", help="take further columns from this file")
    bands.add_argument("--on", metavar="COL", help="the column that both files share")
    bands.add_argument("--json", action="store_true", help="print one JSON object: summary and series")
    bands.add_argument("--plot", type=Path, metavar="FILE.png", help="draw bands and observed values")
    scaling = backtest_scaling.add_parser(subjects)
    runtime = backtest_runtime.add_parser(subjects)
    alerts = backtest_alerts.add_parser(subjects)
    # One page of help for all subjects.
    parser.epilog = "\n".join(subject.format_help() for subject in (bands, scaling, runtime, alerts))
    return parser


def _mode(text: str) -> str:
    if text not in TASKS:
        raise argparse.ArgumentTypeError(f"{text!r}, expected {' or '.join(TASKS)}")
    return text


def main(arguments: Sequence[str]) -> int:
    """Print how the methods did; 65 if the file cannot be used."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.subject in ("bands", "alerts") and (options.join is None) != (options.on is None):
        parser.error("--join and --on go together, expected both or none")
    if getattr(options, "plot", None) is not None and importlib.util.find_spec("matplotlib") is None:
        print("barograph backtest: --plot needs matplotlib: pip install 'barograph[report]'", file=sys.stderr)
        return MISSING_EXTRA
    try:
        {**SUBJECTS, "bands": _bands}[options.subject](options)
    except BadTable as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror}")
    return Exit.OK


def _bands(options: argparse.Namespace) -> None:
    series = _series(options)
    if options.run is not None:
        rows = list(whole_runs(series, options.run))
    elif options.rank is not None:
        rows = list(single_ranks(series, options.rank))
    else:
        rows = list(TASKS[options.mode](series))
        if options.scale is not None:
            rows += scale_up(series)
    if not rows:
        wanted = "4 runs of a series" if options.run is not None else "4 ranks of a series with 30 intervals each"
        raise BadTable(f"{options.file}: nothing to score, expected at least {wanted}")
    if options.plot is not None:
        _plot(series, options)
    if options.json:
        print(json.dumps({"summary": summarize(rows), "series": [asdict(row) for row in rows]}))
    else:
        _show(rows)


def _refuse(text: str) -> int:
    print(f"barograph backtest: {text}", file=sys.stderr)
    return Exit.DATA


def _series(options: argparse.Namespace) -> list[Series]:
    """The series that are long enough; what is left out is said, and nothing left is an error."""
    join = None if options.join is None else Join(options.join, options.on)
    by = [*options.by, *filter(None, (options.run, options.rank))]
    every = read_series(options.file, options.value, by, scale=options.scale, order=options.order, join=join)
    series = [one for one in every if one.values.size >= FEWEST]
    if not series:
        names = ",".join([*by, *([options.scale] if options.scale else [])])
        longest = max(one.values.size for one in every)
        values = "value" if longest == 1 else "values"
        raise BadTable(
            f"{options.file}: the longest of {len(every)} series by {names} has {longest} {values}, "
            f"expected at least {FEWEST}: some to learn from and some to score"
        )
    if len(series) < len(every):
        print(
            f"barograph backtest: {len(every) - len(series)} of {len(every)} series have fewer than {FEWEST} values"
            " and are left out",
            file=sys.stderr,
        )
    return series


def _plot(series: Sequence[Series], options: argparse.Namespace) -> None:
    from barograph_modeler.studies.plot import plot_order, plot_scales

    if options.scale is None:
        plot_order(series, options.value, options.mode, options.plot)
        return
    try:
        plot_scales(series, options.value, options.scale, options.plot)
    except ValueError as error:
        raise BadTable(f"{options.file}: {error}") from None


def _show(rows: Sequence[Row]) -> None:
    summary = summarize(rows)
    for task in dict.fromkeys(row["task"] for row in summary):
        table = Table(title=task, title_justify="left")
        for name in ("method", "series", "unknown", "coverage", "within 2 pp", "width ratio", "pinball"):
            table.add_column(name, justify="left" if name == "method" else "right")
        for row in summary:
            if row["task"] == task:
                shown = ("mean_coverage", "share_within_2pp", "median_width_ratio", "pinball")
                table.add_row(
                    row["method"], str(row["series"]), str(row["unknown"]), *(_number(row[key]) for key in shown)
                )
        Console(width=None if sys.stdout.isatty() else 120).print(table)


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}"
