"""`barograph backtest alerts`: false alarms, detections and their delay on measured runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from barograph.cli import checked
from barograph.terminal import console
from barograph_alerts.detection.alarm import ALPHA, MARGIN
from barograph_lab.columns import CSV_FILE, add_join, add_subject, count, join_of, names, note, table
from barograph_lab.studies.alerts.detectors import detector
from barograph_lab.studies.alerts.pairs import FEWEST, Case, MeasuredRun, cases
from barograph_lab.studies.alerts.tally import DetectorTally
from barograph_lab.studies.series import BadTable, read_series

TASKS: Final = ("healthy-run", "healthy-half", "disturbed-run", "onset")
WINDOW: Final = 20


def add_parser(subjects: Any) -> argparse.ArgumentParser:
    """Add the subject `alerts` and its options."""
    parser = add_subject(
        subjects,
        "alerts",
        _run,
        help="false alarms on healthy runs, detections on disturbed ones",
        description="Judge runs of a CSV file as jobs, by other runs of the same workload or their own first half.",
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE.csv", help=CSV_FILE)
    add_runs(parser, required=True)
    share = checked(float, lambda share: 0 < share < 1, "a number between 0 and 1")
    add("--alpha", type=share, default=ALPHA, help="as `barograph alerts` (default: %(default)s)")
    add("--margin", type=share, default=MARGIN, help="likewise (default: %(default)s)")
    add("--json", action="store_true", help="print one JSON object: summary and jobs")
    return parser


def add_runs(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add the options by which `workloads` reads runs of a file."""
    add = parser.add_argument
    add("--value", required=required, metavar="COL", help="the column of measured times")
    add("--by", required=required, type=names, metavar="COL[,COL]", help="columns that identify a workload")
    add("--run", required=required, metavar="COL", help="the column that identifies a run of a workload")
    add(
        "--disturbed",
        type=names,
        default=[],
        metavar="TEXT[,TEXT]",
        help="runs, or prefixes of their names, that are known to be disturbed; CELL=TEXT for those of a workload"
        " with that cell only (default: none)",
    )
    add("--order", metavar="COL", help="column to sort each run by (default: as in the file)")
    add_join(parser)
    add("--window", type=count, default=WINDOW, metavar="N", help="values per window (default: %(default)s)")


def _run(options: argparse.Namespace) -> None:
    """Print the results. Raises BadTable and OSError."""
    detect = detector(options.alpha, options.margin)
    judged = [(case, detect(case.job)) for case in _cases(options)]
    tallies: dict[str, DetectorTally] = {}
    for case, alarms in judged:
        tallies.setdefault(case.task, DetectorTally()).add(case.job.onset, alarms)
    if options.json:
        summary = [_summary(task, tally) for task, tally in tallies.items()]
        print(json.dumps({"summary": summary, "jobs": [_row(case, alarms) for case, alarms in judged]}))
    else:
        _show(tallies)


def _cases(options: argparse.Namespace) -> Iterator[Case]:
    """The jobs, by workload. Raises BadTable."""
    for runs in workloads(options, FEWEST).values():
        yield from cases(runs, options.window)


def workloads(options: argparse.Namespace, fewest: int) -> dict[str, list[MeasuredRun]]:
    """The runs of at least `fewest` windows by workload. Prints the number of others; raises BadTable for none."""
    found: dict[str, list[MeasuredRun]] = {}
    short = 0
    for one in _runs(options):
        if len(one.values) < fewest * options.window:
            short += 1
        else:
            found.setdefault(one.workload, []).append(one)
    if not found:
        raise BadTable(
            f"{options.file}: none of {short} runs by {','.join([*options.by, options.run])} has {fewest} windows of"
            f" {options.window} values (--window asks for shorter ones)"
        )
    for text in options.disturbed:
        if not any(_is_disturbed(one, text) for runs in found.values() for one in runs):
            raise BadTable(f"--disturbed: no run's {options.run} begins with {text!r}")
    if short:
        verb = "run has" if short == 1 else "runs have"
        note(f"{short} {verb} fewer than {fewest} windows of {options.window} values: left out")
    return found


def _runs(options: argparse.Namespace) -> Iterator[MeasuredRun]:
    by = [*options.by, options.run]
    for series in read_series(options.file, options.value, by, order=options.order, join=join_of(options)):
        if (series.values <= 0).any():
            bad = float(series.values[series.values <= 0][0])
            raise BadTable(f"{options.file}: {options.value} of {series.name} is {bad:g}, expected a number above 0")
        workload = ", ".join(series.key[name] for name in options.by)
        one = MeasuredRun(workload, series.key[options.run], series.values, disturbed=False)
        yield one._replace(disturbed=any(_is_disturbed(one, text) for text in options.disturbed))


def _is_disturbed(one: MeasuredRun, text: str) -> bool:
    cell, separator, beginning = text.rpartition("=")
    return one.name.startswith(beginning) and (not separator or cell in one.workload.split(", "))


def _summary(task: str, tally: DetectorTally) -> dict[str, Any]:
    low, high = tally.interval if tally.healthy else (None, None)
    return {
        "task": task,
        "healthy": tally.healthy,
        "false_alarms": tally.false,
        "false_alarms_low": low,
        "false_alarms_high": high,
        "disturbed": tally.disturbed,
        "found": tally.found,
        "median_delay_windows": tally.delay,
        "alarmed_before_onset": tally.early,
    }


def _row(case: Case, alarms: Sequence[int]) -> dict[str, Any]:
    return {
        "task": case.task,
        "workload": case.workload,
        "run": case.run,
        "windows": len(case.job.windows),
        "onset": case.job.onset,
        "alarms": alarms,
    }


def _show(tallies: dict[str, DetectorTally]) -> None:
    heads = ("jobs", "healthy", "false alarms", "95 % interval", "disturbed", "found", "windows until then")
    console().print(table("alerts", heads, [(task, *_cells(tallies[task])) for task in TASKS if task in tallies]))


def _cells(tally: DetectorTally) -> list[str]:
    cells = ["-"] * 6
    if tally.healthy:
        low, high = tally.interval
        share = f"{tally.false} = {tally.false / tally.healthy:.1%}"
        cells[:3] = [str(tally.healthy), share, f"{low:.1%} to {high:.1%}"]
    if tally.disturbed:
        delay = "-" if tally.delay is None else f"{tally.delay:g}"
        cells[3:] = [str(tally.disturbed), f"{tally.found} = {tally.found / tally.disturbed:.0%}", delay]
    return cells
