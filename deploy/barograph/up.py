"""`barograph up`: the three daemons on this host, supervised in the foreground."""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from barograph.supervisor import Daemon, StartFailed, Supervisor
from barograph_collector.service import Exit, Shutdown, log_to_stderr

DEFAULT_PORT: Final = 7450
_log = logging.getLogger(__name__)


class StateError(Exception):
    """A state directory that cannot be used. The text names it, what is wrong and what was expected."""


def default_state() -> Path:
    """Where the log is kept unless told otherwise."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "barograph"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that say how the daemons run."""
    parser.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        metavar="N",
        help="the log's port; the metrics of the three daemons are on the next three (default: %(default)s)",
    )
    parser.add_argument("--alpha", help="bound on the share of healthy jobs that ever alarm (default: 0.01)")
    parser.add_argument("--margin", help="slowdown that does not matter, 0.05 is 5 %% (default: 0.05)")
    parser.add_argument("--window", metavar="SECONDS", help="pieces in which jobs are compared (default: 1)")


def daemons(state: Path, options: argparse.Namespace) -> list[Daemon]:
    """The three daemons in the order they start."""
    port: int = options.port
    endpoint = f"tcp://127.0.0.1:{port}"

    def daemon(name: str, metrics: int, *arguments: str | None) -> Daemon:
        words = [word for word in arguments if word is not None]
        module = {"collector": "barograph_collector", "modeler": "barograph_modeler", "alerts": "barograph_alerts"}
        address = f"127.0.0.1:{metrics}"
        command = [sys.executable, "-m", f"{module[name]}.daemon", "--metrics", address, *words]
        return Daemon(name, command)

    def given(name: str) -> list[str]:
        value = getattr(options, name)
        return [] if value is None else [f"--{name}={value}"]

    return [
        daemon("collector", port + 1, f"--state={state}", f"--listen={endpoint}"),
        daemon("modeler", port + 2, f"--collector={endpoint}", f"--state={state}", *given("window")),
        daemon("alerts", port + 3, f"--collector={endpoint}", *given("alpha"), *given("margin")),
    ]


@contextmanager
def owned(state: Path) -> Iterator[None]:
    """Hold the state directory for this process alone. Raises StateError."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(state / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StateError(f"state directory {state}: {error.strerror}, expected a writable directory") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise StateError(f"state directory {state}: in use by another `barograph up`, expected one") from None
    try:
        yield
    finally:
        os.close(lock)


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM or Ctrl-C; returns an `Exit`."""
    parser = argparse.ArgumentParser(
        prog="barograph up", description="Run collector, modeler and alerts on loopback; start again what dies."
    )
    parser.add_argument(
        "--state",
        type=Path,
        default=default_state(),
        metavar="DIR",
        help="where the log is kept (default: %(default)s)",
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    if not 1024 <= options.port <= 65532:
        parser.error(f"argument --port: {options.port}, expected 1024 to 65532")
    log_to_stderr("up")
    try:
        with owned(options.state), Shutdown() as shutdown:
            supervisor = Supervisor(daemons(options.state, options))
            try:
                supervisor.start(shutdown)
                _log.info("ready: BAROGRAPH_COLLECTOR=tcp://127.0.0.1:%d, Ctrl-C stops everything", options.port)
                while not shutdown.wait(0.2):
                    supervisor.check(time.monotonic())
            finally:
                supervisor.stop()
    except StateError as error:
        print(f"barograph up: {error}", file=sys.stderr)
        return Exit.STATE
    except StartFailed as error:
        print(f"barograph up: {error}", file=sys.stderr)
        return error.status
    return Exit.OK
