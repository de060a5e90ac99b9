"""A disturbance of a program on one node of a cluster: its process is stopped for a share of the time."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

from helpers.cluster import Cluster

PERIOD = 0.1
"""Seconds."""
STOPPED = 0.4
"""Share of a period."""
SHELLS = ("sh", "dash", "bash")


class Disturbance:
    """Stops and continues the processes of a program on a node, from `after` seconds on until it is left.

    word: one of its command line, which no other process on the node has but shells.
    """

    def __init__(self, made: Cluster, node: str, word: str, after: float) -> None:
        self._made, self._node, self._word = made, node, word.encode()
        self._after = after
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.began_at = float("nan")
        self.stopped = 0
        """Processes."""

    def __enter__(self) -> Disturbance:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        if self._over.wait(self._after):
            return
        pids = [pid for pid in self._made.processes(self._node, b"") if self._is_it(pid)]
        self.stopped = len(pids)
        self.began_at = time.time()
        while not self._over.is_set():
            self._send(pids, signal.SIGSTOP)
            self._over.wait(STOPPED * PERIOD)
            self._send(pids, signal.SIGCONT)
            self._over.wait((1 - STOPPED) * PERIOD)

    def _is_it(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            # A program may be a script that starts another one with the same words.
            process = Path(f"/proc/{pid}")
            words = (process / "cmdline").read_bytes().split(b"\0")
            return self._word in words and (process / "exe").readlink().name not in SHELLS
        return False

    def _send(self, pids: list[int], number: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
