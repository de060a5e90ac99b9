"""`barograph replay`: what the alerts would have said of a run that was recorded."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from barograph.lab.replay.report import summarize
from barograph.lab.replay.simulation import replay
from barograph.lab.replay.trace import Trace, TraceError, read_trace
from barograph_alerts.detection.evidence import ALPHA, MARGIN
from barograph_collector.daemon.service import Exit
from barograph_modeler.pace.windows import WINDOW_SECONDS


def main(arguments: Sequence[str]) -> int:
    """Print what was found; 65 if a trace cannot be used."""
    parser = argparse.ArgumentParser(
        prog="barograph replay",
        description="Judge a recorded run as if it happened now: through agent, log, modeler and alerts.",
        epilog="Without --history, or with one that has nothing in common with TRACE, it is judged against its own"
        " first windows.",
    )
    parser.add_argument("trace", type=Path, metavar="TRACE", help="an .npz file; docs/reference/traces.md")
    parser.add_argument(
        "--history",
        type=Path,
        action="append",
        default=[],
        metavar="TRACE",
        help="an earlier, healthy run of the same workload; may be given again",
    )
    parser.add_argument(
        "--speed", type=_positive, metavar="X", help="so many times faster than it was (default: as fast as it goes)"
    )
    parser.add_argument("--alpha", type=_positive, default=ALPHA, help="as `barograph alerts` (default: %(default)s)")
    parser.add_argument("--margin", type=_positive, default=MARGIN, help="likewise (default: %(default)s)")
    parser.add_argument(
        "--window",
        type=_positive,
        default=WINDOW_SECONDS,
        metavar="SECONDS",
        help="as `barograph modeler` (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object: alarms and jobs")
    options = parser.parse_args(arguments)
    if options.alpha >= 1:
        parser.error(f"argument --alpha: {options.alpha:g}, expected a number between 0 and 1")
    try:
        trace = read_trace(options.trace)
        history = [read_trace(file) for file in options.history]
        for one in (trace, *history):
            if not one.ranks[0].synchronizing.any():
                raise TraceError(f"trace {one.file}: no synchronizing collective, expected some of codes 8 to 63")
    except TraceError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror}")
    for other in history:
        if other.size != trace.size:
            print(
                f"barograph replay: {other.file} has {other.size} ranks, {trace.file} has {trace.size};"
                " taken for the same workload all the same",
                file=sys.stderr,
            )
    with tempfile.TemporaryDirectory(prefix="barograph-replay-") as directory:
        scores = replay(
            Path(directory),
            trace,
            history,
            alpha=options.alpha,
            margin=options.margin,
            window_seconds=options.window,
            wait=_pacer(options.speed),
        )
    found = summarize(trace, scores)
    if options.json:
        print(json.dumps(found))
    else:
        _show(trace, found)
    return Exit.OK


def _pacer(speed: float | None) -> Callable[[float], None]:
    if speed is None:
        return lambda seconds: None
    began = time.monotonic()
    return lambda seconds: time.sleep(max(0.0, began + seconds / speed - time.monotonic()))


def _show(trace: Trace, found: dict[str, list[dict[str, object]]]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    for job in found["jobs"]:
        console.print(f"{job['job']}: {job['sentence']}", markup=False, highlight=False)
    if not found["alarms"]:
        console.print("no alarm", highlight=False)
        return
    table = Table(title="alarms, in seconds since the start", title_justify="left")
    for name in ("onset", "detected", "slowdown", "cause", "who", "judged by"):
        table.add_column(name, justify="right" if name in ("onset", "detected", "slowdown") else "left")
    for alarm in found["alarms"]:
        slowdown = alarm["slowdown"]
        table.add_row(
            f"{alarm['onset_seconds']:.1f}",
            f"{alarm['detected_seconds']:.1f}",
            "-" if slowdown is None else f"{slowdown:.2f}x",
            str(alarm["cause"]),
            ", ".join(alarm["nodes"]),  # type: ignore[arg-type]
            "its own first windows" if alarm["basis"] == "own" else "its history",
        )
    console.print(table)
    if trace.injections:
        parts = ", ".join(f"{start:.1f} to {stop:.1f} s" for start, stop in trace.injections)
        console.print(f"The trace says it was disturbed on purpose: {parts}.", highlight=False)


def _refuse(text: str) -> int:
    print(f"barograph replay: {text}", file=sys.stderr)
    return Exit.DATA


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number above 0")
    return value
