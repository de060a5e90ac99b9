"""`barograph drain`: lets the collector of this host take no more rows, until everything it has is where it belongs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barograph.cli import CommandError
from barograph_agent.system.clock import CLOCK
from barograph_collector.daemon.service import Exit
from barograph_collector.ingest.drain import DrainRequest
from barograph_collector.ingest.intake import DrainProgress
from barograph_collector.storage.store import LOG

ANSWER_SECONDS: Final = 15.0
"""The collector looks for a request every 5 s."""
SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.1


def main(arguments: Sequence[str]) -> int:
    """Drain, or end a drain; 69 where no collector answers, 1 where it has not come to an end in time."""
    parser = argparse.ArgumentParser(
        prog="barograph drain",
        description="Let the collector on this host take no more rows, for maintenance: producers keep theirs and are "
        "told why. Waits until everything that was received is in the log, and in the lake if there is one. The "
        "collector goes on to answer. Stop it then; once it is started again, or after --end, producers deliver.",
    )
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="the collector's state directory")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help="how long to wait (default: 60)")
    parser.add_argument("--end", action="store_true", help="let it take rows again")
    options = parser.parse_args(arguments)
    if not (options.state / LOG).is_file():
        raise CommandError(f"{options.state / LOG}: not found, expected the log of a collector", Exit.DATA)
    request = DrainRequest(options.state)
    try:
        return _end(request) if options.end else _drain(request, options.state, options.seconds)
    except OSError as error:
        raise CommandError(f"cannot use {options.state}: {error.strerror}", Exit.STATE) from None


def _drain(request: DrainRequest, state: Path, seconds: float) -> int:
    request.begin()
    began = CLOCK.monotonic()
    while (report := request.report()) is None or not report.complete:
        waited = CLOCK.monotonic() - began
        if report is None and waited > ANSWER_SECONDS:
            request.end()
            raise CommandError(f"no collector answered in {state}, expected one that runs there", Exit.UNAVAILABLE)
        if report is not None and waited > seconds:
            print(f"{_summary(report)}; {_missing(report)}", file=sys.stderr)
            return Exit.FAILED
        CLOCK.sleep(POLL_SECONDS)
    print(f"{_summary(report)}; stop the collector, or let it take rows again with --end")
    return Exit.OK


def _end(request: DrainRequest) -> int:
    print("the collector takes rows again within 5 s" if request.end() else "there was no drain")
    return Exit.OK


def _summary(report: DrainProgress) -> str:
    lake = "" if report.lake is None else f", in the lake up to {report.lake:,}"
    return f"no row is taken: the log has rows up to offset {report.offset:,}{lake}"


def _missing(report: DrainProgress) -> str:
    """What a drain lacks, in words."""
    if report.waiting:
        return f"{report.waiting:,} rows are in the journal only, and follow in the database"
    return "the lake takes no rows: they are in the log, and follow once it does"
