"""What other programs, and the hypervisor, take of the cores of a run, by the kernel's counts."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

MAX_TAKEN: Final = 0.05
"""Share of the time of its cores up to which a run is left alone."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Interference:
    """Counts from its construction on. cores: those of the run; None for all."""

    def __init__(self, cores: Collection[int] | None = None, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._cores = cores
        self._monotonic = monotonic
        self._began = monotonic()
        self._used, self._own = used_seconds(cores), own_seconds()

    def share(self) -> float:
        """Share of the time of the cores that neither this process nor its descendants have used."""
        cores = len(self._cores) if self._cores is not None else os.cpu_count() or 1
        taken = (used_seconds(self._cores) - self._used) - (own_seconds() - self._own)
        return max(taken, 0.0) / max((self._monotonic() - self._began) * cores, 1e-9)


def used_seconds(cores: Collection[int] | None = None, stat: Path = Path("/proc/stat")) -> float:
    """Processor seconds that were used since the start of the machine, by whoever, and stolen. cores: None for all."""
    names = {"cpu"} if cores is None else {f"cpu{core}" for core in cores}
    total = 0
    for line in stat.read_text().splitlines():
        name, *fields = line.split()
        if name in names:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
            total += user + nice + system + irq + softirq + steal
    return total / _TICKS


def own_seconds() -> float:
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
        used[int(folder.name)] = sum(map(int, fields[11:15])) / _TICKS
    me = os.getpid()
    for pid, seconds in used.items():
        parent = parents[pid]
        while parent > 1 and parent != me:
            parent = parents.get(parent, 0)
        total += seconds if parent == me else 0.0
    return total
