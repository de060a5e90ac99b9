"""Whether the machine was quiet while something ran: what others took of its cores, and how fast these were."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import Final, NamedTuple

TICKS: Final = os.sysconf("SC_CLK_TCK")
STEPS, REPEATS = 400_000, 20
MOST_TAKEN: Final = 0.05
SLOWEST: Final = 1.2


class Machine(NamedTuple):
    """Of the time of one run. taken: share of the cores' time that other programs and the hypervisor took. pace: time
    of fixed work right before or after it, the longer one, over the shortest of this process."""

    taken: float
    pace: float

    @property
    def quiet(self) -> bool:
        """Whether what is slow then is slow by itself."""
        return self.taken <= MOST_TAKEN and self.pace <= SLOWEST

    def __str__(self) -> str:
        return f"others took {self.taken:.1%}, fixed work {self.pace:.2f}x"


class Witness:
    """Watches the machine from its construction to `seen`. Asks the kernel, and nothing of what is tested."""

    _shortest = float("inf")

    def __init__(self) -> None:
        self._before = _fixed_work()
        self._began = time.monotonic()
        self._used, self._own = _used(), _own()

    def seen(self) -> Machine:
        """The machine since then."""
        seconds = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        taken = (_used() - self._used) - (_own() - self._own)
        after = _fixed_work()
        Witness._shortest = min(Witness._shortest, self._before, after)
        return Machine(max(taken, 0.0) / seconds, max(self._before, after) / Witness._shortest)


def _fixed_work() -> float:
    """Seconds of a fixed computation, the best of REPEATS: a core that has slept is slower at first."""
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        sum(range(STEPS))
        found.append(time.perf_counter() - began)
    return min(found)


def _used() -> float:
    """Processor seconds that were used since the machine's start, by whoever, and stolen."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS


def _own() -> float:
    """Those that this process and its descendants have used, the reaped ones included."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    parents, used = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(folder.name)] = int(fields[1])
        used[int(folder.name)] = sum(map(int, fields[11:15])) / TICKS
    me = os.getpid()
    for pid, seconds in used.items():
        parent = parents[pid]
        while parent > 1 and parent != me:
            parent = parents.get(parent, 0)
        total += seconds if parent == me else 0.0
    return total
