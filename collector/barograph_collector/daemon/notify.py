"""What a daemon tells its supervisor, as sd_notify(3) does: datagrams to $NOTIFY_SOCKET, if there is one."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time
from collections.abc import Callable, Mapping


class Notifier:
    """Says how a daemon is. Where nobody listens it says nothing, and it never waits."""

    def __init__(self, environment: Mapping[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        """clock: seconds as CLOCK_MONOTONIC has them."""
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._clock = clock
        self.alive_seconds = _alive_seconds(environment)
        """How often the supervisor wants to hear that the daemon lives, halved; infinity where it does not ask."""
        self._said_at = float("-inf")

    def ready(self) -> None:
        """Work has begun, or goes on after `reloading`."""
        self._say("READY=1")

    def reloading(self) -> None:
        """The configuration is being read; `ready` says when that is over."""
        self._say(f"RELOADING=1\nMONOTONIC_USEC={self._clock() * 1e6:.0f}")

    def stopping(self) -> None:
        """The end has begun."""
        self._say("STOPPING=1")

    def alive(self) -> None:
        """The main loop goes round. Call it as often as you like."""
        if math.isinf(self.alive_seconds):
            return
        now = self._clock()
        if now - self._said_at >= self.alive_seconds:
            self._said_at = now
            self._say("WATCHDOG=1")

    def _say(self, text: str) -> None:
        if not self._address:
            return
        # A leading @ stands for a name outside the file system.
        name = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel, contextlib.suppress(OSError):
            channel.setblocking(False)
            channel.sendto(text.encode(), name)


def _alive_seconds(environment: Mapping[str, str]) -> float:
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return float("inf")
    try:
        return int(environment.get("WATCHDOG_USEC", "")) / 2e6
    except ValueError:
        return float("inf")
