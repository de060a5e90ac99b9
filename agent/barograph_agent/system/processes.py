"""Processes of this node, read from /proc. Processes that have ended or belong to other users are not visible."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final


class Processes:
    """Processes by their ids."""

    def own(self) -> int:
        """The id of this process."""
        return os.getpid()

    def born(self, pid: int) -> int:
        """Start time of process `pid`, in clock ticks since boot; -1 if there is no such process."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return -1
        # The command name may contain spaces and brackets; the other fields follow the last bracket.
        fields = stat.rpartition(")")[2].split()
        return -1 if fields[0] == "Z" else int(fields[19])

    def environment(self, pid: int) -> dict[str, str]:
        """The initial environment of a process; empty if it is not visible."""
        return dict(word.partition("=")[::2] for word in _words(pid, "environ"))

    def command(self, pid: int) -> list[str]:
        """The command line of a process; empty if it is not visible."""
        return _words(pid, "cmdline")

    def any_with(self, variable: str, value: str) -> bool:
        """Whether a process was started with this variable in its environment."""
        entry = os.fsencode(f"{variable}={value}")
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if entry in path.read_bytes().split(b"\0"):
                    return True
        return False


PROCESSES: Final = Processes()


def seconds(ticks: int) -> float:
    """Clock ticks in seconds, with a resolution of 10 ms."""
    return ticks / os.sysconf("SC_CLK_TCK")


def _words(pid: int, name: str) -> list[str]:
    try:
        return os.fsdecode(Path(f"/proc/{pid}/{name}").read_bytes()).rstrip("\0").split("\0")
    except OSError:
        return []
