"""`barograph spool [--send]`: lists or delivers the undelivered rows of earlier runs on this node."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Final

from barograph.cli import CommandError
from barograph_agent.settings import agent, places
from barograph_agent.sidecar.main import Orphans, Sidecar, orphans
from barograph_agent.sidecar.watch import Watch

EXIT_UNAVAILABLE: Final = 69


class SpoolDelivery(Sidecar[Watch]):
    """Delivers the orphaned spools under a directory and prints the outcome of each."""

    def __init__(self, root: Path, collectors: str, seconds: float) -> None:
        """collectors: addresses with commas between; a single one gets every run, whichever it began with."""
        self._orphans = Orphans(root, collectors)
        super().__init__(root, collectors, seconds, self._orphans.watches)
        self._adopts = False
        self.left = 0

    @property
    def is_over(self) -> bool:
        """Always true: there is no program to wait for."""
        return True

    def adopt_next(self) -> None:
        """Begin with further spools where others are delivered."""
        self._orphans.adopt()

    def leave(self) -> None:
        """Release those that were not delivered in time, and count those that did not have a turn."""
        super().leave()
        self.left += self._orphans.left

    def release(self, watch: Watch) -> None:
        """Print the outcome; delete a delivered spool."""
        if watch.delivered:
            print(f"delivered  {watch.plan.job.key}")
        else:
            self.left += 1
            for note in watch.report().notes:
                print(f"waiting    {watch.plan.job.key}: {note}")
        super().release(watch)


def main(arguments: list[str]) -> int:
    """List undelivered runs, or deliver them; 69 if some could not be delivered."""
    parse = argparse.ArgumentParser(prog="barograph spool", description=main.__doc__)
    parse.add_argument("--send", action="store_true", help="deliver the runs now")
    environment, complaint = agent.environment_or_complaint(os.environ)
    if complaint:
        print(f"barograph spool: {complaint}; going on without this file", file=sys.stderr)
    places.add_collector_option(parse, places.endpoint(environment), several=True)
    parse.add_argument("--seconds", type=float, default=30.0, help="time limit of the delivery (default: %(default)s)")
    options = parse.parse_args(arguments)
    root = places.spool_root(environment)
    waiting = orphans(root) if root.is_dir() else {}
    if not waiting:
        print("nothing is waiting")
        return 0
    if not options.send:
        for directory in waiting:
            size = sum(path.stat().st_size for path in directory.glob("*.seg"))
            print(f"{directory}  {size:,} bytes")
        print("1 run waits" if len(waiting) == 1 else f"{len(waiting)} runs wait")
        return 0
    delivery = SpoolDelivery(root, options.collector, options.seconds)
    delivery.run()
    if not delivery.left:
        return 0
    undelivered = f"{delivery.left} runs not delivered in {options.seconds:g} s to {options.collector}"
    raise CommandError(undelivered, EXIT_UNAVAILABLE)
