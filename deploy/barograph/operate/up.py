"""`barograph up`: all daemons on this host, supervised in the foreground."""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from barograph.operate.supervisor import StartFailed, SupervisedDaemon, Supervisor
from barograph.site.settings import PAGE
from barograph_agent.settings import sources
from barograph_agent.settings.setting import Section
from barograph_agent.settings.sources import ConfigError, Value
from barograph_alerts.settings import ALERTS
from barograph_collector.daemon.logs import log_to_stderr
from barograph_collector.daemon.notify import Notifier
from barograph_collector.daemon.options import add_config
from barograph_collector.daemon.service import Exit, Shutdown
from barograph_collector.settings import COLLECTOR
from barograph_modeler.settings import MODELER

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
        metavar="N",
        help="the log's port on 127.0.0.1; what the others serve is on the next ones "
        f"(default: as configured, else {DEFAULT_PORT})",
    )
    parser.add_argument("--alpha", help="bound on the share of healthy jobs that ever alarm (default: 0.01)")
    parser.add_argument("--margin", help="slowdown that does not matter, 0.05 is 5 %% (default: 0.05)")
    parser.add_argument("--window", metavar="SECONDS", help="pieces in which jobs are compared (default: 1)")


class ServicePlan:
    """What runs where: from the options of `up`, where they say nothing from the configuration."""

    def __init__(self, options: argparse.Namespace, environment: Mapping[str, str]) -> None:
        """Raises ConfigError."""
        self._options = options
        self._environment = environment
        self._file = options.config or sources.site_file(environment)
        collector = self._settings(COLLECTOR)
        self.state: Path = options.state or collector["state"].value or default_state()
        listen = collector["listen"].value if options.port is None else f"tcp://127.0.0.1:{options.port}"
        self.endpoint = _reachable(listen)
        self.log_format: str = collector["log_format"].value

    def daemons(self) -> list[SupervisedDaemon]:
        """All daemons in the order they start."""
        state, collector = f"--state={self.state}", f"--collector={self.endpoint}"
        # What the configuration says of the modeler's own state stays.
        own_state = self._settings(MODELER, "window")["state"].value is not None
        # Each would refuse a wrong value itself, but only when it starts.
        self._settings(ALERTS, "alpha", "margin")
        self._settings(PAGE)
        return [
            self._daemon("collector", 1, state, *self._listen()),
            self._daemon("modeler", 2, collector, *([] if own_state else [state]), *self._given("window")),
            self._daemon("alerts", 3, collector, *self._given("alpha"), *self._given("margin")),
            self._page(collector),
        ]

    def _settings(self, section: Section, *names: str) -> dict[str, Value]:
        given = {name: value for name in names if (value := getattr(self._options, name)) is not None}
        return sources.resolve(section, given=given, environment=self._environment, file=self._file)

    def _daemon(self, name: str, above: int, *arguments: str) -> SupervisedDaemon:
        metrics = self._port("metrics", above)
        return SupervisedDaemon(
            name, [sys.executable, "-m", f"barograph_{name}.daemon", *self._config, *metrics, *arguments]
        )

    def _page(self, collector: str) -> SupervisedDaemon:
        words = [*self._config, *self._port("listen", 4), collector]
        if self._options.port is None and self._settings(PAGE)["modeler"].value is None:
            host, port = self._settings(MODELER)["metrics"].value
            words.append(f"--modeler=http://{_here(host)}:{port}")
        return SupervisedDaemon("page", [sys.executable, "-m", "barograph", "page", *words], reloads=False)

    @property
    def _config(self) -> list[str]:
        return [] if self._file is None else [f"--config={self._file}"]

    def _port(self, option: str, above: int) -> list[str]:
        port = self._options.port
        return [] if port is None else [f"--{option}=127.0.0.1:{port + above}"]

    def _listen(self) -> list[str]:
        return [] if self._options.port is None else [f"--listen={self.endpoint}"]

    def _given(self, name: str) -> list[str]:
        value = getattr(self._options, name)
        return [] if value is None else [f"--{name}={value}"]


def _reachable(listen: str) -> str:
    """Where a client on this host finds what listens there.

    >>> _reachable("tcp://0.0.0.0:7450")
    'tcp://127.0.0.1:7450'
    """
    parts = urlsplit(listen)
    return f"tcp://{_here(parts.hostname or '')}:{parts.port}"


def _here(host: str) -> str:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host


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
        prog="barograph up", description="Run collector, modeler, alerts and page on this host; start again what dies."
    )
    add_config(parser)
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help=f"where the log is kept (default: as configured, else {default_state()})",
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    if options.port is not None and not 1024 <= options.port <= 65531:
        parser.error(f"argument --port: {options.port}, expected 1024 to 65531")
    try:
        plan = ServicePlan(options, os.environ)
        daemons = plan.daemons()
    except ConfigError as error:
        parser.exit(Exit.USAGE, f"barograph up: {error}\n")
    log_to_stderr("up", plan.log_format)
    try:
        with owned(plan.state), Shutdown() as shutdown:
            _supervise(Supervisor(daemons), shutdown, plan.endpoint)
    except StateError as error:
        print(f"barograph up: {error}", file=sys.stderr)
        return Exit.STATE
    except StartFailed as error:
        print(f"barograph up: {error}", file=sys.stderr)
        return error.status
    return Exit.OK


def _supervise(supervisor: Supervisor, shutdown: Shutdown, endpoint: str) -> None:
    notifier = Notifier(os.environ)
    try:
        supervisor.start(shutdown)
        _log.info("ready: BAROGRAPH_COLLECTOR=%s, Ctrl-C stops everything", endpoint)
        notifier.ready()
        while not shutdown.wait(0.2):
            notifier.alive()
            if shutdown.hung_up():
                supervisor.reload()
            supervisor.check(time.monotonic())
    finally:
        notifier.stopping()
        supervisor.stop()
