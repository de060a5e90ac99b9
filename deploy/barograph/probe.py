"""A collector to be measured: a process of its own on a scratch directory, and what the kernel says about it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from barograph_collector.store import Store


@dataclass(frozen=True)
class Usage:
    """CPU time of a process, all its threads, and the most memory it ever had."""

    cpu_seconds: float
    peak_bytes: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        """What /proc says about a process."""
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        ticks = int(fields[11]) + int(fields[12])
        return cls(ticks / os.sysconf("SC_CLK_TCK"), int(peak[1]) * 1024 if peak else 0)

    @classmethod
    def of_this_process(cls) -> Usage:
        """The same about this one."""
        return cls.of(os.getpid())

    def __sub__(self, before: Usage) -> Usage:
        return Usage(self.cpu_seconds - before.cpu_seconds, self.peak_bytes)


class Collector:
    """`barograph collector` on free loopback ports, ready when entered."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "barograph_collector.daemon", "--state", str(self._state)]
        command += ["--listen", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0"]
        with (self._state / "stderr").open("wb") as log:
            self._process = subprocess.Popen(command, stderr=log)
        while not (ready := re.search(r"listening on (\S+),", (self._state / "stderr").read_text())):
            try:
                self._process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise RuntimeError((self._state / "stderr").read_text())
        self.endpoint = ready[1]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    def usage(self) -> Usage:
        """CPU and memory so far."""
        return Usage.of(self._process.pid)

    def descriptors(self) -> int:
        """Open file descriptors now."""
        return len(list(Path(f"/proc/{self._process.pid}/fd").iterdir()))

    def stop(self) -> None:
        """SIGTERM, and wait."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait()


def stored_once(state: Path, said: Mapping[str, int]) -> int:
    """How many of the intervals that jobs said, numbered from 0, the log in `state` holds exactly once."""
    query = "SELECT job, count(*), count(DISTINCT first_index), max(first_index) FROM blocks GROUP BY job"
    # What the database did not have when its collector ended is in the journal, and comes in now.
    with Store(state / "log.duckdb") as store, store.cursor() as log:
        found = {job: (rows, distinct, last) for job, rows, distinct, last in log.execute(query).fetchall()}
    return sum(rows for job, rows in said.items() if found.get(job, (0, 0, -1)) == (rows, rows, rows - 1))
