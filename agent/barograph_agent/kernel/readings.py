"""What files in /proc and /sys say. Whatever is missing, cut off or strange is unknown: None, NaN or -1."""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

from barograph_agent.system.processes import Processes, seconds

NAME_LIMIT: Final = 32
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
    before, bracket, after = processes.show(f"/proc/{pid}/stat").decode("ascii", "replace").rpartition(")")
    words = after.split()
    # The name may contain spaces and brackets.
    if not bracket or len(words) < 40 or words[0] in "ZX":
        return None
    try:
        numbers = [int(words[index]) for index in (1, 9, 11, 12, 17, 19, 21, 36, 39)]
    except ValueError:
        return None
    parent, faults, user, system, threads, born, resident, core, io = numbers
    name = before.partition("(")[2]
    return ProcessStat(name, words[0], parent, faults, user + system, threads, born, resident, core, io)


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
    total = _integers(lines[0].split()[1:9]) if lines[0].startswith(b"cpu ") else []
    idle, steal = (total[3] + total[4], total[7]) if len(total) == 8 else (0, 0)
    swapped = _values(processes.show("/proc/vmstat"), b"pswpin", b"pswpout")
    available = _values(processes.show("/proc/meminfo"), b"MemAvailable:")
    return NodeStat(
        cores=sum(line.startswith(b"cpu") for line in lines[1:]),
        busy_seconds=seconds(sum(total) - idle - steal) if total else math.nan,
        steal_seconds=seconds(steal) if total else math.nan,
        cpu_pressure=_pressure(processes, "cpu"),
        memory_pressure=_pressure(processes, "memory"),
        io_pressure=_pressure(processes, "io"),
        swapped_pages=sum(swapped) if len(swapped) == 2 else -1,
        available_bytes=available[0] * 1024 if available else -1,
    )


def throttles(processes: Processes, core: int) -> int:
    """How often a core was slowed down because it was hot; -1 if unknown."""
    found = _integers(processes.show(f"/sys/devices/system/cpu/cpu{core}/thermal_throttle/core_throttle_count").split())
    return found[0] if found else -1


def _pressure(processes: Processes, resource: str) -> float:
    """Seconds in which some process waited for a resource."""
    words = processes.show(f"/proc/pressure/{resource}").partition(b"\n")[0].split()
    if not words or words[0] != b"some" or not words[-1].startswith(b"total="):
        return math.nan
    total = _integers([words[-1].removeprefix(b"total=")])
    return total[0] * 1e-6 if total else math.nan


def _values(data: bytes, *names: bytes) -> list[int]:
    found = [line.split()[1:2] for line in data.split(b"\n") if line.startswith(names)]
    return _integers([word for words in found for word in words])


def _integers(words: list[bytes]) -> list[int]:
    """Numbers, or none where one of the words is not one."""
    try:
        return [int(word) for word in words]
    except ValueError:
        return []
