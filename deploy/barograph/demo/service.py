"""The demo's `barograph up`, in a temporary directory and on free ports."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from barograph.demo.application import DemoError

MARGIN: Final = 0.3
"""Undisturbed runs on virtual machines vary by up to 1.3x."""
WINDOW_SECONDS: Final = 0.5


class Service:
    """A running `barograph up`."""

    def __init__(self, state: Path) -> None:
        port = _free_ports(5)
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self.metrics = [f"http://127.0.0.1:{port + number}/metrics" for number in (1, 2, 3)]
        """Metrics addresses of collector, modeler and alerts."""
        self._log = state / "up.log"
        words = [f"--state={state / 'log'}", f"--port={port}", f"--margin={MARGIN}", f"--window={WINDOW_SECONDS}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "barograph", "up", *words], stdout=log, stderr=log, start_new_session=True
            )
        self.environment = {
            **os.environ,
            "BAROGRAPH_COLLECTOR": self.endpoint,
            "BAROGRAPH_SPOOL": str(state / "spool"),
            "BAROGRAPH_DISABLE": "",
        }

    @property
    def pid(self) -> int:
        """Process ID of the supervisor."""
        return self._process.pid

    def wait_ready(self, seconds: float = 60.0) -> None:
        """Wait until the daemons are ready. Raises DemoError with their last log lines."""
        deadline = time.monotonic() + seconds
        while b"ready:" not in self._log.read_bytes():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise DemoError(f"the daemons did not start:\n{self._log.read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Interrupt the supervisor and wait for its end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        self._process.wait()


def _free_ports(count: int) -> int:
    """The first of `count` consecutive free ports."""
    for base in range(17450, 60000, count):
        with contextlib.suppress(OSError), contextlib.ExitStack() as sockets:
            for port in range(base, base + count):
                sockets.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return base
    raise DemoError(f"no {count} consecutive ports are free on 127.0.0.1, expected some between 17450 and 60000")
