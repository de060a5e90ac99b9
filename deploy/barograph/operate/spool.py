"""`barograph spool [--send]`: lists or delivers the undelivered rows of earlier runs on this node."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from barograph.cli import CommandError, Parser
from barograph_agent.deliver.spool import DATABASE
from barograph_agent.settings import agent, places
from barograph_agent.sidecar.main import Orphans, Sidecar, orphans
from barograph_agent.sidecar.run import WatchedRun


class SpoolDelivery(Sidecar):
    """Delivers the orphaned spools under a directory and prints the outcome of each."""

    def __init__(self, root: Path, collectors: str, seconds: float) -> None:
        """collectors: addresses with commas between; a single one gets every run, whichever it began with."""
        super().__init__(root, collectors, seconds)
        self._orphans = self.adopted = Orphans(root, collectors)
        self.left = 0

    def run(self) -> None:
        """Deliver, and count the spools that are left."""
        super().run()
        for job, error in self._orphans.unusable.items():
            print(f"waiting    {job}: {error}")
        self.left += self._orphans.left + len(self._orphans.unusable)

    def release(self, run: WatchedRun) -> None:
        """Print the outcome; delete a delivered spool."""
        if run.delivered:
            print(f"delivered  {run.plan.job.key}")
        else:
            self.left += 1
            for note in run.report().notes:
                print(f"waiting    {run.plan.job.key}: {note}")
        super().release(run)


def main(arguments: list[str]) -> int:
    """List undelivered runs, or deliver them; 69 if some could not be delivered."""
    parse = Parser(prog="barograph spool", description=main.__doc__)
    parse.add_argument("--send", action="store_true", help="deliver the runs now")
    environment, complaint = agent.environment_or_complaint(os.environ)
    if complaint:
        print(f"barograph spool: {complaint}; going on without this file", file=sys.stderr)
    places.add_collector_option(parse, places.endpoint(environment), several=True)
    parse.add_argument("--seconds", type=float, default=30.0, help="time limit of the delivery (default: %(default)s)")
    options = parse.parse_args(arguments)
    try:
        roots = [places.private_directory(root) for root in places.spool_roots(environment) if os.path.lexists(root)]
    except PermissionError as error:
        raise CommandError(f"spool directory {error}") from error
    if not (waiting := [directory for root in roots for directory in orphans(root)]):
        print("nothing is waiting")
    elif not options.send:
        for directory in waiting:
            print(f"{directory}  {sum(path.stat().st_size for path in directory.glob(f'{DATABASE}*')):,} bytes")
        print("1 run waits" if len(waiting) == 1 else f"{len(waiting)} runs wait")
    deliveries = [SpoolDelivery(root, options.collector, options.seconds) for root in roots if options.send]
    for delivery in deliveries:
        delivery.run()
    if left := sum(delivery.left + delivery.given_up for delivery in deliveries):
        raise CommandError(f"{left} runs not delivered in {options.seconds:g} s to {options.collector}", 69)
    return 0
