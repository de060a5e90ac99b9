"""Rounds of the kill matrix: application, sidecar and collector of one run, killed in some order at random instants."""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.service import Node, Service, kill, sidecars

VICTIMS: Final = ("application", "sidecar", "collector")
ORDERS: Final = list(itertools.permutations(VICTIMS))
BARRIERS: Final = 300
PAUSE: Final = "1000"  # microseconds


@dataclass
class Outcome:
    """What one round came to."""

    order: tuple[str, ...]
    happened: int
    """Barriers that the application says have returned; one more may have, of which it could not say so."""
    stored: list[int]
    dropped: int

    @property
    def lost(self) -> int:
        """Intervals that happened and are not in the log."""
        return len(set(range(self.happened)) - set(self.stored))

    @property
    def doubled(self) -> int:
        """Rows that the log has twice."""
        return len(self.stored) - len(set(self.stored))

    @property
    def invented(self) -> int:
        """Rows of intervals that did not happen."""
        return len(set(self.stored) - set(range(self.happened + 1)))


def play(node: Node, service: Service, program: Path, number: int, seed: int) -> Outcome:
    """One round: all three are killed once, the collector comes back, and what is left is delivered.

    The order is number `number` of ORDERS in turn. The instants lie within the run as far as the application has not
    been killed yet, and within a fifth of a second after it.
    """
    rng = random.Random(f"{seed}.{number}")
    order = ORDERS[number % len(ORDERS)]
    app = f"round-{seed}-{number}"
    node.spools.parent.mkdir(exist_ok=True)
    progress = node.spools.with_name(f"{app}.progress")
    run = node.start(program, str(BARRIERS), PAUSE, progress, app=app)

    def happened() -> int:
        text = progress.read_text() if progress.exists() else ""
        return int(text or 0)

    instants = sorted(rng.randrange(BARRIERS) for _ in order)
    dead = False
    for victim, instant in zip(order, instants, strict=True):
        if dead:
            time.sleep(rng.random() * 0.2)  # a random instant is what is wanted
        else:
            wait_until(lambda at=instant: happened() >= at or run.poll() is not None, f"barrier {instant} of {app}")
        match victim:
            case "application":
                dead = _kill([pid for pid in _children(run.pid) if pid not in sidecars(node.spools)])
            case "sidecar":
                _kill(sidecars(node.spools))
            case "collector":
                service.kill()
                service.start()
    run.communicate(timeout=DEADLINE_SECONDS)
    if node.waiting():
        node.barograph("spool", "--send", "--seconds", "60", "--collector", service.endpoint)
    wait_until(lambda: node.waiting() == [], f"everything of {app} is delivered")
    (end,) = service.rows("runs", app)
    return Outcome(order, happened(), service.indices(app), int(end["dropped"]))


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def _kill(pids: list[int]) -> bool:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it was faster
            left = segments(pid)
            kill(pid)
            for path in left:
                path.unlink(missing_ok=True)
    return bool(pids)


def segments(pid: int) -> set[Path]:
    """Files in shared memory that MPICH leaves there when the process is killed."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {Path(line.split()[5]) for line in lines if "/dev/shm/mpich" in line}
