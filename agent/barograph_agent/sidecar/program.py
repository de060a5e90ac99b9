"""One program of a batch job on this node, where no launcher of ours started it: its rings, its watch and its end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barograph_agent.job import processes
from barograph_agent.ring.reader import Ring, RingError
from barograph_agent.sidecar.plan import END, CommandEnd, save
from barograph_agent.sidecar.watch import Watch

UNKNOWN: Final = -1
"""The exit status of a program that did not say one: a signal ended it, or _exit()."""


@dataclass
class RankProcess:
    """A process of the program that records."""

    ring: Ring
    born: int
    """Start time of its process; -1 where that was gone, or out of sight, when its ring was found."""

    @property
    def lives(self) -> bool:
        """True as long as the process is there and has not called exit()."""
        return self.ring.exit_status is None and 0 <= self.born == processes.born(self.ring.pid)


class Program:
    """Watches a program from its first ring to the end of its last process here, and delivers it."""

    def __init__(self, watch: Watch, directory: Path) -> None:
        """`directory` is the watch's. Rings that are in the plan's directory already are the program's."""
        self.watch = watch
        self._directory = directory
        self._rings = Path(watch.plan.ring_directory)
        self._ranks: list[RankProcess] = []
        self.has_ended = (directory / END).exists()
        """True once its end is noted: nothing joins it then."""
        for path in sorted(self._rings.glob("*.ring")):
            self._add(path)

    def takes(self, ring: Ring) -> bool:
        """Whether that may be one more rank of it, and not one of the next program in the same step."""
        others = {rank.ring.rank for rank in self._ranks}
        return not self.has_ended and (ring.rank not in others or not self.is_over)

    def join(self, path: Path) -> None:
        """One more ring, which moves into the program's directory. Raises OSError."""
        self._add(self.adopt(path))

    def adopt(self, path: Path) -> Path:
        """Take a file of one of its processes into the program's directory. Raises OSError."""
        moved = self._rings / path.name
        path.rename(moved)
        return moved

    def is_in(self, step: Path) -> bool:
        """Whether it runs in the step with this directory."""
        return self._rings.parent == step

    def has(self, pid: int) -> bool:
        """Whether a process that records is one of its own."""
        return not self.has_ended and any(rank.ring.pid == pid for rank in self._ranks)

    @property
    def count(self) -> int:
        """Rings it has."""
        return len(self._ranks)

    @property
    def is_over(self) -> bool:
        """True when none of its processes is left here."""
        return not any(rank.lives for rank in self._ranks) and not (self._unseen and self.watch.plan.command_lives)

    def end(self, now: float) -> None:
        """Note how the program ended; now: Unix seconds, the end where no process has told one. Raises OSError."""
        statuses = [rank.ring.exit_status for rank in self._ranks]
        told = [rank.ring.exited_unix_ns * 1e-9 for rank in self._ranks if rank.ring.exit_status is not None]
        known = [status for status in statuses if status is not None]
        started_at = self.watch.plan.started_at
        ended_at = min(max(told), now) if told and len(told) == len(statuses) else now
        status = max(known, default=0) or (0 if known and len(known) == len(statuses) else UNKNOWN)
        save(self._directory, END, CommandEnd(ended_at, max(ended_at - started_at, 0.0), status))
        self.has_ended = True

    def step(self) -> None:
        """Read, make durable, deliver."""
        self.watch.step()
        self.watch.link.pump()

    def forget(self) -> None:
        """Close, and delete what is delivered."""
        self._close_rings()
        self.watch.forget()

    def close(self) -> None:
        """Let go; what is undelivered stays."""
        self._close_rings()
        self.watch.close()

    @property
    def _unseen(self) -> bool:
        """True where a process may be in a container that hides its number, and has not told its end."""
        return any(rank.born < 0 and rank.ring.exit_status is None for rank in self._ranks)

    def _add(self, path: Path) -> None:
        try:
            ring = Ring(path)
        except RingError:
            return  # the watch reports it
        self._ranks.append(RankProcess(ring, processes.born(ring.pid)))

    def _close_rings(self) -> None:
        for rank in self._ranks:
            rank.ring.close()
        self._ranks.clear()


def started_at(ring: Ring) -> float:
    """When the process of a ring began, Unix seconds; if it is gone already, when MPI was there."""
    ticks = processes.born(ring.pid)
    at = processes.unix_seconds(ticks) if ticks >= 0 else ring.started_unix_ns * 1e-9
    return min(at, time.time())
