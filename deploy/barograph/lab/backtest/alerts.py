"""`barograph backtest alerts`: false alarms, detections and delay of detectors on measured runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from barograph.cli import checked
from barograph.lab.columns import CSV_FILE, add_join, add_subject, console, count, join_of, names, note, table
from barograph_alerts.detection.alarm import ALPHA, MARGIN
from barograph_alerts.studies.detectors import RIVALS, Detector, score
from barograph_alerts.studies.pairs import FEWEST, Case, MeasuredRun, cases
from barograph_alerts.studies.power import FEWEST_JOBS, FOUND, LENGTHS, Power, powers
from barograph_alerts.studies.tally import DetectorTally
from barograph_modeler.studies.series import BadTable, read_series

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
        listed="detectors",
        known=[one[:2] for one in (score(), *RIVALS)],
    )
    add = parser.add_argument
    add("file", type=Path, metavar="FILE.csv", help=CSV_FILE)
    add_runs(parser, required=True)
    share = checked(float, lambda share: 0 < share < 1, "a number between 0 and 1")
    add("--alpha", type=share, default=ALPHA, help="as `barograph alerts` (default: %(default)s)")
    add("--margin", type=share, default=MARGIN, help="likewise (default: %(default)s)")
    add(
        "--power",
        action="store_true",
        help="instead, the smallest lasting slowdown found in nine of ten jobs, by healthy runs and length of the run",
    )
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
    """Print the results of the detectors. Raises BadTable and OSError."""
    if options.power:
        _show_power(options)
        return
    detectors = [score(options.alpha, options.margin), *RIVALS]
    judged = [(case, [detector.detect(case.job) for detector in detectors]) for case in _cases(options)]
    tallies: dict[tuple[str, str], DetectorTally] = {}
    for case, alarms in judged:
        for detector, at in zip(detectors, alarms, strict=True):
            tallies.setdefault((case.task, detector.name), DetectorTally()).add(case.job.onset, at)
    if options.json:
        summary = [_summary(*key, tally) for key, tally in tallies.items()]
        print(json.dumps({"summary": summary, "jobs": [_row(case, detectors, at) for case, at in judged]}))
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


def _show_power(options: argparse.Namespace) -> None:
    """Print the smallest slowdowns found. Raises BadTable."""
    runs = [run for same in workloads(options, LENGTHS[0]).values() for run in same]
    detect = score(options.alpha, options.margin).detect
    found = list(powers(runs, options.window, detect, options.alpha, note))
    if not found:
        raise BadTable(
            f"{options.file}: no {FEWEST_JOBS} healthy runs of {LENGTHS[0]} windows have another to compare with"
        )
    if options.json:
        print(json.dumps([one._asdict() for one in found]))
        return
    lengths = sorted({one.length for one in found})
    cells = {(one.history, one.length): one for one in found}
    rows = [
        [str(history), *(_power_cell(cells.get((history, length))) for length in lengths)]
        for history in sorted({one.history for one in found})
    ]
    title = (
        f"Smallest lasting slowdown found in {FOUND:.0%} of jobs, windows until then (least that a test could find"
        " which knows the onset); false alarms"
    )
    console().print(table(title, ["healthy runs", *(f"{length} windows" for length in lengths)], rows))


def _power_cell(one: Power | None) -> str:
    if one is None:
        return "-"
    found = "none" if one.smallest is None else f"{one.smallest - 1:.0%}, {one.delay:g}"
    return f"{found} ({one.possible - 1:.1%}); {one.false} of {one.healthy}"


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


def _summary(task: str, detector: str, tally: DetectorTally) -> dict[str, Any]:
    low, high = tally.interval if tally.healthy else (None, None)
    return {
        "task": task,
        "detector": detector,
        "healthy": tally.healthy,
        "false_alarms": tally.false,
        "false_alarms_low": low,
        "false_alarms_high": high,
        "disturbed": tally.disturbed,
        "found": tally.found,
        "median_delay_windows": tally.delay,
        "alarmed_before_onset": tally.early,
    }


def _row(case: Case, detectors: Sequence[Detector], alarms: Sequence[list[int]]) -> dict[str, Any]:
    return {
        "task": case.task,
        "workload": case.workload,
        "run": case.run,
        "windows": len(case.job.windows),
        "onset": case.job.onset,
        "alarms": {detector.name: at for detector, at in zip(detectors, alarms, strict=True)},
    }


def _show(tallies: dict[tuple[str, str], DetectorTally]) -> None:
    heads = ("detector", "healthy", "false alarms", "95 % interval", "disturbed", "found", "windows until then")
    for task in TASKS:
        rows = [(detector, *_cells(tally)) for (name, detector), tally in tallies.items() if name == task]
        if rows:
            console().print(table(task, heads, rows))


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
