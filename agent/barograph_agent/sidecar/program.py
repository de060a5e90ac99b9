"""A program of a batch job on this node: a watch that detects the program's end from its processes."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from barograph_agent.ring.reader import Ring, RingError
from barograph_agent.sidecar.plan import END, CommandEnd, RunPlan, save
from barograph_agent.sidecar.watch import Watch
from barograph_agent.system.processes import UNCERTAIN, Processes, seconds
from barograph_agent.system.system import SYSTEM, System

UNKNOWN: Final = -1
"""The exit status of a program that has recorded none: it was ended by a signal or _exit()."""


class RankProcess(NamedTuple):
    """A recording process of the program. born: its start time; -1 if it was not visible when its ring was found."""

    ring: Ring
    born: int

    def lives(self, processes: Processes) -> bool:
        """True while the process exists and has not called exit(), and where that cannot be told."""
        if self.ring.exit_status is not None or self.born == -1:
            return False
        return processes.born(self.ring.pid) in (self.born, UNCERTAIN)


class Program(Watch):
    """A program not started by `barograph run`, from its first ring to the end of its last process on this node."""

    def __init__(self, directory: Path, plan: RunPlan, system: System = SYSTEM) -> None:
        """Existing rings in the plan's ring directory belong to the program."""
        super().__init__(directory, plan, system=system)
        self._ring_directory = Path(plan.ring_directory)
        self._ranks: list[RankProcess] = []
        self._paths: set[Path] = set()
        self.has_ended = system.disk.exists(directory / END)
        """True once its end is on disk: no further rank can join it."""
        for path in sorted(self._ring_directory.glob("*.ring")):
            self._add(path)

    def accepts(self, ring: Ring) -> bool:
        """Whether a ring may belong to one more rank, not to the next program in the same step."""
        others = {rank.ring.rank for rank in self._ranks}
        return not self.has_ended and (ring.rank not in others or not self.is_gone)

    def find(self) -> None:
        """Track the processes of rings that have appeared in its directory. Raises OSError."""
        for path in sorted(set(self._ring_directory.glob("*.ring")) - self._paths):
            self._add(path)

    def join(self, path: Path) -> None:
        """Move one more ring into the program's directory and track its process. Raises OSError."""
        self._add(self.move_in(path))

    def move_in(self, path: Path) -> Path:
        """Move a file of one of its processes into the program's directory. Raises OSError."""
        moved = self._ring_directory / path.name
        path.rename(moved)
        return moved

    def is_in(self, step: Path) -> bool:
        """Whether it runs in the step with this directory."""
        return self._ring_directory.parent == step

    def has(self, pid: int) -> bool:
        """Whether a recording process belongs to the program."""
        return not self.has_ended and any(rank.ring.pid == pid for rank in self._ranks)

    @property
    def count(self) -> int:
        """Number of its rings."""
        return len(self._ranks)

    @property
    def is_gone(self) -> bool:
        """True once all of its processes on this node have ended."""
        if any(rank.lives(self._system.processes) for rank in self._ranks):
            return False
        # In a container that hides process ids, a process without a recorded end may still run.
        unseen = any(rank.born < 0 and rank.ring.exit_status is None for rank in self._ranks)
        return not (unseen and self.plan.command_lives(self._system.processes))

    def end(self, now: float) -> None:
        """Record the program's end. Raises OSError.

        now: Unix seconds, the time of the end unless every process has recorded its own.
        """
        exited = [rank.ring for rank in self._ranks if rank.ring.exit_status is not None]
        all_exited = bool(exited) and len(exited) == len(self._ranks)
        ended_at = min(max(ring.exited_unix_ns for ring in exited) * 1e-9, now) if all_exited else now
        status = max((ring.exit_status or 0 for ring in exited), default=0) or (0 if all_exited else UNKNOWN)
        save(
            self.directory,
            END,
            CommandEnd(ended_at, max(ended_at - self.plan.started_at, 0.0), status),
            self._system.disk,
        )
        self.has_ended = True

    def delete(self) -> None:
        """Close, and delete rings and spool."""
        self._close_rings()
        super().delete()

    def close(self) -> None:
        """Close; undelivered messages stay on disk."""
        self._close_rings()
        super().close()

    def _add(self, path: Path) -> None:
        self._paths.add(path)
        try:
            ring = Ring(path)
        except RingError:
            return  # RingSet reports it
        self._ranks.append(RankProcess(ring, self._system.processes.born(ring.pid)))

    def _close_rings(self) -> None:
        for rank in self._ranks:
            rank.ring.close()
        self._ranks.clear()


def started_at(ring: Ring, system: System) -> float:
    """Start time of a ring's process, Unix seconds; if the process has ended, the time when MPI_Init returned."""
    ticks = system.processes.born(ring.pid)
    booted_at = system.clock.now() - system.clock.since_boot()
    at = booted_at + seconds(ticks) if ticks >= 0 else ring.started_unix_ns * 1e-9
    return min(at, system.clock.now())
