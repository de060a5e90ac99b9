"""Keeping processes alive: start them, start again what dies, stop in the opposite order within a time."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from barograph_collector.daemon.service import Exit, Shutdown

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
"""All of them together have so long to stop, as each has under systemd. Killing does no harm, but costs a snapshot."""
BACKOFF_LIMIT_SECONDS: Final = 10.0
STABLE_SECONDS: Final = 30.0
WATCHDOG_SECONDS: Final = 300.0
"""A daemon that has not said for so long that it goes round is taken for frozen. Reading a long log takes its time."""
_PR_SET_PDEATHSIG: Final = 1
_log = logging.getLogger(__name__)


class SupervisedDaemon(NamedTuple):
    """A process to keep alive, which speaks as under systemd.

    It says READY=1 to $NOTIFY_SOCKET once it is at work, and from then on WATCHDOG=1 in time.
    """

    name: str
    command: list[str]
    reloads: bool = True
    """Whether it reads its configuration again on SIGHUP."""


class StartFailed(Exception):
    """A daemon that did not come up; `status` is what it exited with."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class _Kept:
    def __init__(self, daemon: SupervisedDaemon, watchdog_seconds: float) -> None:
        self.daemon = daemon
        self.watchdog_seconds = watchdog_seconds
        self.heard_at: float | None = None
        """When it last gave a sign of life; None before it is ready."""
        self.process: subprocess.Popen[bytes] | None = None
        self.started = 0.0
        self.failures = 0
        self.again_at: float | None = None
        # Bound to an abstract name that the kernel picks. Ready is what this process says, not who answers on a port.
        self.channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.channel.bind("")
        self.channel.setblocking(False)

    def start(self) -> None:
        self.started = time.monotonic()
        self.again_at = None
        # What the one before has said and nobody heard is not its word.
        self.listen(self.started)
        self.heard_at = None
        # A session of its own: Ctrl-C at the terminal is for the supervisor, which stops the daemons in order.
        # Should the supervisor be killed outright, the kernel stops them.
        self.process = subprocess.Popen(
            self.daemon.command,
            env={**_without_watchdog(), **self._notify()},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - the supervisor has one thread
        )

    def listen(self, now: float) -> bool:
        """Hear what it has said; whether it is ready."""
        with contextlib.suppress(BlockingIOError):
            while said := self.channel.recv(1024).splitlines():
                if b"READY=1" in said or b"WATCHDOG=1" in said:
                    self.heard_at = now
        return self.heard_at is not None

    def is_frozen(self, now: float) -> bool:
        """Whether it should have been heard of."""
        return self.heard_at is not None and now - self.heard_at > self.watchdog_seconds

    def _notify(self) -> dict[str, str]:
        return {
            "NOTIFY_SOCKET": "@" + self.channel.getsockname()[1:].decode(),
            "WATCHDOG_USEC": f"{self.watchdog_seconds * 1e6:.0f}",
        }


class Supervisor:
    """Keeps daemons running in the order given; one that is silent for `watchdog_seconds` is frozen, and is killed."""

    def __init__(self, daemons: Sequence[SupervisedDaemon], watchdog_seconds: float = WATCHDOG_SECONDS) -> None:
        self._kept = [_Kept(daemon, watchdog_seconds) for daemon in daemons]

    def start(self, shutdown: Shutdown) -> None:
        """Start the first, and once it is ready the others. Raises StartFailed; returns early when asked to stop."""
        first, *others = self._kept
        first.start()
        self._wait_ready(first, shutdown)
        for kept in others:
            kept.start()
        for kept in others:
            self._wait_ready(kept, shutdown)

    def check(self, now: float) -> None:
        """Start again what has died: at once the first time, later and later while it keeps dying."""
        for kept in self._kept:
            kept.listen(now)
            if kept.process is None:
                continue
            if kept.process.poll() is None:
                if kept.is_frozen(now):
                    _log.error("%s has been silent for %g s and is killed", kept.daemon.name, kept.watchdog_seconds)
                    kept.process.kill()
                    kept.process.wait()
                continue
            if kept.again_at is None:
                if now - kept.started > STABLE_SECONDS:
                    kept.failures = 0
                delay = 0.0 if kept.failures == 0 else min(2.0 ** (kept.failures - 1), BACKOFF_LIMIT_SECONDS)
                kept.failures += 1
                kept.again_at = now + delay
                status = kept.process.returncode
                _log.warning("%s ended with status %d, starting it again in %.0f s", kept.daemon.name, status, delay)
            if now >= kept.again_at:
                kept.start()

    def reload(self) -> None:
        """Let each read its configuration again."""
        for kept in self._kept:
            if kept.daemon.reloads and kept.process is not None and kept.process.poll() is None:
                kept.process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """Ask each to stop, last started first, and kill what has not stopped when the time is over."""
        deadline = time.monotonic() + STOP_SECONDS
        for kept in reversed(self._kept):
            if kept.process is None or kept.process.poll() is not None:
                continue
            kept.process.terminate()
            try:
                kept.process.wait(max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                _log.warning("%s did not stop in time and is killed", kept.daemon.name)
                kept.process.kill()
                kept.process.wait()
        for kept in self._kept:
            kept.channel.close()

    def _wait_ready(self, kept: _Kept, shutdown: Shutdown) -> None:
        assert kept.process is not None
        deadline = time.monotonic() + START_SECONDS
        while not shutdown.requested:
            if select.select([kept.channel], [], [], 0.05)[0] and kept.listen(time.monotonic()):
                return
            if (status := kept.process.poll()) is not None:
                raise StartFailed(f"{kept.daemon.name} did not start (status {status}), see its line above", status)
            if time.monotonic() > deadline:
                raise StartFailed(f"{kept.daemon.name} was not ready after {START_SECONDS:g} s", Exit.FAILED)


def _without_watchdog() -> dict[str, str]:
    """The environment, but for the process that this process's own supervisor wants to hear of."""
    return {name: value for name, value in os.environ.items() if name != "WATCHDOG_PID"}


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
