"""`barograph replay`: the alarms that a recorded run would have raised."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barograph.cli import Parser, checked
from barograph.terminal import console
from barograph_alerts.detection.alarm import ALPHA, MARGIN
from barograph_collector.daemon.service import Exit
from barograph_lab.columns import note, table, unusable
from barograph_lab.replay.report import summarize
from barograph_lab.replay.simulation import replay
from barograph_lab.replay.trace import Trace, TraceError, read_trace
from barograph_modeler.pace.windows import WINDOW_SECONDS


def main(arguments: Sequence[str]) -> int:
    """Print the alarms; 65 if a trace cannot be used."""
    parser = Parser(
        prog="barograph replay",
        description="Judge a recorded run as if it happened now: through agent, log, modeler and alerts.",
        epilog="Without --history, or with one that shares no class with TRACE, it is judged against its own"
        " first windows.",
    )
    add = parser.add_argument
    add("trace", type=Path, metavar="TRACE", help="an .npz file; docs/reference/traces.md")
    add(
        "--history",
        type=Path,
        action="append",
        default=[],
        metavar="TRACE",
        help="an earlier, healthy run of the same workload; may be given again",
    )
    positive = checked(float, lambda number: 0 < number < float("inf"), "a number above 0")
    add("--alpha", type=positive, default=ALPHA, help="as `barograph alerts` (default: %(default)s)")
    add("--margin", type=positive, default=MARGIN, help="likewise (default: %(default)s)")
    add(
        "--window",
        type=positive,
        default=WINDOW_SECONDS,
        metavar="SECONDS",
        help="as `barograph modeler` (default: %(default)s)",
    )
    add("--json", action="store_true", help="print one JSON object: alarms and jobs")
    options = parser.parse_args(arguments)
    if options.alpha >= 1:
        parser.error(f"argument --alpha: {options.alpha:g}, expected a number between 0 and 1")
    try:
        trace = read_trace(options.trace)
        history = [read_trace(file) for file in options.history]
        for one in (trace, *history):
            if not one.ranks[0].synchronizing.any():
                raise TraceError(f"trace {one.file}: no synchronizing collective, expected some of codes 8 to 63")
    except (TraceError, OSError) as error:
        raise unusable(error) from error
    for other in history:
        if other.size != trace.size:
            note(
                f"{other.file} has {other.size} ranks, {trace.file} has {trace.size}; treated as the same workload",
                "replay",
            )
    with tempfile.TemporaryDirectory(prefix="barograph-replay-") as directory:
        scores = replay(
            Path(directory),
            trace,
            history,
            alpha=options.alpha,
            margin=options.margin,
            window_seconds=options.window,
        )
    found = summarize(trace, scores)
    if options.json:
        print(json.dumps(found))
    else:
        _show(trace, found)
    return Exit.OK


def _show(trace: Trace, found: dict[str, list[dict[str, Any]]]) -> None:
    out = console()
    for job in found["jobs"]:
        out.print(f"{job['job']}: {job['sentence']}", markup=False, highlight=False)
    if not found["alarms"]:
        out.print("no alarm", highlight=False)
        return
    heads = ("onset", "detected", "slowdown", "cause", "ranks", "judged by")
    rows = (
        (
            f"{alarm['onset_seconds']:.1f}",
            f"{alarm['detected_seconds']:.1f}",
            "-" if alarm["slowdown"] is None else f"{alarm['slowdown']:.2f}x",
            alarm["cause"],
            ", ".join(alarm["nodes"]),
            "its own first windows" if alarm["basis"] == "own" else "its history",
        )
        for alarm in found["alarms"]
    )
    out.print(table("alarms, in seconds since the start", heads, rows, left=(3, 4, 5)))
    if trace.injections:
        parts = ", ".join(f"{start:.1f} to {stop:.1f} s" for start, stop in trace.injections)
        out.print(f"Deliberate disturbances according to the trace: {parts}.", highlight=False)
