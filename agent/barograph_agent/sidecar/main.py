"""The sidecar: a process beside the application that reads rings, spools rows and delivers them to the collector.

`python -m barograph_agent.sidecar.main SPOOL_DIRECTORY` watches the program of one `barograph run`, whose plan is in
that directory. `... --companion RINGS`, which the first rank on another node starts (the shim's `companion.c`), watches
the ranks there: RINGS is the directory of rings as the launcher has named it, BAROGRAPH_RUN has the launcher's plan. It
ends when all ranks on its node have ended and everything is delivered, or the time for that has passed. `nodewatch`
watches all programs of a batch job on one node.

Each also delivers this user's orphans on this node: spools of runs whose launcher has ended, left because the collector
was not reachable or the launcher was killed.
"""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import re
import secrets
import select
import shutil
import signal
import stat
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from barograph_agent.deliver.link import pump
from barograph_agent.deliver.shards import shard_of_spool
from barograph_agent.deliver.spool import SpoolError
from barograph_agent.job.identity import clean
from barograph_agent.settings import places
from barograph_agent.sidecar.plan import (
    PLAN,
    REPORT,
    RUN_VARIABLE,
    Earlier,
    RunPlan,
    leave,
    load_end,
    load_plan,
    myself,
    save,
    save_begun,
)
from barograph_agent.sidecar.run import WatchedRun
from barograph_agent.system.clock import STEP_SECONDS, until_step
from barograph_agent.system.disk import Disk
from barograph_agent.system.processes import raise_descriptor_limit
from barograph_agent.system.system import SYSTEM, System

COMPANION: Final = "--companion"
BUSY_STEP_SECONDS: Final = 0.25
"""Between two steps while rings fill fast, or a command has ended whose processes or other nodes are waited for."""
MAX_FILLED: Final = 0.5
"""Share of a ring; one that fills this far in STEP_SECONDS fills fast."""
DRAIN_POLL_SECONDS: Final = 0.02
"""Poll interval during final delivery."""
MAX_ADOPTED: Final = 16
"""Orphans that are delivered at the same time."""
_OF_A_SPOOL: Final = re.compile(r"spool\.sqlite(-\w+)?|lock|(end|report|token)\.json(\.part)?|sidecar\.log")
"""Files of a spool beside its plan, which is the first that is created."""


def _spools(root: Path, disk: Disk) -> list[Path]:
    """What is in a directory of spools; nothing where it is missing or another user's, who would say what is sent."""
    with contextlib.suppress(OSError):
        disk.check_own(root)
        return [root / name for name in disk.names(root)]
    return []


def plans(root: Path, system: System = SYSTEM) -> dict[Path, RunPlan]:
    """Plans of runs under `root`, by spool directory."""
    found = {}
    for directory in _spools(root, system.disk):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            found[directory] = load_plan(directory, system.disk)
    return found


def orphans(root: Path, system: System = SYSTEM) -> dict[Path, RunPlan]:
    """Plans of runs under `root` whose launcher has ended, by spool directory."""
    return {at: plan for at, plan in plans(root, system).items() if not plan.launcher_lives(system.processes)}


def adopt(directory: Path, plan: RunPlan, system: System, **changes: str) -> WatchedRun:
    """Continue the run of a sidecar that has ended, as its launcher. changes: of the plan.

    Raises SpoolError while that sidecar lives, and OSError.
    """
    launcher, born = myself(system.processes)
    own = msgspec.structs.replace(plan, launcher=launcher, launcher_born=born, **changes)
    run = WatchedRun(directory, own, system=system)
    try:
        save(directory, PLAN, own, system.disk)
    except OSError:
        run.close()
        raise
    return run


class Orphans:
    """The orphans under a directory that no other process owns, delivered a few at a time.

    A link has several descriptors, of which a user may have a thousand, and a node hundreds of orphans.
    """

    def __init__(self, root: Path, collectors: str, system: System = SYSTEM) -> None:
        """collectors: addresses with commas between."""
        self.runs: dict[Path, WatchedRun] = {}
        """Those that are being delivered, by spool directory."""
        for directory in _spools(root, system.disk):
            with contextlib.suppress(OSError):
                _delete_rest(directory, system.disk)
        self.unusable: dict[str, Exception] = {}
        """Why a spool cannot be opened, by job: a damaged database, a full disk, another owner."""
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
            busy = sum(run.plan.endpoint == endpoint for run in self.runs.values())
            while waiting and busy < self._most:
                directory, plan = waiting.popleft()
                try:
                    self.runs[directory] = WatchedRun(directory, plan, system=self._system)
                    busy += 1
                except (SpoolError, OSError, msgspec.DecodeError) as error:
                    self.unusable[plan.job.key] = error


def _delete_rest(directory: Path, disk: Disk) -> None:
    """Delete what is left of a spool whose deletion the node has not survived: all but its plan, which is first.

    Nothing is touched in a directory that holds anything else, or only a lock, which might be of another program.
    """
    disk.check_own(directory)
    names = disk.names(directory)
    if set(names) - {"lock"} and all(_OF_A_SPOOL.fullmatch(name) for name in names):
        for name in names:
            disk.unlink(directory / name, missing_ok=True)
        disk.remove_directory(directory)


class Sidecar:
    """Watches `runs` until each has ended and is delivered, then delivers orphaned spools under `spools`.

    Each of the two deliveries is limited to `drain_seconds`. Subclasses add runs in `find`.
    """

    def __init__(
        self,
        spools: Path,
        collectors: str,
        drain_seconds: float,
        runs: dict[Path, WatchedRun] | None = None,
        system: System = SYSTEM,
        launcher: int | None = None,
    ) -> None:
        """collectors: for orphans, addresses with commas between.

        launcher: becomes readable when the launcher has written the end of the command.
        """
        self._system = system
        self.runs: dict[Path, WatchedRun] = {} if runs is None else runs
        self.adopted: Orphans | None = None
        """None until the collector is first reached, unless it is given before."""
        self._spools = spools
        self._collectors = collectors
        self._drain_seconds = drain_seconds
        self._launcher = launcher
        self._step_seconds = STEP_SECONDS
        self.given_up = 0
        """Runs that were not delivered for a defect."""
        self._stopping = False

    @property
    def is_over(self) -> bool:
        """True once only delivery remains."""
        return all(run.ended or run.is_stuck for run in self.runs.values())

    def stop(self) -> None:
        """Make `run` return soon. Callable from a signal handler."""
        self._stopping = True

    def find(self) -> None:
        """Add runs that have started. Does not raise on a full disk."""

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
                if _is_refused(self.runs) or monotonic() > deadline:
                    break
            self._wait()
        self.leave()
        # The launcher now has its report and exits.
        adopted = self._adopted
        deadline = monotonic() + self._drain_seconds
        while any(run.ended or not run.steps for run in adopted.values()):
            if _is_refused(adopted) or monotonic() >= deadline or self._stopping:
                break
            self._serve(adopted)
            self._wait()
        for run in adopted.values():
            self.release(run)

    @property
    def _adopted(self) -> dict[Path, WatchedRun]:
        return self.adopted.runs if self.adopted is not None else {}

    def step(self) -> None:
        """Find runs, read rings, spool and send. Does not raise on a full disk: the next step retries."""
        self.find()
        self._serve(self.runs)
        # After the runs: a short one may be delivered and released at the first answer of the collector.
        self._serve(self._adopted)

    def release(self, run: WatchedRun) -> None:
        """Close a run. Deletes it if it is delivered and no launcher waits for a report."""
        processes, disk = self._system.processes, self._system.disk
        has_launcher = run.plan.launcher != processes.own() and run.plan.launcher_lives(processes)
        if run.delivered and not has_launcher:
            run.delete()
            return
        report = run.report() if has_launcher else None
        run.close()
        # Without an end the command still runs and only the sidecar was stopped: the launcher starts another one.
        if report is not None and (run.ended or load_end(run.directory, run.plan, disk) is not None):
            with contextlib.suppress(OSError):  # the launcher goes on without it
                leave(run.directory, REPORT, report, run.plan, disk)

    def leave(self) -> None:
        """Release the runs that were not delivered in time."""
        for run in self.runs.values():
            self.release(run)
        self.runs.clear()

    def _serve(self, runs: dict[Path, WatchedRun]) -> None:
        for directory, run in list(runs.items()):
            try:
                run.step()
                run.link.pump()
            except Exception as error:
                # A defect, or a ring that nobody has foreseen: it ends this run's delivery, and that of no other.
                print(f"barograph: {run.plan.job.key} is given up: {error!r}", file=sys.stderr)
                self.given_up += 1
                with contextlib.suppress(Exception):
                    run.close()
                del runs[directory]
                continue
            if run.link.connected and self.adopted is None:
                self.adopted = Orphans(self._spools, self._collectors, self._system)
            if run.delivered:
                self.release(run)
                del runs[directory]
                if self.adopted is not None:
                    self.adopted.adopt()

    def _wait(self) -> None:
        """Wait for the next step. While ranks run nothing is done until then, whatever arrives."""
        runs = list(self.runs.values())
        if self.is_over:
            pump([run.link for run in [*runs, *self._adopted.values()]], DRAIN_POLL_SECONDS, self._system)
            return
        fast = any(run.is_hurried or run.filled > MAX_FILLED * self._step_seconds for run in runs)
        self._step_seconds = BUSY_STEP_SECONDS if fast else STEP_SECONDS
        seconds = until_step(self._system.clock.now(), self._step_seconds)
        self._system.network.wait([] if self._launcher is None else [self._launcher], seconds)
        if self._launcher is not None and select.select([self._launcher], [], [], 0)[0]:
            self._launcher = None
        for run in runs:
            run.may_end = self._launcher is None or run.is_hurried


def _is_refused(runs: Mapping[Path, WatchedRun]) -> bool:
    """Whether the collector has refused all that is left, as it takes no rows of anybody."""
    return all(run.link.is_withheld for run in runs.values())


def sidecar_of(run: WatchedRun, system: System = SYSTEM, launcher: int | None = None) -> Sidecar:
    """The sidecar of one run. launcher: see Sidecar."""
    plan, directory = run.plan, run.directory
    collectors = plan.collectors or plan.endpoint
    return Sidecar(directory.parent, collectors, plan.drain_seconds, {directory: run}, system, launcher)


def begin_companion(rings: Path, given: RunPlan, spools: Path, host: str, system: System = SYSTEM) -> WatchedRun:
    """The run on this node: that of a sidecar which has died, or a new one.

    given: the launcher's plan. Raises OSError and SpoolError.
    """
    launcher, born = myself(system.processes)
    for directory, plan in orphans(spools, system).items():
        if plan.ring_directory == str(rings) and plan.is_companion:
            return adopt(directory, plan, system, endpoint=given.endpoint)
    unique = f"{host}-{secrets.token_hex(4)}"
    plan = msgspec.structs.replace(
        given,
        job=msgspec.structs.replace(given.job, host=host),
        stream=f"{given.job.key}/{unique}",
        ring_directory=str(rings),
        step_directory=str(rings),
        feature_directory=given.feature_directory if given.feature_directory != given.ring_directory else "",
        is_companion=True,
        has_companions=False,
        earlier=Earlier.load(rings, system.disk),
        launcher=launcher,
        launcher_born=born,
    )
    directory = spools / f"{given.job.key.replace('/', '-')}-{unique}"
    system.disk.make_directory(directory, exist_ok=False)
    save_begun(directory, plan, system.disk)
    return WatchedRun(directory, plan, system=system)


def _find(arguments: list[str]) -> WatchedRun:
    """The run of this process. Raises OSError, SpoolError and msgspec.DecodeError."""
    if arguments[0] != COMPANION:
        return WatchedRun(Path(arguments[0]), load_plan(Path(arguments[0])))
    with contextlib.suppress(OSError):  # a rank that is bound to a core has passed that on
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    plan = msgspec.json.decode(os.environ.get(RUN_VARIABLE, ""), type=RunPlan)
    spools = places.private_directory(places.spool_root(os.environ))
    run = begin_companion(Path(arguments[1]), plan, spools, clean(platform.node(), "unknown", 64))
    log = os.open(run.directory / "sidecar.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(log, sys.stderr.fileno())
    return run


def main(arguments: list[str]) -> int:
    """Watch a run. 1 for a companion if the next program has rings there already."""
    raise_descriptor_limit()
    gc.freeze()  # what was imported stays, and is not looked through beside the ranks
    try:
        run = _find(arguments)
    except (msgspec.DecodeError, OSError, SpoolError):
        if arguments[0] != COMPANION:
            raise
        # Nobody would read the rings. Ranks go on writing to files without a name.
        shutil.rmtree(arguments[1], ignore_errors=True)
        return 0
    # The launcher's end of a pipe. It also closes when the launcher is killed.
    launcher = 0 if stat.S_ISFIFO(os.fstat(0).st_mode) and not run.plan.is_companion else None
    sidecar = sidecar_of(run, launcher=launcher)
    signal.signal(signal.SIGTERM, lambda number, frame: sidecar.stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sidecar.run()
    return int(bool(run.left))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
