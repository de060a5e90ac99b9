"""The sidecar of one batch job on one node, started by hooks of the batch system.

`python -m barograph_agent.sidecar.nodewatch RINGS SPOOL ACTIVE`: the job's directory of rings, with a subdirectory per
step; the user's directory of spools; a file that exists while the job runs. The environment contains the scheduler's
variables of the job on this node.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import secrets
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from barograph_agent.deliver.shards import shard_of_spool
from barograph_agent.deliver.spool import SpoolError
from barograph_agent.feature_files.side_file import SUFFIX, BadSideFile, read_pid
from barograph_agent.job import rules
from barograph_agent.job.identity import clean, from_environment
from barograph_agent.ring.reader import Ring, RingError
from barograph_agent.settings import agent, places
from barograph_agent.sidecar.main import Sidecar, adopt, plans
from barograph_agent.sidecar.output import JobOutput, NoOutput, is_verdict_wanted
from barograph_agent.sidecar.plan import RunOptions, begin_run, facts
from barograph_agent.sidecar.run import WatchedRun
from barograph_agent.system.processes import raise_descriptor_limit, seconds
from barograph_agent.system.system import SYSTEM, System

LEAVE_SECONDS: Final = 60.0
"""After the end of a job and twice the time for delivery, its sidecar is gone."""
MAX_RECENT: Final = 64
"""Steps that are scanned each time, the newest ones: most of those before have ended."""
TURNS: Final = 20
"""Each of the others is scanned once in so many times."""
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


def _started_at(ring: Ring, system: System) -> float:
    """Start time of a ring's process, Unix seconds; if the process has ended, the time when MPI_Init returned."""
    ticks, now = system.processes.born(ring.pid), system.clock.now()
    at = now - system.clock.since_boot() + seconds(ticks) if ticks >= 0 else ring.started_unix_ns * 1e-9
    return min(at, now)


def _mark(directory: Path) -> Path:
    """A file that remains when a run's directory is deleted, so that the name is not reused."""
    return directory.with_name(f"{directory.name}.begun")


class JobSidecar(Sidecar):
    """Watches the runs in the steps of one job on this node until the job has ended: until its file is gone."""

    def __init__(
        self,
        rings: Path,
        active: Path,
        settings: StepOptions,
        environment: Mapping[str, str] = os.environ,
        system: System = SYSTEM,
        output: JobOutput | None = None,
        postpone: Callable[[], object] = lambda: None,
    ) -> None:
        """output: takes the verdicts, where they are wanted. postpone: called in each step while the job runs."""
        super().__init__(settings.spool, settings.run.endpoint, settings.run.drain_seconds, system=system)
        self._rings = rings
        self._active = active
        self._settings = settings
        self._environment = environment
        self._steps: dict[str, Step] = {}
        self._searches = 0
        self._has_ended = False
        self._output = output
        self._postpone = postpone

    @property
    def is_over(self) -> bool:
        """True once the job had ended before the last search for runs."""
        return self._has_ended

    def run(self) -> None:
        """Continue the runs of an earlier sidecar of this job, which has ended; then run as any sidecar."""
        collectors = self._settings.run.endpoint
        for directory, plan in plans(self._settings.spool, self._system).items():
            if Path(plan.step_directory).parent == self._rings:
                with contextlib.suppress(OSError, SpoolError):
                    endpoint = shard_of_spool(plan.endpoint, places.endpoints(collectors))
                    run = adopt(directory, plan, self._system, endpoint=endpoint, collectors=collectors)
                    self.runs[Path(plan.ring_directory)] = run
        super().run()

    def find(self) -> None:
        """Assign new rings to runs."""
        self._has_ended = not self._active.exists()
        if not self._has_ended:
            self._postpone()
        # listdir, because a job may have thousands of steps, and this runs several times a second.
        names = os.listdir(self._rings) if self._rings.is_dir() else []  # noqa: PTH208
        for name in sorted(set(names) - self._steps.keys()):
            if (self._rings / name).is_dir():
                self._steps[name] = Step(self._rings / name, self._environment, self._settings, self._system)
        self._searches += 1
        steps = list(self._steps.values())
        older = steps[:-MAX_RECENT] if self._has_ended else steps[self._searches % TURNS : -MAX_RECENT : TURNS]
        for step in (*older, *steps[-MAX_RECENT:]):
            with contextlib.suppress(OSError, SpoolError):
                step.find(self.runs)

    def release(self, run: WatchedRun) -> None:
        """Close a run, after the verdict on it where that is wanted."""
        if self._output is not None and run.delivered and run.reports_job and run in self.runs.values():
            self._output.add(run)
        super().release(run)

    def leave(self) -> None:
        """Release runs, write the verdicts, and delete the job's directory of rings unless a program still runs."""
        running = any(not run.ended for run in self.runs.values())
        super().leave()
        # Before its end the job itself writes to its output, and not necessarily at the end of the file.
        if self._output is not None and self._has_ended:
            try:
                self._output.append(self._settings.node)
            except (NoOutput, OSError) as error:
                print(f"barograph: no verdict in the output of the job: {error}", file=sys.stderr)
        # The same job may have started again on this node.
        if not (running or self._active.exists()):
            shutil.rmtree(self._rings, ignore_errors=True)
            if self._active.exists():  # since then
                places.private_directory(self._rings)
            # Links named like other nodes' directories, created by the hook if a launcher passed those names on.
            for path in self._rings.parent.iterdir():
                if path.is_symlink() and path.readlink() == Path(self._rings.name):
                    path.unlink(missing_ok=True)


def _lock(path: Path) -> int:
    """Wait for other sidecars of this job to end. Returns the locked file descriptor."""
    while True:
        places.private_directory(path.parent)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        # The process that held the lock may have deleted the file.
        with contextlib.suppress(OSError):
            if path.stat().st_ino == os.fstat(file).st_ino:
                return file
        os.close(file)


def step_options(spool: Path, node: str, environment: Mapping[str, str]) -> StepOptions:
    """Settings of the steps, from the environment completed by the table [agent] of the configuration.

    Raises ValueError for an invalid address of the collector.
    """
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    run = RunOptions(
        places.check_endpoints(places.endpoint(environment)),
        spool_bytes=agent.value_or_default("spool_bytes", environment),
        rows_per_second=agent.value_or_default("budget", environment),
    )
    return StepOptions(spool, user, clean(node, "unknown", 64), run)


def main(arguments: list[str]) -> int:
    """Watch the job whose rings are in the given directory until it has ended."""
    raise_descriptor_limit()
    rings, spool, active = map(Path, arguments)
    places.private_directory(spool)
    log = spool / f"{rings.name}.log"
    with contextlib.suppress(OSError):
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), sys.stderr.fileno())
    file = _lock(rings / "lock")
    environment, complaint = agent.environment_or_complaint(os.environ)
    if complaint:
        print(f"barograph: {complaint}; going on without this file", file=sys.stderr)
    settings = step_options(spool, rings.name.rpartition("@")[2], environment)
    output = JobOutput(environment, SYSTEM) if is_verdict_wanted(active, SYSTEM.disk) else None
    # Whatever it waits for, such as a file system that hangs, a sidecar does not outlive its job for long: the signal
    # ends it. What it has not delivered is in its spool.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    postpone = partial(signal.alarm, int(LEAVE_SECONDS + 2 * settings.run.drain_seconds))
    postpone()
    sidecar = JobSidecar(rings, active, settings, environment, output=output, postpone=postpone)
    signal.signal(signal.SIGTERM, lambda number, frame: sidecar.stop())
    sidecar.run()
    os.close(file)
    if log.exists() and not log.stat().st_size:
        log.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
