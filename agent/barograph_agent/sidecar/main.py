"""The sidecar: the process that watches one run from outside, `python -m barograph_agent.sidecar.main SPOOL_DIRECTORY`.

It also delivers what earlier runs of this user on this node had to leave behind: a collector that was away,
a launcher that was killed.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from barograph_agent.deliver.spool import SpoolError
from barograph_agent.sidecar.plan import REPORT, RunPlan, load_end, load_plan, save
from barograph_agent.sidecar.watch import Watch

POLL_SECONDS: Final = 0.2


def orphans(root: Path, besides: Path) -> list[Path]:
    """Spool directories under `root` whose launcher is gone."""
    found = []
    for directory in sorted(root.iterdir()):
        if directory != besides:
            try:
                plan = load_plan(directory)
            except (OSError, msgspec.DecodeError):
                continue
            if not plan.launcher_lives:
                found.append(directory)
    return found


def adopt(root: Path, besides: Path, endpoint: str) -> list[Watch]:
    """Watches over the orphans that nobody else has taken; they go to the collector that is in use now."""
    adopted = []
    for directory in orphans(root, besides):
        try:
            adopted.append(Watch(directory, msgspec.structs.replace(load_plan(directory), endpoint=endpoint)))
        except (SpoolError, OSError, msgspec.DecodeError):
            continue
    return adopted


class Sidecar:
    """Watches one run to its end, within the time its plan allows for delivery; then delivers for earlier ones."""

    def __init__(self, directory: Path, plan: RunPlan) -> None:
        self._directory = directory
        self._plan = plan
        self._main = Watch(directory, plan)
        self._adopted: list[Watch] = []
        self._stopping = False

    def stop(self) -> None:
        """Finish soon: called from a signal handler."""
        self._stopping = True

    def run(self) -> None:
        """Step until the run is over and delivered, or its time is."""
        main = self._main
        looked = False
        deadline = float("inf")
        while True:
            main.step()
            self._deliver(0.02 if main.ended else POLL_SECONDS)
            if main.link.connected and not looked:
                looked = True
                self._adopted = adopt(self._directory.parent, self._directory, self._plan.endpoint)
            self._serve_adopted()
            if main.ended and deadline == float("inf"):
                deadline = time.monotonic() + self._plan.drain_seconds
            if main.delivered or time.monotonic() > deadline or self._stopping:
                break
        report = main.report()
        if main.delivered and not self._plan.launcher_lives:
            main.forget()
        else:
            main.close()
            # Told to stop while the command runs, it is only the sidecar that ends: the launcher starts another.
            if load_end(self._directory) is not None:
                save(self._directory, REPORT, report)
        # The launcher is free to go from here on.
        deadline = time.monotonic() + self._plan.drain_seconds
        while any(watch.ended for watch in self._adopted) and time.monotonic() < deadline and not self._stopping:
            self._serve_adopted(0.02)
        for watch in self._adopted:
            watch.close()

    def _deliver(self, seconds: float) -> None:
        """Send and hear for so long: an acknowledgement is no reason to read the rings again, row by row."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._stopping:
            self._main.link.pump(left)
            if self._main.delivered:
                return

    def _serve_adopted(self, timeout: float = 0.0) -> None:
        for watch in list(self._adopted):
            watch.step()
            watch.link.pump(timeout)
            if watch.delivered:
                watch.forget()
                self._adopted.remove(watch)


def main(arguments: list[str]) -> int:
    """Watch the run whose plan is in the given directory."""
    directory = Path(arguments[0])
    sidecar = Sidecar(directory, load_plan(directory))
    signal.signal(signal.SIGTERM, lambda number, frame: sidecar.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sidecar.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
