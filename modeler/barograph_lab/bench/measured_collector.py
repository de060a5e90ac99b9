"""A collector to be measured: a process on a scratch directory, with its CPU time and memory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from barograph_collector.storage.store import Store

READY: Final = re.compile(r"listening on (\S+), log in .+, metrics on (\S+);")


@dataclass(frozen=True)
class Usage:
    """CPU time of all threads of a process, its peak memory and its current memory."""

    cpu_seconds: float
    peak_bytes: int
    resident_bytes: int = 0

    @classmethod
    def of(cls, pid: int) -> Usage:
        """The usage of a process, from /proc."""
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        found = re.findall(r"Vm(HWM|RSS):\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        memory = {name: 1024 * int(kilobytes) for name, kilobytes in found}
        ticks = int(fields[11]) + int(fields[12])
        return cls(ticks / os.sysconf("SC_CLK_TCK"), memory.get("HWM", 0), memory.get("RSS", 0))

    @classmethod
    def of_this_process(cls) -> Usage:
        """The usage of this process."""
        return cls.of(os.getpid())

    def __sub__(self, before: Usage) -> Usage:
        return Usage(self.cpu_seconds - before.cpu_seconds, self.peak_bytes, self.resident_bytes)


class MeasuredCollector:
    """`barograph collector` on free loopback ports, ready when entered."""

    def __init__(self, state: Path, *options: str) -> None:
        self._state = state
        self._options = options

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "barograph_collector.main", "--state", str(self._state)]
        command += ["--listen", "tcp://127.0.0.1:0", "--metrics", "127.0.0.1:0", *self._options]
        with (self._state / "stderr").open("wb") as log:
            self._process = subprocess.Popen(command, stderr=log)
        while not (ready := re.search(READY, (self._state / "stderr").read_text())):
            try:
                self._process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            raise RuntimeError((self._state / "stderr").read_text())
        self.endpoint, self.metrics_url = ready.groups()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

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


@contextmanager
def watched(collector: MeasuredCollector, every: float) -> Iterator[None]:
    """Print a collector's CPU time and memory every `every` seconds, and at the end the slope of its memory.

    The slope is fitted to the second half: in the first, DuckDB fills its cache.
    """
    samples: list[tuple[float, int]] = []
    over = threading.Event()

    def watch() -> None:
        began, before = time.monotonic(), collector.usage()
        while not over.wait(every):
            seconds, usage = time.monotonic() - began, collector.usage()
            samples.append((seconds, usage.resident_bytes))
            cores = (usage - before).cpu_seconds / every
            print(
                f"{seconds:7.0f} s     {usage.resident_bytes / 2**20:7,.1f} MiB   {cores:5.2f} cores"
                f"   {collector.descriptors():6} descriptors",
                flush=True,
            )
            before = usage

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if len(later := samples[len(samples) // 2 :]) > 2:
        seconds, resident = np.array(later, dtype=float).T
        slope = np.polyfit(seconds, resident, 1)[0]
        print(
            f"memory        {slope * 60 / 2**20:+.2f} MiB a minute over the last {seconds[-1] - seconds[0]:.0f} s,"
            f" {resident.min() / 2**20:,.0f} to {resident.max() / 2**20:,.0f} MiB"
        )


def stored_once(state: Path, sent: Mapping[str, int]) -> int:
    """The number of intervals of the jobs that are complete and without duplicates in the log in `state`.

    sent: the number of intervals of each job, which are numbered from 0.
    """
    query = "SELECT job, count(*), count(DISTINCT first_index), max(first_index) FROM blocks GROUP BY job"
    # Opening the store replays the journal.
    with Store(state / "log.duckdb") as store, store.cursor() as log:
        found = {job: (rows, distinct, last) for job, rows, distinct, last in log.execute(query).fetchall()}
    return sum(rows for job, rows in sent.items() if found.get(job, (0, 0, -1)) == (rows, rows, rows - 1))
