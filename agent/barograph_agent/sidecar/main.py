"""The sidecar: a process beside the application that reads rings, spools rows and delivers them to the collector.

`python -m barograph_agent.sidecar.main SPOOL_DIRECTORY` watches the program of one `barograph run`, whose plan is in
that directory. `nodewatch` watches all programs of a batch job on one node. Both also deliver this user's orphaned
spools on this node, left because the collector was not reachable or the launcher was killed.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import stat
import sys
from collections import deque
from pathlib import Path
from typing import Final, Generic, TypeVar

import msgspec

from barograph_agent.deliver.link import pump
from barograph_agent.deliver.shards import shard_of_spool
from barograph_agent.deliver.spool import SpoolError
from barograph_agent.settings import places
from barograph_agent.sidecar.plan import REPORT, RunPlan, load_end, load_plan, save
from barograph_agent.sidecar.watch import Watch
from barograph_agent.system.disk import Disk
from barograph_agent.system.network import Descriptor, Source
from barograph_agent.system.system import SYSTEM, System

MAX_ADOPTED: Final = 16
"""Orphans that are delivered at the same time."""
POLL_SECONDS: Final = 0.5
BUSY_POLL_SECONDS: Final = 0.2
"""Poll interval while rings fill fast."""
POLL_SPREAD: Final = 0.5
"""Polls are later than at these intervals by up to this share of them. What a node does at a period of its own, such as
to stop a process each tenth of a second, is seen in all of its phases."""
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
DRAIN_POLL_SECONDS: Final = 0.02
"""Poll interval during final delivery."""

_OF_A_SPOOL: Final = re.compile(r"\d{12}\.seg|lock|(dropped|(end|report|token)\.json)(\.part)?|sidecar\.log")
"""Files of a spool beside its plan, which is the first that is created."""

AnyWatch = TypeVar("AnyWatch", bound=Watch)


def poll_seconds(usual: float, number: int) -> float:
    """Seconds until the next poll, on average `usual`. number: of the poll."""
    return usual * (1 + POLL_SPREAD * ((number + 1) * _GOLDEN % 1 - number * _GOLDEN % 1))


def plans(root: Path, system: System = SYSTEM) -> dict[Path, RunPlan]:
    """Plans of runs under `root`, by spool directory."""
    found = {}
    for directory in (root / name for name in system.disk.names(root)):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            found[directory] = load_plan(directory, system.disk)
    return found


def orphans(root: Path, system: System = SYSTEM) -> dict[Path, RunPlan]:
    """Plans of runs under `root` whose launcher has ended, by spool directory."""
    return {at: plan for at, plan in plans(root, system).items() if not plan.launcher_lives(system.processes)}


class Orphans:
    """The orphans under a directory that no other process owns, delivered a few at a time.

    A link takes several descriptors, of which a user may have a thousand, and a node hundreds of orphans.
    """

    def __init__(self, root: Path, collectors: str, system: System = SYSTEM) -> None:
        """collectors: addresses with commas between."""
        self.watches: dict[Path, Watch] = {}
        """Those that are being delivered, by spool directory."""
        for directory in (root / name for name in system.disk.names(root)):
            with contextlib.suppress(OSError):
                _delete_rest(directory, system.disk)
        self._waiting: dict[str, deque[tuple[Path, RunPlan]]] = {}
        """By collector: one that does not answer holds up those of no other."""
        known = places.endpoints(collectors)
        for directory, found in orphans(root, system).items():
            plan = msgspec.structs.replace(found, endpoint=shard_of_spool(found.endpoint, known))
            self._waiting.setdefault(plan.endpoint, deque()).append((directory, plan))
        self._most = max(MAX_ADOPTED // max(len(self._waiting), 1), 1)
        self._system = system
        self.adopt()

    @property
    def left(self) -> int:
        """Number of orphans that wait for others to be delivered."""
        return sum(map(len, self._waiting.values()))

    def adopt(self) -> None:
        """Begin with the next orphans, up to MAX_ADOPTED at once, as many of each collector."""
        for endpoint, waiting in self._waiting.items():
            busy = sum(watch.plan.endpoint == endpoint for watch in self.watches.values())
            while waiting and busy < self._most:
                directory, plan = waiting.popleft()
                with contextlib.suppress(SpoolError, OSError, msgspec.DecodeError):
                    self.watches[directory] = Watch(directory, plan, system=self._system)
                    busy += 1


def _delete_rest(directory: Path, disk: Disk) -> None:
    """Delete what is left of a spool whose deletion the node has not survived: all but its plan, which is first.

    Nothing is touched in a directory that holds anything else, or only a lock, which might be of another program.
    """
    names = disk.names(directory)
    if set(names) - {"lock"} and all(_OF_A_SPOOL.fullmatch(name) for name in names):
        for name in names:
            disk.unlink(directory / name, missing_ok=True)
        disk.remove_directory(directory)


class Sidecar(Generic[AnyWatch]):
    """Watches `programs` until each has ended and is delivered, then delivers orphaned spools under `spools`.

    Each of the two deliveries is limited to `drain_seconds`. Subclasses add programs in `find`.
    """

    def __init__(
        self,
        spools: Path,
        collectors: str,
        drain_seconds: float,
        programs: dict[Path, AnyWatch] | None = None,
        system: System = SYSTEM,
        launcher: Descriptor | None = None,
    ) -> None:
        """collectors: for orphans, addresses with commas between.

        launcher: becomes readable when the launcher has written the end of the command.
        """
        self._system = system
        self.programs: dict[Path, AnyWatch] = programs or {}
        self.adopted: Orphans | None = None
        """None until the collector is first reached."""
        self._spools = spools
        self._collectors = collectors
        self._drain_seconds = drain_seconds
        self._launcher = launcher
        self._adopts = True
        self._polls = 0
        self._stopping = False

    @property
    def is_over(self) -> bool:
        """True once only delivery remains."""
        return all(watch.ended for watch in self.programs.values())

    def stop(self) -> None:
        """Make `run` return soon. Callable from a signal handler."""
        self._stopping = True

    def find(self) -> None:
        """Add programs that have started, and end those whose processes have ended. Does not raise on a full disk."""

    def adopt_next(self) -> None:
        """Begin with further orphans where others are delivered."""
        if self.adopted is not None:
            self.adopted.adopt()

    def run(self) -> None:
        """Step until everything is delivered or the time limit has passed."""
        monotonic = self._system.clock.monotonic
        deadline = float("inf")
        while not self._stopping:
            self.step()
            if not self.is_over:
                deadline = float("inf")  # a batch job may start again
            else:
                deadline = min(deadline, monotonic() + self._drain_seconds)
                if not self.programs or self._is_in_vain or monotonic() > deadline:
                    break
            self._wait(self._seconds_to_wait())
        self.leave()
        # The launcher now has its report and exits.
        adopted = self._adopted
        deadline = monotonic() + self._drain_seconds
        while any(watch.ended for watch in adopted.values()) and monotonic() < deadline and not self._stopping:
            self._serve(adopted)
            self._wait(DRAIN_POLL_SECONDS)
        for watch in adopted.values():
            watch.close()

    @property
    def _adopted(self) -> dict[Path, Watch]:
        return self.adopted.watches if self.adopted is not None else {}

    def step(self) -> None:
        """Find programs, read rings, spool and send. Does not raise on a full disk: the next step retries."""
        self.find()
        self._serve(self.programs)
        # After the programs: a short one may be delivered and released at the first answer of the collector.
        self._serve(self._adopted)

    def release(self, watch: Watch) -> None:
        """Close a program. Deletes it if it is delivered and no launcher waits for a report."""
        # True if another process started the program and waits for its report.
        processes = self._system.processes
        has_launcher = watch.plan.launcher != processes.own() and watch.plan.launcher_lives(processes)
        if watch.delivered and not has_launcher:
            watch.delete()
            return
        report = watch.report() if has_launcher else None
        watch.close()
        # Without an end the command still runs and only the sidecar was stopped: the launcher starts another one.
        if report is not None and load_end(watch.directory, self._system.disk) is not None:
            save(watch.directory, REPORT, report, self._system.disk)

    def leave(self) -> None:
        """Release the programs that were not delivered in time."""
        for watch in self.programs.values():
            self.release(watch)
        self.programs.clear()

    @property
    def _is_in_vain(self) -> bool:
        """Whether the collector has refused all that is left, as it takes no rows of anybody."""
        return all(watch.link.is_withheld for watch in self.programs.values())

    def _serve(self, watches: dict[Path, AnyWatch] | dict[Path, Watch]) -> None:
        for directory, watch in list(watches.items()):
            watch.step()
            watch.link.pump()
            if watch.link.connected and self.adopted is None and self._adopts:
                self.adopted = Orphans(self._spools, self._collectors, self._system)
            if watch.delivered:
                self.release(watch)
                del watches[directory]
                self.adopt_next()

    def _seconds_to_wait(self) -> float:
        if self.is_over:
            return DRAIN_POLL_SECONDS
        is_busy = any(watch.is_busy for watch in self.programs.values())
        self._polls += 1
        return poll_seconds(BUSY_POLL_SECONDS if is_busy else POLL_SECONDS, self._polls)

    def _wait(self, seconds: float) -> None:
        """Send and receive until the next step is due. Acknowledgements do not cause a reading of the rings."""
        watches: list[Watch] = [*self.programs.values(), *self._adopted.values()]
        monotonic = self._system.clock.monotonic
        until = monotonic() + seconds
        also: tuple[Source, ...] = () if self._launcher is None else (self._launcher,)
        while (left := until - monotonic()) > 0 and not self._stopping:
            pump([watch.link for watch in watches], left, self._system, also)
            if self._launcher is not None and self._launcher.is_readable():
                self._launcher = None
                return
            if any(watch.delivered for watch in watches):
                return


def main(arguments: list[str]) -> int:
    """Watch the run whose plan is in the given directory."""
    directory = Path(arguments[0])
    plan = load_plan(directory)
    # The launcher's end of a pipe. It also closes when the launcher is killed.
    launcher = Descriptor(0) if stat.S_ISFIFO(os.fstat(0).st_mode) else None
    watch = Watch(directory, plan)
    collectors = plan.collectors or plan.endpoint
    sidecar = Sidecar(directory.parent, collectors, plan.drain_seconds, {directory: watch}, launcher=launcher)
    signal.signal(signal.SIGTERM, lambda number, frame: sidecar.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sidecar.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
