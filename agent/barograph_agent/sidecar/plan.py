"""Files by which launcher and sidecar communicate, in the spool directory.

The launcher writes `plan.json` before the command starts and `end.json` when it has ended; the sidecar writes
`report.json` at its end.
"""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import msgspec

from barograph_agent.deliver.shards import shard_of
from barograph_agent.job.identity import Job
from barograph_agent.job.rules import Findings
from barograph_agent.protocol.tables import ROWS_PER_SECOND
from barograph_agent.settings import places
from barograph_agent.system.disk import DISK, Disk
from barograph_agent.system.processes import PROCESSES, UNCERTAIN, Processes
from barograph_agent.system.system import SYSTEM, System

PLAN: Final = "plan.json"
END: Final = "end.json"
REPORT: Final = "report.json"
EARLIER: Final = ".earlier"
"""Ends the names of files of Earlier."""
MAX_EARLIER: Final = 1000
"""Such files of a user on a node."""
RUN: Final = "run"
"""In a directory of rings: the stream of its run. A directory without it is none, and never deleted."""
TOKEN: Final = "token.json"
"""A copy of the run's job token, if it has one."""
RING_VARIABLE: Final = "BAROGRAPH_RING_DIR"
"""Names the directory in which the shim creates its ring; if unset the shim does nothing."""
RUN_VARIABLE: Final = "BAROGRAPH_RUN"
"""The plan of a run, for sidecars that ranks start on other nodes."""
SIDECAR_VARIABLE: Final = "BAROGRAPH_SIDECAR"
"""Names the Python that these sidecars run on."""
FACTS: Final = "step"
"""Where hooks store the job's variables from the environment of a step's tasks, NAME=value per line."""
MAX_FACTS_BYTES: Final = 2**16
VERDICT_SECONDS: Final = 4.0
"""Timeout for the final score at the end of a run, within the plan's time for delivery."""
NO_VERDICT: Final = f"unknown: no alerts daemon has given a verdict within {VERDICT_SECONDS:g} s"
_Kind = TypeVar("_Kind")


class RunOptions(msgspec.Struct, frozen=True):
    """Settings of a run."""

    endpoint: str
    """The collector's address, or several with commas between."""
    drain_seconds: float = 10.0
    """How long delivery may take after the end; the user's next sidecar on this node delivers the rest."""
    spool_bytes: int = 256 * 2**20
    rows_per_second: float = ROWS_PER_SECOND
    """Long-term limit on rows of `blocks`."""
    findings: Findings = Findings()


class Earlier(msgspec.Struct, frozen=True):
    """Programs of a run on another node than the launcher's whose sidecars have ended: a command may start several
    programs, with time between them in which no process of the run is on the node.

    In a file beside the directory of rings, which the first rank of the next program finds as it found that directory.
    numbers: of their MPI worlds. announced: whether the rows of `jobs` and `works` are written.
    """

    numbers: list[int] = []
    announced: bool = False

    @classmethod
    def load(cls, rings: Path, disk: Disk = DISK) -> Self:
        """What was left; nothing where there is no such file or it cannot be read."""
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(disk.read(rings.with_name(rings.name + EARLIER)), type=cls)
        return cls()

    def leave(self, rings: Path, disk: Disk = DISK) -> None:
        """Write it, and delete the oldest files beyond MAX_EARLIER. Raises OSError."""
        path = rings.with_name(rings.name + EARLIER)
        disk.replace(path, msgspec.json.encode(self))
        others = [
            path.parent / name for name in disk.names(path.parent) if name.endswith(EARLIER) and name != path.name
        ]
        for old in sorted(others, key=_changed_at)[: max(len(others) + 1 - MAX_EARLIER, 0)]:
            disk.unlink(old, missing_ok=True)


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


class RunPlan(msgspec.Struct, frozen=True):
    """Input of a sidecar; complete, so that another sidecar can adopt the run after its launcher has died."""

    job: Job
    stream: str
    endpoint: str
    """The address of the run's collector."""
    ring_directory: str
    started_at: float
    """Unix seconds."""
    launcher: int
    launcher_born: int
    """Start time of the launcher, which distinguishes it from a later process with the same id."""
    drain_seconds: float
    spool_bytes: int
    findings: Findings = Findings()
    rows_per_second: float = ROWS_PER_SECOND
    step_directory: str = ""
    """The ring directory in the environment of a program's processes, in a batch job under hooks."""
    feature_directory: str = ""
    """Directory of the program's side files; empty for the ring directory."""
    has_companions: bool = False
    """Whether ranks on other nodes start sidecars there: rank 0 may be on another node."""
    is_companion: bool = False
    """Whether the sidecar was started by a rank: the launcher's writes the end of the run."""
    earlier: Earlier = Earlier()
    """Programs of the run whose sidecar on this node has ended."""
    collectors: str = ""
    """All collectors, for spools of other runs; empty for `endpoint` alone."""
    command: tuple[str, ...] = ()
    """The words of the command, from which the work is known where no process of it is seen. They are not sent to
    other nodes."""

    def launcher_lives(self, processes: Processes) -> bool:
        """True while the process that started the run exists, and where that is unknown."""
        return processes.born(self.launcher) in (self.launcher_born, UNCERTAIN)

    def command_lives(self, processes: Processes) -> bool:
        """True while a process exists that was started with this run's ring directory in its environment.

        Also where that is unknown.
        """
        try:
            return processes.any_with(RING_VARIABLE, self.step_directory or self.ring_directory)
        except OSError:
            return True

    def has(self, pid: int, processes: Processes) -> bool:
        """Whether a process has this run's ring directory in its environment, or, behind a title, a ring mapped."""
        directory = self.step_directory or self.ring_directory
        return processes.environment(pid).get(RING_VARIABLE) == directory or processes.maps(pid, directory)


class CommandEnd(msgspec.Struct, frozen=True):
    """End of the command: Unix seconds, runtime in seconds, exit status as a shell reports it."""

    ended_at: float
    runtime_seconds: float
    exit_status: int


class DeliveryReport(msgspec.Struct, frozen=True):
    """Counts of a run's intervals: seen = stored + spooled + dropped."""

    ranks: int
    seen: int
    stored: int
    spooled: int
    dropped: int
    reached: bool
    """True if the collector answered at the end."""
    verdict: str
    """The sentence of the alerts daemon; empty without one."""
    notes: list[str] = []
    """Problems, a line each."""
    delivered: bool = False
    """True if the collector has everything."""
    trouble: str = ""
    """Why the collector takes no rows although it answers; empty if it takes them."""
    nodes: int = 1
    """Nodes that have reported ranks."""
    unknown: bool = False
    """Whether ranks were on other nodes, and the collector has not answered what these have reported."""
    unseen_ranks: int = 0
    """Ranks of the world that no node has reported."""


def myself(processes: Processes = PROCESSES) -> tuple[int, int]:
    """Id and start time of this process."""
    return processes.own(), processes.born(processes.own())


def begin_run(
    spool: Path, job: Job, rings: Path, options: RunOptions, system: System = SYSTEM, **fields: Any
) -> RunPlan:
    """Create the spool directory of a run launched by this process, and write its plan. Raises OSError.

    fields: further ones of RunPlan, or in place of those derived from the options.
    """
    system.disk.make_directory(spool, exist_ok=False)
    launcher, launcher_born = myself(system.processes)
    derived = {
        "stream": f"{job.key}/{secrets.token_hex(4)}",
        "endpoint": shard_of(job.cluster, job.user, places.endpoints(options.endpoint)),
        "collectors": options.endpoint,
        "started_at": system.clock.now(),
        "launcher": launcher,
        "launcher_born": launcher_born,
        "ring_directory": str(rings),
    }
    plan = RunPlan(job=job, **msgspec.structs.asdict(options) | derived | fields)
    save_begun(spool, plan, system.disk)
    return plan


def save_begun(spool: Path, plan: RunPlan, disk: Disk = DISK) -> None:
    """Write the plan of a run, and mark its directory of rings as that. Raises OSError."""
    disk.replace(Path(plan.ring_directory) / RUN, plan.stream.encode())
    save(spool, PLAN, plan, disk)


def delete_rings(plan: RunPlan, disk: Disk = DISK, left: frozenset[str] = frozenset()) -> None:
    """Delete the run's directory of rings, and what is beside it; anything else that the plan may name is left.

    left: names of rings that another sidecar will read; with any, the directory stays.
    """
    disk.remove_marked(Path(plan.ring_directory), RUN, plan.stream.encode(), left)
    for name in (END, REPORT):
        with contextlib.suppress(OSError):
            disk.unlink(Path(f"{plan.ring_directory}.{name}"), missing_ok=True)


def save(directory: Path, name: str, value: RunPlan | CommandEnd | DeliveryReport, disk: Disk = DISK) -> None:
    """Write one of the three files atomically."""
    disk.replace(directory / name, msgspec.json.encode(value))


def leave(directory: Path, name: str, value: CommandEnd | DeliveryReport, plan: RunPlan, disk: Disk = DISK) -> None:
    """Write what launcher and sidecar say to each other; where the disk is full, beside the rings. Raises OSError."""
    try:
        save(directory, name, value, disk)
    except OSError:
        disk.replace(Path(f"{plan.ring_directory}.{name}"), msgspec.json.encode(value))


def load_plan(directory: Path, disk: Disk = DISK) -> RunPlan:
    """The plan in a spool directory. Raises OSError or msgspec.DecodeError."""
    return msgspec.json.decode(disk.read_own(directory / PLAN), type=RunPlan)


def load_end(directory: Path, plan: RunPlan, disk: Disk = DISK) -> CommandEnd | None:
    """How the command ended; None while it runs."""
    return _load(directory, END, plan, CommandEnd, disk)


def load_report(directory: Path, plan: RunPlan, disk: Disk = DISK) -> DeliveryReport | None:
    """The sidecar's report; None if there is none."""
    return _load(directory, REPORT, plan, DeliveryReport, disk)


def _load(directory: Path, name: str, plan: RunPlan, kind: type[_Kind], disk: Disk) -> _Kind | None:
    for path in (directory / name, Path(f"{plan.ring_directory}.{name}")):
        # In nearly all steps there is none.
        with contextlib.suppress(FileNotFoundError):
            if disk.exists(path):
                return msgspec.json.decode(disk.read_own(path), type=kind)
    return None


def facts(directory: Path, disk: Disk) -> dict[str, str]:
    """The job's variables in the environment of the tasks of a step. Raises OSError."""
    text = disk.read(directory / FACTS, MAX_FACTS_BYTES).decode(errors="replace")
    lines = (line.partition("=") for line in text.splitlines())
    return {name: value for name, _, value in lines if value}
