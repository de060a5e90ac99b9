"""The verdicts on a batch job at the end of its output, where the site or the job's user wants them."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from barograph_agent.settings import places
from barograph_agent.sidecar.plan import NO_VERDICT, facts
from barograph_agent.sidecar.run import WatchedRun
from barograph_agent.system.disk import Disk
from barograph_agent.system.system import System

WANTED: Final = "verdict"
"""The line by which the hook marks a job, in the file that exists while it runs."""
MAX_MARK_BYTES: Final = 4096
MAX_RUNS: Final = 16
"""Verdicts of a job; further runs are counted."""
MAX_SECONDS: Final = 60.0
"""To wait for verdicts, of all runs of a job together. Rings hold what comes meanwhile."""
_PATTERN: Final = re.compile(r"%(.?)")


class NoOutput(Exception):
    """The name of the file that a job prints to is unknown. The text has the reason."""


def is_verdict_wanted(active: Path, disk: Disk) -> bool:
    """Whether the hook has marked the job of this file so."""
    try:
        return disk.read(active, MAX_MARK_BYTES).decode(errors="replace").strip() == WANTED
    except OSError:
        return False


def path_of(environment: Mapping[str, str], node: str) -> Path | None:
    """The file that a job of Slurm prints to, by the variables of its Prolog; None where it has none. Raises NoOutput.

    Those have the name as it was given; %A, %a, %j, %N, %u, %x and %% are replaced. node: that of the batch script, as
    far as is known. Slurm before 22.05 has no such variable, and a job without a batch script no file.
    """
    name = environment.get("SLURM_JOB_STDOUT", "")
    job, array = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_ARRAY_JOB_ID", "")
    values = {
        "%": "%",
        "A": array or job,
        "a": environment.get("SLURM_ARRAY_TASK_ID", ""),
        "j": job,
        "N": node,
        "u": environment.get("SLURM_JOB_USER", ""),
        "x": environment.get("SLURM_JOB_NAME", ""),
    }
    if not name:
        return None
    unknown = [letter for letter in _PATTERN.findall(name) if not values.get(letter)]
    if unknown or "\\" in name:
        raise NoOutput(f"SLURM_JOB_STDOUT is {name!r}, expected %A, %a, %j, %N, %u, %x or %%, of known values")
    expanded = _PATTERN.sub(lambda found: values[found[1]], name)
    return Path(environment.get("SLURM_JOB_WORK_DIR") or "/", expanded)


def append(path: Path, text: str, disk: Disk) -> None:
    """Append to a file that exists, if it is a regular one of this user's. Raises OSError."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    descriptor = disk.open(path, flags)
    try:
        status = disk.status(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            os.write(descriptor, text.encode())
    finally:
        disk.close(descriptor)


class JobOutput:
    """Gathers the verdicts on the runs of a job, to be appended when nothing else is written to its output."""

    def __init__(self, environment: Mapping[str, str], system: System) -> None:
        """environment: with the variables of the job's Prolog."""
        self._environment = dict(environment)
        self._system = system
        self._left = MAX_SECONDS
        self._lines: list[str] = []
        self._more = 0

    def add(self, run: WatchedRun) -> None:
        """Wait for the verdict on a run that is delivered."""
        if len(self._lines) == MAX_RUNS or self._left <= 0:
            self._more += 1
            return
        with contextlib.suppress(OSError):
            self._environment |= facts(Path(run.plan.step_directory), self._system.disk)
        monotonic = self._system.clock.monotonic
        began = monotonic()
        verdict = run.verdict() or NO_VERDICT
        self._left -= monotonic() - began
        collectors = run.plan.collectors or run.plan.endpoint
        address = places.job_address(run.plan.job.key, collectors, self._environment)
        self._lines.append(f"barograph: {address}: {verdict}\n")

    def append(self, node: str) -> None:
        """Append the verdicts to the job's output. node: this one. Raises NoOutput and OSError."""
        more = f"barograph: and {self._more:,} more runs, see barograph status\n" if self._more else ""
        text = "".join(self._lines) + more
        if text and (path := path_of(self._environment, node)) is not None:
            append(path, text, self._system.disk)
