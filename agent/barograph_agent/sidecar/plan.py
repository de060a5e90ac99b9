"""The files by which launcher and sidecar talk to each other: three small ones in the spool directory.

The launcher writes `plan.json` before the command starts and `end.json` when it has ended; the sidecar writes
`report.json` when it is done.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final, TypeVar

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
"""Names the directory in which the shim creates its ring; without it the shim does nothing."""
_Kind = TypeVar("_Kind")


class RunPlan(msgspec.Struct, frozen=True):
    """Everything a sidecar needs to know, also one that adopts the run after its launcher is gone."""

    job: Job
    stream: str
    endpoint: str
    ring_directory: str
    started_at: float
    """Unix seconds."""
    launcher: int
    launcher_born: int
    """Start time of the launcher's process, which tells it from a later process with the same id."""
    drain_seconds: float
    spool_bytes: int
    findings: Findings = Findings()
    rows_per_second: float = ROWS_PER_SECOND
    """Rows of `blocks` in the long run."""
    step_directory: str = ""
    """Of a program in a batch job under hooks: the ring directory in the environment of its processes."""
    feature_directory: str = ""
    """Directory of the program's side files; empty for the ring directory."""

    @property
    def launcher_lives(self) -> bool:
        """True while the process that started the run exists."""
        return born(self.launcher) == self.launcher_born

    @property
    def command_lives(self) -> bool:
        """True while a process exists that was started with this run's ring directory in its environment."""
        entry = os.fsencode(f"{RING_VARIABLE}={self.step_directory or self.ring_directory}")
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if entry in path.read_bytes().split(b"\0"):
                    return True
        return False


class CommandEnd(msgspec.Struct, frozen=True):
    """How the command ended: Unix seconds, seconds, exit status as a shell reports it."""

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
    """The alerts daemon's sentence; empty without one."""
    notes: list[str] = []
    """Problems, a line each."""
    delivered: bool = False
    """True when the collector has everything."""


def myself() -> tuple[int, int]:
    """Id and start time of this process."""
    return os.getpid(), born(os.getpid())


def save(directory: Path, name: str, value: RunPlan | CommandEnd | DeliveryReport) -> None:
    """Write one of the three files atomically."""
    replace_file(directory / name, msgspec.json.encode(value))


def load_plan(directory: Path) -> RunPlan:
    """The plan in a spool directory. Raises OSError or msgspec.DecodeError."""
    return msgspec.json.decode((directory / PLAN).read_bytes(), type=RunPlan)


def load_end(directory: Path) -> CommandEnd | None:
    """How the command ended, or None while it runs."""
    return _load(directory / END, CommandEnd)


def load_report(directory: Path) -> DeliveryReport | None:
    """The sidecar's report, or None where it has left none."""
    return _load(directory / REPORT, DeliveryReport)


def _load(path: Path, kind: type[_Kind]) -> _Kind | None:
    with contextlib.suppress(FileNotFoundError):
        return msgspec.json.decode(path.read_bytes(), type=kind)
    return None
