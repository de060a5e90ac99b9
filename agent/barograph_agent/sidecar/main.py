"""The sidecar: a process beside the application that reads rings, spools rows and delivers them to the collector.

`python -m barograph_agent.sidecar.main SPOOL_DIRECTORY` watches the one program of a `barograph run`, whose plan is in
that directory. `nodewatch` watches all programs of a batch job on one node. Both also deliver orphaned spools of this
user on this node: those that were left because the collector was away or the launcher was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from barograph_agent.deliver.link import pump
from barograph_agent.deliver.spool import SpoolError
from barograph_agent.sidecar.plan import REPORT, RunPlan, load_end, load_plan, save
from barograph_agent.sidecar.watch import Watch

POLL_SECONDS: Final = 0.2
DRAIN_POLL_SECONDS: Final = 0.02
"""The same once only delivery is left."""

AnyWatch = TypeVar("AnyWatch", bound=Watch)


def orphans(root: Path) -> dict[Path, RunPlan]:
    """The plans in spool directories under `root` whose launcher is gone, by directory."""
    found = {}
    for directory in sorted(root.iterdir()):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            plan = load_plan(directory)
            if not plan.launcher_lives:
                found[directory] = plan
    return found


def adopt(root: Path, endpoint: str) -> dict[Path, Watch]:
    """Watches over the orphans that no process watches, by directory; they deliver to `endpoint`."""
    adopted = {}
    for directory, plan in orphans(root).items():
        with contextlib.suppress(SpoolError, OSError, msgspec.DecodeError):
            adopted[directory] = Watch(directory, msgspec.structs.replace(plan, endpoint=endpoint))
    return adopted


class Sidecar(Generic[AnyWatch]):
    """Watches `programs` until each has ended and is delivered, then delivers orphaned spools under `spools`.

    Delivery of either may take `drain_seconds`. Subclasses say how programs are found.
    """

    def __init__(
        self, spools: Path, endpoint: str, drain_seconds: float, programs: dict[Path, AnyWatch] | None = None
    ) -> None:
        self.programs: dict[Path, AnyWatch] = programs or {}
        self.adopted: dict[Path, Watch] | None = None
        """None until the collector was reached for the first time."""
        self._spools = spools
        self._endpoint = endpoint
        self._drain_seconds = drain_seconds
        self._stopping = False

    @property
    def is_over(self) -> bool:
        """True once only delivery is left to do."""
        return all(watch.ended for watch in self.programs.values())

    def stop(self) -> None:
        """Finish soon: called from a signal handler."""
        self._stopping = True

    def find(self) -> None:
        """Add programs that have begun, and end those whose processes are gone. Does not raise where a disk is full."""

    def run(self) -> None:
        """Step until everything is delivered, or the time for it is over."""
        deadline = float("inf")
        while not self._stopping:
            self.step()
            if self.is_over:
                deadline = min(deadline, time.monotonic() + self._drain_seconds)
                if not self.programs:
                    break
            if time.monotonic() > deadline:
                break
            self._wait(DRAIN_POLL_SECONDS if self.is_over else POLL_SECONDS)
        self.leave()
        # A launcher has its report and exits from here on.
        adopted = self.adopted or {}
        deadline = time.monotonic() + self._drain_seconds
        while any(watch.ended for watch in adopted.values()) and time.monotonic() < deadline and not self._stopping:
            self._serve(adopted)
            self._wait(DRAIN_POLL_SECONDS)
        for watch in adopted.values():
            watch.close()

    def step(self) -> None:
        """Find programs, read rings, spool and send. A full disk does not raise: the next step tries again."""
        self.find()
        self._serve(self.programs)
        # A short program may be delivered, and gone, at the first answer of the collector.
        self._serve(self.adopted or {})

    def release(self, watch: Watch) -> None:
        """Close a program: delivered ones are deleted, except where the launcher is to get a report first."""
        report = watch.report() if _has_launcher(watch.plan) else None
        if watch.delivered and not _has_launcher(watch.plan):
            watch.forget()
            return
        watch.close()
        # Without an end the command still runs, and only the sidecar was told to stop: the launcher starts another.
        if report is not None and load_end(watch.directory) is not None:
            save(watch.directory, REPORT, report)

    def leave(self) -> None:
        """Release programs that are not delivered in time."""
        for watch in self.programs.values():
            self.release(watch)
        self.programs.clear()

    def _serve(self, watches: dict[Path, AnyWatch] | dict[Path, Watch]) -> None:
        for directory, watch in list(watches.items()):
            watch.step()
            watch.link.pump()
            if watch.link.connected and self.adopted is None:
                self.adopted = adopt(self._spools, self._endpoint)
            if watch.delivered:
                self.release(watch)
                del watches[directory]

    def _wait(self, seconds: float) -> None:
        """Send and receive until the next step is due: an acknowledgement is no reason to read the rings again."""
        watches: list[Watch] = [*self.programs.values(), *(self.adopted or {}).values()]
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._stopping:
            pump([watch.link for watch in watches], left)
            if any(watch.delivered for watch in watches):
                return


def _has_launcher(plan: RunPlan) -> bool:
    """True where another process started the program and waits for its report."""
    return plan.launcher != os.getpid() and plan.launcher_lives


def main(arguments: list[str]) -> int:
    """Watch the run whose plan is in the given directory."""
    directory = Path(arguments[0])
    plan = load_plan(directory)
    sidecar = Sidecar(directory.parent, plan.endpoint, plan.drain_seconds, {directory: Watch(directory, plan)})
    signal.signal(signal.SIGTERM, lambda number, frame: sidecar.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sidecar.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
