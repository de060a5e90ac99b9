"""A step of a batch job on this node: a directory made by a hook, in which the rings of its programs appear."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from barograph_agent.feature_files.side_file import SUFFIX, BadSideFile, read_pid
from barograph_agent.job import processes, rules
from barograph_agent.job.batch import Allocation, allocation
from barograph_agent.job.identity import Job, clean, guess_app
from barograph_agent.ring.reader import Ring, RingError
from barograph_agent.settings import places
from barograph_agent.sidecar.plan import PLAN, RunPlan, myself, save
from barograph_agent.sidecar.program import Program, started_at

FACTS: Final = "step"
"""The file in which the hook has put the job's variables from the task's environment, NAME=value a line."""
_LAUNCHED: Final = "PMIX_NAMESPACE"
"""Equal for all ranks that one mpirun of Open MPI starts, on all nodes and in all steps."""
_TICK_NS: Final = 10**8
"""Longer than a tick of any file system's clock: changes within one tick have the same modification time."""


class StepOptions(msgspec.Struct, frozen=True):
    """What all steps of a job on this node have in common."""

    spool: Path
    endpoint: str
    user: str
    node: str
    drain_seconds: float
    spool_bytes: int
    rows_per_second: float


class Step:
    """Sorts rings into programs. Most steps are one program; a batch script may call mpirun again and again."""

    def __init__(self, directory: Path, environment: Mapping[str, str], settings: StepOptions) -> None:
        """`environment` is the scheduler's, on this node. `directory` is named RESTART.STEP."""
        restart, _, name = directory.name.partition(".")
        self._name = clean(name, "unknown", 36)
        self._directory = directory
        self._settings = settings
        self._environment = environment
        self._restart = int(restart) if restart.isdecimal() else 0
        self._settled_ns = -1

    def find(self, programs: dict[Path, Program]) -> None:
        """Move new rings to their programs, adding to `programs` by ring directory. Raises OSError and SpoolError."""
        now_ns, changed_ns = time.time_ns(), self._directory.stat().st_mtime_ns
        if changed_ns == self._settled_ns:
            return
        for path in sorted(self._directory.glob("*.ring")):
            try:
                with Ring(path) as ring:
                    directory = self._place(ring, programs)
                    if directory not in programs:
                        programs[directory] = self._begin(ring, directory)
            except RingError:
                path.rename(path.with_suffix(".unreadable"))
                continue
            programs[directory].join(path)
        self._sort_features(programs)
        if now_ns - changed_ns > _TICK_NS:
            self._settled_ns = changed_ns

    def _sort_features(self, programs: Mapping[Path, Program]) -> None:
        """Move side files to the programs of their processes. One whose process has no ring yet stays."""
        for path in sorted(self._directory.glob(f"*{SUFFIX}")):
            with contextlib.suppress(BadSideFile, OSError):
                pid = read_pid(path)
                owner = next((one for one in programs.values() if one.is_in(self._directory) and one.has(pid)), None)
                if owner is not None:
                    owner.move_in(path)

    def _place(self, ring: Ring, programs: Mapping[Path, Program]) -> Path:
        """The ring directory of the program that a ring belongs to: one that runs, else a new one."""
        launched = processes.environment(ring.pid).get(_LAUNCHED, "")
        by_slurm = not launched or launched.startswith("slurm.")
        name = self._name if by_slurm else f"mpi-{clean(launched, 'unknown', 36)}"
        count = 1
        while _mark(directory := self._directory / (name if count == 1 else f"{name}-{count}")).exists():
            if directory in programs and programs[directory].accepts(ring):
                break
            count += 1
        return directory

    def _begin(self, ring: Ring, directory: Path) -> Program:
        settings = self._settings
        command = processes.command(ring.pid)
        job = self._job(directory.name, command)
        spool = settings.spool / f"{job.key.replace('/', '-')}-{settings.node}-{secrets.token_hex(4)}"
        launcher, born = myself()
        plan = RunPlan(
            job=job,
            stream=f"{job.key}/{settings.node}-{secrets.token_hex(4)}",
            endpoint=settings.endpoint,
            ring_directory=str(directory),
            step_directory=str(self._directory),
            started_at=started_at(ring),
            launcher=launcher,
            launcher_born=born,
            drain_seconds=settings.drain_seconds,
            spool_bytes=settings.spool_bytes,
            findings=_findings(command),
            rows_per_second=settings.rows_per_second,
        )
        directory.mkdir(mode=0o700)
        try:
            spool.mkdir(mode=0o700)
            save(spool, PLAN, plan)
            program = Program(spool, plan)
            _mark(directory).touch()
        except BaseException:
            shutil.rmtree(spool, ignore_errors=True)
            directory.rmdir()
            raise
        return program

    def _job(self, name: str, command: list[str]) -> Job:
        found = self._allocation()
        return Job(
            cluster=clean(self._environment.get("BAROGRAPH_CLUSTER") or found.cluster, "local", 24),
            id=clean(found.id, "unknown"),
            restart=max(self._restart, found.restart),
            step=name,
            user=self._settings.user,
            host=self._settings.node,
            app=guess_app(command),
            params={},
            guessed=True,
            scheduler=found.scheduler,
            nodes=found.nodes,
            account=clean(found.account, "", 64),
            unique_id=clean(found.unique_id, "", 64),
        )

    def _allocation(self) -> Allocation:
        facts = (line.partition("=") for line in (self._directory / FACTS).read_text(errors="replace").splitlines())
        return allocation({**self._environment, **{name: value for name, _, value in facts if value}})


def _mark(directory: Path) -> Path:
    """A file that stays when a program's directory is deleted, so that the name is not used again."""
    return directory.with_name(f"{directory.name}.begun")


def _findings(command: list[str]) -> rules.Findings:
    """What the site's rules find; nothing where they cannot be used, which `barograph doctor` reports."""
    path = places.rules(os.environ)
    try:
        return rules.apply(rules.read(path), command) if path else rules.Findings()
    except rules.RulesError:
        return rules.Findings()
