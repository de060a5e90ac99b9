"""What disturbs a program on one node of a cluster: its process stops for a share of the time, or its link is slow."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from barograph_agent.kernel.readings import process_stat
from barograph_agent.system.processes import PROCESSES
from helpers.cluster import Cluster

PERIOD = 0.1
"""Seconds."""
STOPPED = 0.4
"""Share of a period."""
SHELLS = ("sh", "dash", "bash")


class Disturbance:
    """Disturbs a node from `after` seconds on until it is left."""

    def __init__(self, made: Cluster, node: str, after: float) -> None:
        self._made, self._node, self._after = made, node, after
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._wait)
        self.began_at = float("nan")
        self.disturbed = 0
        """Processes or links."""

    def __enter__(self) -> Disturbance:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def _wait(self) -> None:
        if not self._over.wait(self._after):
            self.began_at = time.time()
            self._disturb()

    def _disturb(self) -> None:
        """Until `_over`; sets `disturbed`."""
        raise NotImplementedError


class SlowLink(Disturbance):
    """Limits the link of the node to a rate in bytes per second."""

    def __init__(self, made: Cluster, node: str, rate: float, after: float) -> None:
        super().__init__(made, node, after)
        self._rate = rate

    def _disturb(self) -> None:
        self._made.shape(self._node, f"{8 * self._rate:.0f}bit")
        self.disturbed = 1
        self._over.wait()
        self._made.shape(self._node, "")


class Stops(Disturbance):
    """Stops and continues the processes of a program. words: of its command line, all of which no other process on the
    node has but shells.
    """

    def __init__(self, made: Cluster, node: str, words: Sequence[str], after: float) -> None:
        super().__init__(made, node, after)
        self._words = {word.encode() for word in words}

    def _disturb(self) -> None:
        found = [pid for pid in self._made.processes(self._node, b"") if self._is_it(pid)]
        # A program may be a script that starts another one with the same words.
        parents = {stat.parent for pid in found if (stat := process_stat(PROCESSES, pid)) is not None}
        pids = [pid for pid in found if pid not in parents]
        self.disturbed = len(pids)
        while not self._over.is_set():
            self._send(pids, signal.SIGSTOP)
            self._over.wait(STOPPED * PERIOD)
            self._send(pids, signal.SIGCONT)
            self._over.wait((1 - STOPPED) * PERIOD)

    def _is_it(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            process = Path(f"/proc/{pid}")
            words = (process / "cmdline").read_bytes().split(b"\0")
            return self._words.issubset(words) and (process / "exe").readlink().name not in SHELLS
        return False

    def _send(self, pids: list[int], number: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
