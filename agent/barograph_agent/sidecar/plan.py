"""What a launcher leaves for its sidecar, and the sidecar for its launcher: three small files in the spool directory.

`plan.json` before the command starts, `end.json` when it has ended, `report.json` when the sidecar is done.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from barograph_agent.deliver.spool import replace_file
from barograph_agent.job.identity import Job
from barograph_agent.job.processes import born
from barograph_agent.job.rules import Findings
from barograph_agent.reduce.blocks import ROWS_PER_SECOND

PLAN: Final = "plan.json"
END: Final = "end.json"
REPORT: Final = "report.json"
TOKEN: Final = "token.json"
"""The run's own job token, where it has one."""
RING_VARIABLE: Final = "BAROGRAPH_RING_DIR"
"""Where the shim puts its ring; without it the shim does nothing."""


class RunPlan(msgspec.Struct, frozen=True):
    """Everything a sidecar needs to know, also one that finds the run after its launcher is gone."""

    job: Job
    stream: str
    endpoint: str
    ring_directory: str
    started_at: float
    """Unix seconds."""
    launcher: int
    launcher_born: int
    """Start time of the launcher's process, so that a reused process id is not taken for it."""
    drain_seconds: float
    spool_bytes: int
    findings: Findings = Findings()
    rows_per_second: float = ROWS_PER_SECOND
    """Rows of `blocks` in the long run."""
    step_directory: str = ""
    """Of a program that hooks of the batch system watch: what its processes have for their ring directory."""
    feature_directory: str = ""
    """Where the program's side files are."""

    @property
    def launcher_lives(self) -> bool:
        """True while the process that started the run is there."""
        return born(self.launcher) == self.launcher_born

    @property
    def command_lives(self) -> bool:
        """True while a process is there that was started with this run's ring directory in its environment."""
        entry = os.fsencode(f"{RING_VARIABLE}={self.step_directory or self.ring_directory}")
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if entry in path.read_bytes().split(b"\0"):
                    return True
        return False


class CommandEnd(msgspec.Struct, frozen=True):
    """How the command ended: Unix seconds, seconds, exit status as a shell says it."""

    ended_at: float
    runtime_seconds: float
    exit_status: int


class DeliveryReport(msgspec.Struct, frozen=True):
    """What became of a run's intervals: seen = stored + spooled + dropped."""

    ranks: int
    seen: int
    stored: int
    spooled: int
    dropped: int
    reached: bool
    """True when the collector answered at the end."""
    verdict: str
    """The alerts daemon's sentence; empty where none came."""
    notes: list[str] = []
    """What went wrong on the way, a line each."""
    delivered: bool = False
    """True when the collector has everything and nothing needs to be kept."""


def myself() -> tuple[int, int]:
    """This process and when it started."""
    return os.getpid(), born(os.getpid())


def save(directory: Path, name: str, value: RunPlan | CommandEnd | DeliveryReport) -> None:
    """Write one of the three files, whole or not at all."""
    replace_file(directory / name, msgspec.json.encode(value))


def load_plan(directory: Path) -> RunPlan:
    """The plan in a spool directory. Raises OSError or msgspec.DecodeError."""
    return msgspec.json.decode((directory / PLAN).read_bytes(), type=RunPlan)


def load_end(directory: Path) -> CommandEnd | None:
    """How the command ended, or None while it runs."""
    try:
        return msgspec.json.decode((directory / END).read_bytes(), type=CommandEnd)
    except FileNotFoundError:
        return None


def load_report(directory: Path) -> DeliveryReport | None:
    """The sidecar's report, or None where it has left none."""
    try:
        return msgspec.json.decode((directory / REPORT).read_bytes(), type=DeliveryReport)
    except FileNotFoundError:
        return None
