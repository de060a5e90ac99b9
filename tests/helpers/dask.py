"""A Dask cluster of processes on this host, whose workers can be killed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Self


class Cluster:
    """A scheduler and some workers, from entry to exit."""

    def __init__(self, workers: int, directory: Path) -> None:
        self._count = workers
        self._directory = directory

    def __enter__(self) -> Self:
        self._scheduler = self._start("distributed.cli.dask_scheduler", "--port", "0")
        assert self._scheduler.stderr is not None
        lines = (re.search(r"tcp://127\.0\.0\.1:\d+", line) for line in self._scheduler.stderr)
        self.address = next(found[0] for found in lines if found)
        self.workers = [self._worker(number) for number in range(self._count)]
        return self

    def __exit__(self, *error: object) -> None:
        for one in (self._scheduler, *self.workers):
            one.kill()
            one.communicate()

    def replace(self, number: int) -> None:
        """Kill a worker, and start another one."""
        self.workers[number].kill()
        self.workers[number].communicate()
        self.workers[number] = self._worker(number)

    def _worker(self, number: int) -> subprocess.Popen[str]:
        # Without a nanny, which would start a killed one again.
        place = str(self._directory / str(number))
        options = ("--nthreads", "1", "--no-nanny", "--local-directory", place)
        return self._start("distributed.cli.dask_worker", self.address, *options)

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", *arguments, "--host", "127.0.0.1", "--no-dashboard"]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
