"""`barograph ring FILE...`: prints the contents of ring files written by the shim."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from barograph_agent.ring.reader import OPERATIONS, Ring, RingError

EXIT_DATA: Final = 65


def describe(ring: Ring, last: int) -> str:
    """The header and the last unread records, as lines."""
    head = ring.head
    state = "finalized" if ring.finalized else "running or killed"
    lines = [
        f"{ring.path}",
        f"  program    {ring.program} (pid {ring.pid})",
        f"  rank       {ring.rank} of {ring.size}, {state}",
        f"  counted    {head + ring.dropped:,} synchronizing collectives, {ring.dropped:,} dropped",
        f"  read       up to record {ring.tail:,} of {head:,}; room for {ring.capacity:,}",
    ]
    for record in ring.records(max(ring.tail, head - last, 0), head):
        seconds = (int(record["exit_ns"]) - ring.started_ns) * 1e-9
        inside = (int(record["exit_ns"]) - int(record["enter_ns"])) * 1e-6
        name = OPERATIONS.get(int(record["op"]), "other")
        lines.append(f"  {seconds:12.6f} s  {name:<15} {inside:10.3f} ms  {ring.site(int(record['site']))}")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the header and the last records of ring files; 65 if a file is not a readable ring."""
    parse = argparse.ArgumentParser(prog="barograph ring", description=main.__doc__)
    parse.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parse.add_argument("--last", type=int, default=10, help="unread records to show (default: %(default)s)")
    options = parse.parse_args(arguments)
    status = 0
    for path in options.files:
        try:
            with Ring(path) as ring:
                print(describe(ring, options.last))
        except RingError as error:
            print(f"barograph: {error}", file=sys.stderr)
            status = EXIT_DATA
    return status
