"""A real `barograph up` for tests: all daemons on free ports, in a directory of their own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from barograph_collector.client.log_reader import LogReader
from helpers.log import DEADLINE_SECONDS, wait_until

WORKERS, SHARE = 4, 3_000
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
PORTS = 20_000 + _worker * SHARE, 20_000 + (_worker + 1) * SHARE
"""From where to where: apart from those of tests beside these, below those that Linux gives to whoever connects."""
_next_port = PORTS[0] + os.getpid() * 97 % SHARE


def free_ports(count: int) -> int:
    """The first of `count` neighbouring free ports, which no earlier call of this process has named."""
    global _next_port  # noqa: PLW0603 - what was named may not be bound yet
    while True:
        base = _next_port if _next_port + count <= PORTS[1] else PORTS[0]
        _next_port = base + count
        sockets = [socket.socket() for _ in range(count)]
        try:
            for number, one in enumerate(sockets):
                one.bind(("127.0.0.1", base + number))
        except OSError:
            continue
        else:
            return base
        finally:
            for one in sockets:
                one.close()


def complaints(done: subprocess.CompletedProcess[str]) -> str:
    """What a command wrote to standard error, less its notes that it waits for an application being learned."""
    return re.sub(r"^barograph \w+: .* is being learned at this moment; waiting\n", "", done.stderr, flags=re.MULTILINE)


class Up:
    """`barograph up`, started on entry and interrupted on exit unless it has ended by then."""

    def __init__(self, directory: Path, *arguments: str, ports: int = 5) -> None:
        self.port = free_ports(ports)
        self.state = directory / "state"
        self.log = directory / "up.log"
        self.endpoint = f"tcp://127.0.0.1:{self.port}"
        self.environment = {
            **os.environ,
            "BAROGRAPH_COLLECTOR": self.endpoint,
            "BAROGRAPH_SPOOL": str(directory / "spool"),
        }
        self._arguments = arguments

    def __enter__(self) -> Self:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "barograph",
                    "up",
                    f"--state={self.state}",
                    f"--port={self.port}",
                    *self._arguments,
                ],
                stdout=log,
                stderr=log,
            )
        self.wait_for("ready:")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.wait(DEADLINE_SECONDS)

    def wait_for(self, text: str, times: int = 1) -> None:
        """Wait until the log holds `text` so many times."""

        def is_there() -> bool:
            found = (log := self.log.read_text()).count(text) >= times
            assert found or self.process.poll() is None, f"up ended with {self.process.returncode}:\n{log}"
            return found

        wait_until(is_there, f"{text!r} {times} times in {self.log}", every=0.02)

    def metrics(self, daemon: str) -> str:
        """The exposition of one daemon."""
        number = ("collector", "modeler", "alerts").index(daemon)
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port + 1 + number}/metrics", timeout=DEADLINE_SECONDS
        ) as answer:
            return answer.read().decode()

    def wait_for_metric(self, daemon: str, pattern: str) -> str:
        """Wait until a line of the exposition matches; returns the line."""
        lines: list[str] = []

        def is_there() -> bool:
            found = re.search(f"^{pattern}.*$", self.metrics(daemon), re.MULTILINE)
            lines.extend([found[0]] if found else [])
            return found is not None

        wait_until(is_there, f"a line {pattern!r}", every=0.1)
        return lines[0]

    def wait_for_rows(self, table: str, rows: int) -> None:
        """Wait until the log has so many rows of a table. Unlike the collector's metric, reading waits for no batch."""
        with LogReader(self.endpoint, DEADLINE_SECONDS) as log:
            wait_until(
                lambda: sum(page.rows for page in log.read_all(table)) >= rows, f"{rows} rows of {table}", every=0.05
            )

    def pid(self, daemon: str) -> int:
        """The process of one daemon."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for child in children:
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if f"barograph_{daemon}.main".encode() in words or daemon.encode() in words:
                return int(child)
        raise AssertionError(f"no {daemon} among {children}")

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A `barograph` command that talks to this service."""
        return subprocess.run(
            [sys.executable, "-m", "barograph", *command],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE_SECONDS,
            check=False,
        )
