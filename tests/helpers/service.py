"""A service and a compute node for tests: a collector that can be killed and comes back, `barograph run` beside it.

The three daemons together are `helpers.up.Up`.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from barograph_agent.deliver.link import Link
from barograph_agent.deliver.outbox import Memory
from barograph_agent.protocol import wire
from barograph_collector.client.log_reader import LogReader, LogUnavailable
from helpers.log import DEADLINE_SECONDS, wait_until
from helpers.mpi import OPENMPI_ENVIRONMENT
from helpers.up import free_ports

NOWHERE = "tcp://127.0.0.1:1"
SENTENCE = "healthy: as ever"


class Service:
    """`barograph collector` on one port and one database for good, however often it is killed and started again."""

    def __init__(self, directory: Path, *options: str) -> None:
        """options: of the collector."""
        self.endpoint = f"tcp://127.0.0.1:{free_ports(1)}"
        self._state = directory / "state"
        self.log = directory / "collector.log"
        self._options = options
        self._starts = 0

    def start(self) -> None:
        """Start it and wait until it listens."""
        command = [sys.executable, "-m", "barograph_collector.main", "--state", str(self._state)]
        command += ["--listen", self.endpoint, "--metrics", "127.0.0.1:0", *self._options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self._starts += 1
        wait_until(lambda: self._listening() or self.process.poll() is not None, "the collector listens")
        assert self.process.poll() is None, self.log.read_text()

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self.process.kill()
        self.process.wait()

    def rows(self, table: str, app: str = "") -> list[dict[str, Any]]:
        """All rows of a table; with `app` those of its only job."""
        job = self.job(app) if app else ""
        found: list[dict[str, Any]] = []
        with LogReader(self.endpoint, DEADLINE_SECONDS) as reader:
            for batch in reader.read_all(table, job=job):
                columns = {name: list(column) for name, column in batch.columns.items()}
                found += [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return found

    def job(self, app: str) -> str:
        """The only job of this application."""
        (job,) = (row["job"] for row in self.rows("jobs") if row["app"] == app)
        return str(job)

    def indices(self, app: str) -> list[int]:
        """The numbers of the intervals stored for the only job of this application, in the order of the log."""
        rows = self.rows("blocks", app)
        assert {row["count"] for row in rows} <= {1}
        return [int(row["first_index"]) for row in rows]

    def _listening(self) -> bool:
        return self.log.read_text().count(" listening on ") == self._starts

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE_SECONDS)


class Oracle:
    """Stands for the alerts daemon: calls every job healthy as soon as it hears of it, and for good."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        outbox, offset = Memory(), 0
        link = Link(self._endpoint, f"oracle/{os.getpid()}.{id(self)}", outbox)
        with LogReader(self._endpoint, 2.0) as reader:
            while not self._over.is_set():
                link.pump(0.05)
                try:
                    page = reader.read("jobs", offset)
                except LogUnavailable:
                    continue
                offset = page.next_offset
                for job in page.columns["job"]:
                    values = {"job": job, "workload": "w", "state": "healthy", "score": 0.0, "slowdown": 1.0,
                              "onset_at": 0.0, "alarmed_at": 0.0, "windows": 1, "final": 1, "sentence": SENTENCE,
                              "time": 0.0, "cause": "none", "members": "[]", "evidence": "{}",
                              "basis": "history", "recovered_at": 0.0, "hosts": "[]"}  # fmt: skip
                    message = wire.append(link.stream, outbox.next_seq, "scores", 1, values)
                    outbox.put(1, wire.encode(message))
        link.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()


class Node:
    """A compute node: spools and rings of its own, and the `barograph` command."""

    def __init__(self, directory: Path, endpoint: str = NOWHERE) -> None:
        self.spools, self.rings = directory / "spools", directory / "rings"
        foreign = re.compile(r"SLURM_|BAROGRAPH_|LD_PRELOAD$")
        self.environment = {name: value for name, value in os.environ.items() if not foreign.match(name)}
        self.environment |= OPENMPI_ENVIRONMENT
        self.environment |= {
            "BAROGRAPH_COLLECTOR": endpoint,
            "BAROGRAPH_SPOOL": str(self.spools),
            "BAROGRAPH_RINGS": str(self.rings),
        }

    def barograph(self, *words: str | Path, **popen: Any) -> subprocess.CompletedProcess[str]:
        """A `barograph` command, to its end."""
        popen = {
            "env": self.environment,
            "capture_output": True,
            "text": True,
            "timeout": 2 * DEADLINE_SECONDS,
            **popen,
        }
        return subprocess.run([sys.executable, "-m", "barograph", *map(str, words)], check=False, **popen)

    def run(self, *command: str | Path, app: str = "app", drain: float = 60, **popen: Any) -> Any:
        """`barograph run` of a command, to its end."""
        return self.barograph("run", "--app", app, "--drain", str(drain), "--", *command, **popen)

    def start(self, *command: str | Path, app: str = "app", drain: float = 60, **popen: Any) -> subprocess.Popen[str]:
        """`barograph run` of a command."""
        popen = {"env": self.environment, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
        words = ["run", "--app", app, "--drain", str(drain), "--", *map(str, command)]
        return subprocess.Popen([sys.executable, "-m", "barograph", *words], **popen)

    def waiting(self) -> list[Path]:
        """Spool directories that are still there."""
        return sorted(path for path in self.spools.iterdir() if path.is_dir()) if self.spools.exists() else []


def kill(pid: int) -> None:
    """SIGKILL, and wait until nothing of the process is left that another one could run into."""
    process = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        assert select.select([process], [], [], DEADLINE_SECONDS)[0], f"process {pid} does not die"
    finally:
        os.close(process)


def processes(is_wanted: Callable[[list[bytes]], bool]) -> list[int]:
    """The processes whose words are wanted, the last of them empty."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if is_wanted(path.read_bytes().split(b"\0")):
                found.append(int(path.parent.name))
    return sorted(found)


def sidecars(spools: Path) -> list[int]:
    """The processes of sidecars at work under this directory."""
    under = os.fsencode(spools) + b"/"
    return processes(lambda words: b"barograph_agent.sidecar.main" in words and words[-2].startswith(under))
