"""`barograph bench ingest`: how much a collector takes on this machine, from many jobs at once."""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np

from barograph.load import Load, Report
from barograph.probe import Collector, Usage, stored_once
from barograph_collector.service import Exit

OPEN_SECONDS: Final = 240.0
DESCRIPTORS: Final = 65536
SPARE_DESCRIPTORS: Final = 100


def main(arguments: Sequence[str]) -> int:
    """Load a collector of its own on a scratch directory, print what came of it; 1 if a row is not there once."""
    options = _parser().parse_args(arguments)
    most = (_raise_descriptor_limit() - SPARE_DESCRIPTORS) // 2
    if options.streams > most:
        print(
            f"barograph bench: streams is {options.streams}, expected at most {most} where a process may have"
            f" {2 * most + SPARE_DESCRIPTORS} descriptors: a stream takes two",
            file=sys.stderr,
        )
        return Exit.USAGE
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="barograph-bench-", dir=options.directory))
        collector = stack.enter_context(Collector(Path(directory)))
        load = Load(collector.endpoint, options.streams, options.rows, f"bench/{time.time_ns()}")
        stack.callback(load.close)
        if not load.open(OPEN_SECONDS):
            print(
                f"barograph bench: not all of {options.streams} streams were welcomed in {OPEN_SECONDS:g} s",
                file=sys.stderr,
            )
            return Exit.UNAVAILABLE
        print(f"{options.streams} streams, {options.rows} records a message, {options.seconds:g} s", flush=True)
        before, own = collector.usage(), Usage.of_this_process()
        if options.rate:
            report = load.pace(options.seconds, options.rate)
        else:
            report = load.saturate(options.seconds, options.window)
        _print_report(report, collector.usage() - before, Usage.of_this_process() - own)
        print(f"descriptors   collector {collector.descriptors()}")
        said = {job.name: job.said for job in load.jobs}
        collector.stop()
        once = stored_once(Path(directory), said)
        print(f"stored once   {once:,} of {sum(said.values()):,} records")
    return Exit.OK if once == sum(said.values()) else Exit.FAILED


def _print_report(report: Report, collector: Usage, generator: Usage) -> None:
    p50, p99 = 1e3 * np.quantile(report.waits, [0.5, 0.99])
    print(
        f"acknowledged  {report.records:,} records in {report.seconds:.1f} s:"
        f" {report.records / report.seconds:,.0f} a second"
    )
    print(f"append to ack p50 {p50:.0f} ms, p99 {p99:.0f} ms, longest {1e3 * report.waits.max():.0f} ms")
    for name, usage in (("collector", collector), ("generator", generator)):
        print(f"{name:13} {usage.cpu_seconds / report.seconds:.2f} cores, {usage.peak_bytes / 2**20:,.0f} MiB at most")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="barograph bench", description=main.__doc__)
    parser.add_argument("what", choices=["ingest"], help="what is measured")
    parser.add_argument(
        "--streams", type=_positive, default=1000, metavar="N", help="jobs at once (default: %(default)s)"
    )
    parser.add_argument(
        "--rows", type=_positive, default=500, metavar="N", help="records a message (default: %(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="how long to send (default: %(default)s)")
    parser.add_argument(
        "--rate", type=float, default=0.0, metavar="N", help="records a second in all (default: as many as are taken)"
    )
    parser.add_argument(
        "--window",
        type=_positive,
        default=2,
        metavar="N",
        help="without --rate: messages of a stream under way (default: %(default)s)",
    )
    parser.add_argument(
        "--directory", type=Path, metavar="DIR", help="where the scratch directory is made: the disk to measure"
    )
    return parser


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a whole number of at least 1")
    return int(text)


def _raise_descriptor_limit() -> int:
    """The limit of this process and those it starts, as high as it may be."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (max(hard, DESCRIPTORS), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        except (ValueError, OSError):
            continue
        return limit
    return hard
