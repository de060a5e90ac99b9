"""What files in /proc and /sys say. Whatever is missing, cut off or strange is unknown: None, NaN or -1."""

from __future__ import annotations

import math
import re
from operator import itemgetter
from typing import Final, NamedTuple

from barograph_agent.system.processes import Processes, seconds

NAME_LIMIT: Final = 32
_USED: Final = itemgetter(1, 9, 11, 12, 17, 19, 21, 36, 39)
"""Of the fields behind the name in /proc/PID/stat."""
_STRANGE: Final = re.compile(r"[^A-Za-z0-9_.:@/+-]")


class ProcessStat(NamedTuple):
    """/proc/PID/stat. Times in clock ticks; `born` since boot."""

    name: str
    """As the process calls itself: anything."""
    state: str
    parent: int
    major_faults: int
    cpu_ticks: int
    threads: int
    born: int
    resident_pages: int
    core: int
    """The core on which it last ran."""
    io_ticks: int


class NodeStat(NamedTuple):
    """Totals of the node since boot, and what is free now. Seconds of pressure are NaN where the kernel has none."""

    cores: int
    busy_seconds: float
    steal_seconds: float
    cpu_pressure: float
    memory_pressure: float
    io_pressure: float
    swapped_pages: int
    available_bytes: int


def clean(name: str) -> str:
    """A process's name as an identifier: it may contain anything.

    >>> clean("a b\\n")
    'a_b_'
    """
    return _STRANGE.sub("_", name)[:NAME_LIMIT] or "_"


def process_stat(processes: Processes, pid: int) -> ProcessStat | None:
    """The state of a process; None if it has ended."""
    before, bracket, after = processes.show(f"/proc/{pid}/stat").rpartition(b")")
    words = after.split()
    # The name may contain spaces and brackets.
    if not bracket or len(words) < 40 or words[0] in b"ZX":
        return None
    try:
        parent, faults, user, system, threads, born, resident, core, io = map(int, _USED(words))
    except ValueError:
        return None
    name, state = (text.decode("ascii", "replace") for text in (before.partition(b"(")[2], words[0]))
    return ProcessStat(name, state, parent, faults, user + system, threads, born, resident, core, io)


def schedule(processes: Processes, pid: int, thread: int) -> tuple[float, float] | None:
    """Seconds in which a thread ran, and in which it could have run but had no core; None if unknown."""
    words = processes.show(f"/proc/{pid}/task/{thread}/schedstat").split()
    try:
        return int(words[0]) * 1e-9, int(words[1]) * 1e-9
    except (ValueError, IndexError):
        return None


def node_stat(processes: Processes) -> NodeStat:
    """The state of the node."""
    lines = processes.show("/proc/stat").split(b"\n")
    total = [int(word) for word in re.findall(rb"\d+", lines[0])[:8]] if lines[0].startswith(b"cpu ") else []
    idle, steal = (total[3] + total[4], total[7]) if len(total) == 8 else (0, 0)
    swapped = re.findall(rb"^pswp(?:in|out) (\d+)$", processes.show("/proc/vmstat"), re.MULTILINE)
    available = re.search(rb"^MemAvailable: *(\d+) kB$", processes.show("/proc/meminfo"), re.MULTILINE)
    return NodeStat._make([
        sum(line.startswith(b"cpu") for line in lines[1:]),
        seconds(sum(total) - idle - steal) if total else math.nan,
        seconds(steal) if total else math.nan,
        *(_pressure(processes, resource) for resource in ("cpu", "memory", "io")),
        sum(map(int, swapped)) if len(swapped) == 2 else -1,
        int(available[1]) * 1024 if available else -1,
    ])  # fmt: skip


def _pressure(processes: Processes, resource: str) -> float:
    """Seconds in which some process waited for a resource."""
    found = re.match(rb"some [^\n]*total=(\d+)\n", processes.show(f"/proc/pressure/{resource}"))
    return int(found[1]) * 1e-6 if found else math.nan
