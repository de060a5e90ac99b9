"""Processes of this node, read from /proc. Processes that have ended or belong to other users are not visible."""

from __future__ import annotations

import os
import time
from pathlib import Path


def born(pid: int) -> int:
    """Start time of process `pid`, in clock ticks since boot; -1 if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return -1
    # The command name may contain spaces and brackets; the other fields follow the last bracket.
    fields = stat.rpartition(")")[2].split()
    return -1 if fields[0] == "Z" else int(fields[19])


def unix_seconds(ticks: int) -> float:
    """Ticks since boot as Unix seconds, with a resolution of 10 ms."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def environment(pid: int) -> dict[str, str]:
    """The initial environment of a process; empty if it is not visible."""
    return dict(word.partition("=")[::2] for word in _words(pid, "environ"))


def command(pid: int) -> list[str]:
    """The command line of a process; empty if it is not visible."""
    return _words(pid, "cmdline")


def _words(pid: int, name: str) -> list[str]:
    try:
        return os.fsdecode(Path(f"/proc/{pid}/{name}").read_bytes()).rstrip("\0").split("\0")
    except OSError:
        return []
