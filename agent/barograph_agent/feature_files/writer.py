"""Writer of the side file of `barograph_agent.features()`. Nothing raises: invalid values are counted."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from barograph_agent.feature_files.side_file import HEADER, MAGIC, SLOT, SUFFIX, VERSION
from barograph_agent.system.clock import CLOCK, Clock
from barograph_agent.system.processes import PROCESSES, seconds

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
MAX_NAMES: Final = 256
"""Limit on the names of one process."""


class SideFileWriter:
    """One side file in a folder. The value of a known name is written in place; a new name replaces the file."""

    def __init__(self, folder: Path, clock: Clock = CLOCK) -> None:
        self._clock = clock
        self._pid = os.getpid()
        self._path = folder / f"{self._pid}-noted{SUFFIX}"
        self._names: dict[str, int] = {}
        self._header = np.zeros(1, HEADER)
        self._header["started_ns"] = _started_ns(self._pid, clock)
        self._header["pid"] = self._pid
        self._header["version"] = VERSION
        self._slots = np.zeros(0, SLOT)

    def put(self, values: Mapping[str, float], now: int) -> None:
        """Write these values; invalid ones are counted as refused. now: nanoseconds of CLOCK_MONOTONIC."""
        accepted: dict[str, float] = {}
        refused = 0
        for name, value in values.items():
            number = _number(value)
            known = name in self._names or (NAME.fullmatch(name) and len(self._names) + len(accepted) < MAX_NAMES)
            if known and math.isfinite(number):
                accepted[name] = number
            else:
                refused += 1
        new = [name for name in accepted if name not in self._names]
        if new:
            self._names.update({name: number for number, name in enumerate(new, len(self._names))})
            self._slots = np.concatenate([self._slots, np.zeros(len(new), SLOT)])
        for name, number in accepted.items():
            slot = self._names[name]
            self._slots[slot] = (number, self._slots[slot]["count"] + 1, now)
        self._header["refused"] += refused
        if new or (refused and not self._names):
            self._replace()

    def finish(self) -> None:
        """Record the end of the program."""
        if os.getpid() == self._pid:
            self._header["ended_ns"] = self._clock.monotonic_ns()

    def _replace(self) -> None:
        """Write a new file and continue in it. If that fails, values stay in memory and are lost."""
        names = "".join(f"{name}\n" for name in self._names).encode()
        # A copy: readers of the old file see it unchanged.
        self._header = np.array(self._header)
        self._header["magic"], self._header["probes"] = MAGIC, len(self._names)
        self._header["names_bytes"] = len(names)
        part = self._path.with_name(f".{self._path.name}.part")
        with contextlib.suppress(OSError):
            part.write_bytes(self._header.tobytes() + self._slots.tobytes() + names)
            whole = np.memmap(part, np.uint8, "r+")
            part.replace(self._path)
            end = HEADER.itemsize + self._slots.nbytes
            self._header, self._slots = whole[: HEADER.itemsize].view(HEADER), whole[HEADER.itemsize : end].view(SLOT)


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except Exception:  # float() of any object may raise anything
        return math.nan


def _started_ns(pid: int, clock: Clock) -> int:
    """Start time of a process on CLOCK_MONOTONIC, from the kernel's ticks since boot."""
    age = clock.since_boot() - seconds(PROCESSES.born(pid))
    return clock.monotonic_ns() - max(int(age * 1e9), 0)
