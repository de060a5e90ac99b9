"""`barograph spool [--send]`: what earlier runs on this node could not deliver, and a way to deliver it now."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Final

from barograph_agent.settings import agent, places
from barograph_agent.sidecar.main import adopt, orphans

EXIT_UNAVAILABLE: Final = 69
_NOBODY: Final = Path("/nonexistent")


def send(root: Path, endpoint: str, seconds: float) -> int:
    """Deliver every orphan under `root`; returns how many are left when the time is over."""
    watches = adopt(root, _NOBODY, endpoint)
    deadline = time.monotonic() + seconds
    while watches and time.monotonic() < deadline:
        for watch in list(watches):
            watch.step()
            watch.link.pump(0.02)
            if watch.delivered:
                print(f"delivered  {watch.plan.job.key}")
                watch.forget()
                watches.remove(watch)
    for watch in watches:
        for note in watch.report().notes:
            print(f"waiting    {watch.plan.job.key}: {note}")
        watch.close()
    return len(watches)


def main(arguments: list[str]) -> int:
    """List undelivered runs, or deliver them; 69 if some could not be delivered."""
    parse = argparse.ArgumentParser(prog="barograph spool", description=main.__doc__)
    parse.add_argument("--send", action="store_true", help="deliver them now")
    environment, complaint = agent.environment_or_complaint(os.environ)
    if complaint:
        print(f"barograph spool: {complaint}; going on without this file", file=sys.stderr)
    places.add_collector_option(parse, places.endpoint(environment))
    parse.add_argument("--seconds", type=float, default=30.0, help="how long to try (default: %(default)s)")
    options = parse.parse_args(arguments)
    root = places.spool_root(environment)
    waiting = orphans(root, _NOBODY) if root.is_dir() else []
    if not waiting:
        print("nothing is waiting")
        return 0
    if not options.send:
        for directory in waiting:
            size = sum(path.stat().st_size for path in directory.glob("*.seg"))
            print(f"{directory}  {size:,} bytes")
        print(f"{len(waiting)} runs wait")
        return 0
    left = send(root, options.collector, options.seconds)
    if left:
        print(f"barograph: {left} runs not delivered in {options.seconds:g} s to {options.collector}", file=sys.stderr)
    return EXIT_UNAVAILABLE if left else 0
