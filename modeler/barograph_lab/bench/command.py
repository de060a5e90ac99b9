"""`barograph bench ingest`: the throughput of a collector on this machine with many concurrent jobs."""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Final

import numpy as np

from barograph.cli import Parser
from barograph_collector.daemon.service import Exit
from barograph_lab.bench.load import Load, LoadReport
from barograph_lab.bench.measured_collector import MeasuredCollector, Usage, stored_once, watched
from barograph_lab.columns import count, note

OPEN_SECONDS: Final = 240.0
DESCRIPTORS: Final = 65536
SPARE_DESCRIPTORS: Final = 100


def main(arguments: Sequence[str]) -> int:
    """Load a collector on a scratch directory and print the results; 1 if a row is not stored exactly once."""
    options = _parser().parse_args(arguments)
    # A stream takes two descriptors here.
    most = (_raise_descriptor_limit() - SPARE_DESCRIPTORS) // 2
    if options.streams > most:
        note(
            f"streams is {options.streams}, expected at most {most}: each takes two descriptors, and a process may"
            f" have {2 * most + SPARE_DESCRIPTORS} here",
            "bench",
        )
        return Exit.USAGE
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="barograph-bench-", dir=options.directory))
        collector = stack.enter_context(MeasuredCollector(Path(directory)))
        load = Load(collector.endpoint, options.streams, options.rows, f"bench/{time.time_ns()}")
        stack.callback(load.close)
        if not load.open(OPEN_SECONDS):
            note(f"not all of {options.streams} streams were opened in {OPEN_SECONDS:g} s", "bench")
            return Exit.UNAVAILABLE
        print(f"{options.streams} streams, {options.rows} records a message, {options.seconds:g} s", flush=True)
        before, own = collector.usage(), Usage.of_this_process()
        with watched(collector, options.watch) if options.watch else nullcontext():
            if options.rate:
                report = load.pace(options.seconds, options.rate)
            else:
                report = load.saturate(options.seconds, options.window)
        _print_report(report, collector.usage() - before, Usage.of_this_process() - own)
        print(f"descriptors   collector {collector.descriptors()}")
        collector.stop()
        sent = sum(job.sent for job in load.jobs)
        once = stored_once(Path(directory), {job.name: job.sent for job in load.jobs})
        print(f"stored once   {once:,} of {sent:,} records")
    return Exit.OK if once == sent else Exit.FAILED


def _print_report(report: LoadReport, collector: Usage, generator: Usage) -> None:
    p50, p99 = 1e3 * np.quantile(report.waits, [0.5, 0.99])
    print(
        f"acknowledged  {report.records:,} records in {report.seconds:.1f} s:"
        f" {report.records / report.seconds:,.0f} a second"
    )
    print(f"append to ack p50 {p50:.0f} ms, p99 {p99:.0f} ms, longest {1e3 * report.waits.max():.0f} ms")
    for name, usage in (("collector", collector), ("generator", generator)):
        print(f"{name:13} {usage.cpu_seconds / report.seconds:.2f} cores, {usage.peak_bytes / 2**20:,.0f} MiB at most")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="barograph bench", description=main.__doc__)
    add = parser.add_argument
    add("what", choices=["ingest"], help="what is measured")
    add("--streams", type=count, default=1000, metavar="N", help="jobs at once (default: %(default)s)")
    add("--rows", type=count, default=500, metavar="N", help="records a message (default: %(default)s)")
    add("--seconds", type=float, default=20.0, help="how long to send (default: %(default)s)")
    add("--rate", type=float, default=0.0, metavar="N", help="records a second in all (default: unlimited)")
    add(
        "--window",
        type=count,
        default=2,
        metavar="N",
        help="without --rate: unacknowledged messages of a stream (default: %(default)s)",
    )
    add(
        "--watch",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="print CPU time and memory this often, and at the end the growth of memory",
    )
    add("--directory", type=Path, metavar="DIR", help="where the scratch directory is made: the disk to measure")
    return parser


def _raise_descriptor_limit() -> int:
    """Raise the limit of this process and its children as far as possible; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (max(hard, DESCRIPTORS), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        except (ValueError, OSError):
            continue
        return limit
    return hard
