"""A step of a batch job on this node: a directory created by a hook, in which its processes create rings."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from barograph_agent.feature_files.side_file import SUFFIX, BadSideFile, read_pid
from barograph_agent.job import rules
from barograph_agent.job.identity import clean, from_environment
from barograph_agent.ring.reader import Ring, RingError
from barograph_agent.settings import places
from barograph_agent.sidecar.plan import RunOptions, begin_run
from barograph_agent.sidecar.run import WatchedRun
from barograph_agent.system.disk import Disk
from barograph_agent.system.processes import seconds
from barograph_agent.system.system import SYSTEM, System

FACTS: Final = "step"
"""The file in which the hook stores the job's variables from the task's environment, NAME=value per line."""
MAX_FACTS_BYTES: Final = 2**16
_LAUNCHED: Final = "PMIX_NAMESPACE"
"""Unique per mpirun of Open MPI, and the same for all of its ranks on all nodes."""
_TICK_NS: Final = 10**8
"""Exceeds the timestamp granularity of any file system: changes within it may have the same modification time."""


class StepOptions(msgspec.Struct, frozen=True):
    """Settings of all steps of a job on this node. spool: the user's directory of spools."""

    spool: Path
    user: str
    node: str
    run: RunOptions


class Step:
    """Assigns rings to runs. Most steps are one run; a batch script may call mpirun repeatedly."""

    def __init__(
        self, directory: Path, environment: Mapping[str, str], settings: StepOptions, system: System = SYSTEM
    ) -> None:
        """directory: named RESTART.STEP. environment: the sidecar's, with the scheduler's variables of the job."""
        restart, _, name = directory.name.partition(".")
        self._name = clean(name, "unknown", 36)
        self._directory = directory
        self._settings = settings
        self._system = system
        self._environment = dict(environment)
        self._restart = int(restart) if restart.isdecimal() else None
        self._scanned_ns = -1

    def find(self, runs: dict[Path, WatchedRun]) -> None:
        """Move new rings to the directories of their runs; adds new runs to `runs`, by ring directory.

        Raises OSError and SpoolError.
        """
        now_ns, changed_ns = self._system.clock.now_ns(), self._directory.stat().st_mtime_ns
        if changed_ns == self._scanned_ns:
            return
        for path in sorted(self._directory.glob("*.ring")):
            try:
                with Ring(path) as ring:
                    directory = self._place(ring, runs)
                    if directory not in runs:
                        runs[directory] = self._begin(ring, directory)
            except RingError:
                path.rename(path.with_suffix(".unreadable"))
                continue
            path.rename(directory / path.name)
            runs[directory].find()
        # Side files of processes without a ring yet stay.
        here = {directory: run for directory, run in runs.items() if directory.parent == self._directory}
        for path in sorted(self._directory.glob(f"*{SUFFIX}")):
            with contextlib.suppress(BadSideFile, OSError):
                pid = read_pid(path)
                directory = next((directory for directory, run in here.items() if run.has(pid)), self._directory)
                path.rename(directory / path.name)
        if now_ns - changed_ns > _TICK_NS:
            self._scanned_ns = changed_ns

    def _place(self, ring: Ring, runs: Mapping[Path, WatchedRun]) -> Path:
        """The ring directory of the run that a ring belongs to: of one that has not ended, else a new one."""
        launched = self._system.processes.environment(ring.pid).get(_LAUNCHED, "")
        by_slurm = not launched or launched.startswith("slurm.")
        name = self._name if by_slurm else f"mpi-{clean(launched, 'unknown', 36)}"
        count = 1
        while _mark(directory := self._directory / (name if count == 1 else f"{name}-{count}")).exists():
            if directory in runs and runs[directory].accepts(ring):
                break
            count += 1
        return directory

    def _begin(self, ring: Ring, directory: Path) -> WatchedRun:
        settings = self._settings
        command = self._system.processes.command(ring.pid)
        job = from_environment(
            self._environment | facts(self._directory, self._system.disk),
            command=command,
            user=settings.user,
            host=settings.node,
            step=directory.name,
            restart=self._restart,
        )
        spool = settings.spool / f"{job.key.replace('/', '-')}-{settings.node}-{secrets.token_hex(4)}"
        directory.mkdir(mode=0o700)
        try:
            plan = begin_run(
                spool,
                job,
                directory,
                settings.run,
                self._system,
                stream=f"{job.key}/{settings.node}-{secrets.token_hex(4)}",
                step_directory=str(self._directory),
                started_at=_started_at(ring, self._system),
                findings=self._findings(command),
            )
            run = WatchedRun(spool, plan, system=self._system)
            _mark(directory).touch()
        except BaseException:
            shutil.rmtree(spool, ignore_errors=True)
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return run

    def _findings(self, command: list[str]) -> rules.Findings:
        """Result of the site's rules; empty if they are invalid, which `barograph doctor` reports."""
        path = places.rules(self._environment)
        try:
            return rules.apply(rules.read(path), command) if path else rules.Findings()
        except rules.RulesError:
            return rules.Findings()


def facts(directory: Path, disk: Disk) -> dict[str, str]:
    """The job's variables in the environment of the tasks of a step. Raises OSError."""
    text = disk.read(directory / FACTS, MAX_FACTS_BYTES).decode(errors="replace")
    lines = (line.partition("=") for line in text.splitlines())
    return {name: value for name, _, value in lines if value}


def _started_at(ring: Ring, system: System) -> float:
    """Start time of a ring's process, Unix seconds; if the process has ended, the time when MPI_Init returned."""
    ticks, now = system.processes.born(ring.pid), system.clock.now()
    at = now - system.clock.since_boot() + seconds(ticks) if ticks >= 0 else ring.started_unix_ns * 1e-9
    return min(at, now)


def _mark(directory: Path) -> Path:
    """A file that remains when a run's directory is deleted, so that the name is not reused."""
    return directory.with_name(f"{directory.name}.begun")
