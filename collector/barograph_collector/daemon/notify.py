"""Notifications to a supervisor as in sd_notify(3): datagrams to $NOTIFY_SOCKET, where it is set."""

from __future__ import annotations

import contextlib
import math
import os
import socket
from collections.abc import Callable, Mapping

from barograph_agent.system.clock import CLOCK


class Notifier:
    """Sends the state of a daemon. Never blocks; without $NOTIFY_SOCKET it does nothing."""

    def __init__(self, environment: Mapping[str, str], clock: Callable[[], float] = CLOCK.monotonic) -> None:
        """clock: seconds of CLOCK_MONOTONIC."""
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._clock = clock
        self.alive_seconds = _alive_seconds(environment)
        """Half of the watchdog timeout; infinity without a watchdog."""
        self._sent_at = -math.inf

    def ready(self) -> None:
        """The daemon is ready, or has reloaded."""
        self._send("READY=1")

    def reloading(self) -> None:
        """The daemon is reading its configuration, until `ready`."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={self._clock() * 1e6:.0f}")

    def stopping(self) -> None:
        """The daemon is shutting down."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Keep the watchdog alive: at most one notification in `alive_seconds`, none without a watchdog."""
        if math.isinf(self.alive_seconds):
            return
        now = self._clock()
        if now - self._sent_at >= self.alive_seconds:
            self._sent_at = now
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if not self._address:
            return
        # A leading @ denotes an abstract name.
        name = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel, contextlib.suppress(OSError):
            channel.setblocking(False)
            channel.sendto(text.encode(), name)


def _alive_seconds(environment: Mapping[str, str]) -> float:
    own = str(os.getpid())
    try:
        return int(environment["WATCHDOG_USEC"]) / 2e6 if environment.get("WATCHDOG_PID", own) == own else math.inf
    except (KeyError, ValueError):
        return math.inf
