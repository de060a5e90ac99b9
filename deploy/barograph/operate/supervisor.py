"""Supervision of processes: start in order, restart after an exit, stop in reverse order within a time limit."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from barograph_agent.system.clock import CLOCK
from barograph_collector.daemon.service import CannotStart, Exit, Shutdown

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
"""Time limit for all daemons together, equal to systemd's for each. A killed modeler loses only its snapshot."""
RESTART_SECONDS: Final = 1.0
"""Pause between the exit of a daemon and its restart."""
_PR_SET_PDEATHSIG: Final = 1
_log = logging.getLogger(__name__)


class SupervisedDaemon(NamedTuple):
    """A process to supervise. It says on $NOTIFY_SOCKET when it is ready, as for systemd."""

    name: str
    command: list[str]
    reloads: bool = True
    """Whether it reads its configuration again on SIGHUP."""


Process: TypeAlias = subprocess.Popen[bytes]
Launch = Callable[[list[str], Mapping[str, str]], Process]
"""Starts a command with this environment."""


class _Child:
    """A daemon's process and its notification socket. Times are seconds of the monotonic clock."""

    def __init__(self, daemon: SupervisedDaemon, launch: Launch) -> None:
        self.daemon = daemon
        self._launch = launch
        self.process: Process | None = None
        self.restart_at: float | None = None
        # Autobind: the kernel assigns an abstract address.
        self.channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.channel.bind("")
        self.channel.setblocking(False)

    def start(self) -> None:
        self.restart_at = None
        address = "@" + self.channel.getsockname()[1:].decode()
        # Of the watchdog of this supervisor its daemons know nothing.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("WATCHDOG_")}
        environment |= {"NOTIFY_SOCKET": address, "BAROGRAPH_DAEMON": self.daemon.name}
        self.process = self._launch(self.daemon.command, environment)

    def is_ready(self) -> bool:
        """Whether the daemon has said so since the last call."""
        with contextlib.suppress(BlockingIOError):
            while notified := self.channel.recv(1024).splitlines():
                if b"READY=1" in notified:
                    return True
        return False


class Supervisor:
    """Runs daemons: starts them in order, restarts what exits, stops them in reverse order."""

    def __init__(
        self,
        daemons: Sequence[SupervisedDaemon],
        *,
        clock: Callable[[], float] = CLOCK.monotonic,
        launch: Launch | None = None,
    ) -> None:
        """`clock` is in seconds; waiting is done by the processes and by the `Shutdown`."""
        self._clock = clock
        self._children = [_Child(daemon, launch or _launch) for daemon in daemons]

    def start(self, shutdown: Shutdown) -> None:
        """Start the first daemon, and once it is ready the others. Raises CannotStart; returns early on shutdown."""
        first, *others = self._children
        first.start()
        self._wait_ready(first, shutdown)
        for child in others:
            child.start()
        for child in others:
            self._wait_ready(child, shutdown)

    def check(self) -> None:
        """Restart daemons that have exited, RESTART_SECONDS later."""
        now = self._clock()
        for child in self._children:
            child.is_ready()  # a socket that nobody reads becomes full
            if child.process is None or child.process.poll() is None:
                continue
            if child.restart_at is None:
                child.restart_at = now + RESTART_SECONDS
                end = _end_of(child.process.returncode)
                _log.warning("%s %s, starting it again in %g s", child.daemon.name, end, RESTART_SECONDS)
            elif now >= child.restart_at:
                child.start()

    def reload(self) -> None:
        """Make each daemon read its configuration again."""
        for child in self._children:
            if child.daemon.reloads and child.process is not None and child.process.poll() is None:
                child.process.send_signal(signal.SIGHUP)

    def stop(self) -> None:
        """Stop the daemons in reverse order, and kill those that run after STOP_SECONDS."""
        deadline = self._clock() + STOP_SECONDS
        for child in reversed(self._children):
            if child.process is None or child.process.poll() is not None:
                continue
            child.process.terminate()
            try:
                child.process.wait(max(deadline - self._clock(), 0.0))
            except subprocess.TimeoutExpired:
                _log.warning("%s did not stop in time and is killed", child.daemon.name)
                child.process.kill()
                child.process.wait()
        for child in self._children:
            child.channel.close()

    def _wait_ready(self, child: _Child, shutdown: Shutdown) -> None:
        assert child.process is not None
        deadline = self._clock() + START_SECONDS
        while not shutdown.requested and not child.is_ready():
            if (status := child.process.poll()) is not None:
                raise CannotStart(f"{child.daemon.name} did not start (status {status}), see its line above", status)
            if self._clock() > deadline:
                raise CannotStart(f"{child.daemon.name} was not ready after {START_SECONDS:g} s", Exit.FAILED)
            shutdown.wait(0.05)


def _launch(command: list[str], environment: Mapping[str, str]) -> Process:
    # A new session keeps Ctrl-C from the daemon: the supervisor stops the daemons in order. If the supervisor is
    # killed, the kernel terminates them.
    return subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - the supervisor has one thread
    )


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _end_of(status: int) -> str:
    """How a process has ended, in words. status: as Popen has it.

    >>> _end_of(3), _end_of(-9)
    ('ended with status 3', 'was killed by SIGKILL')
    """
    return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
