"""`barograph up`: run all daemons on this host, supervised, in the foreground."""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from barograph.cli import CommandError, Parser, checked
from barograph.operate.supervisor import SupervisedDaemon, Supervisor
from barograph.site.settings import PageSettings
from barograph_agent.settings.places import DEFAULT_ENDPOINT, PAGE_OFFSET
from barograph_agent.settings.setting import declared
from barograph_agent.settings.sources import ConfigError, Configuration, S, site_file
from barograph_alerts.settings import AlertsSettings
from barograph_collector.daemon.logs import log_to_stderr
from barograph_collector.daemon.notify import Notifier
from barograph_collector.daemon.options import add_config, add_option
from barograph_collector.daemon.service import CannotStart, Exit, Shutdown
from barograph_collector.settings import LAKE, CollectorSettings
from barograph_modeler.settings import ModelerSettings

DEFAULT_PORT: Final = 7450
SHARD_PORTS: Final = 10
"""The ports of a shard are so many above those of the shard before."""
MAX_SHARDS: Final = 64
MAX_PORT: Final = 65535
_log = logging.getLogger(__name__)


def default_state() -> Path:
    """The default state directory."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "barograph"


class ServicePlan(NamedTuple):
    """State directory, addresses of collectors and page, log format, and the daemons in the order of their start."""

    state: Path
    endpoint: str
    page: str
    log_format: str
    daemons: list[SupervisedDaemon]


def plan(options: argparse.Namespace, environment: Mapping[str, str]) -> ServicePlan:
    """The plan from the options of `up`, else from the configuration. Raises ConfigError."""
    file = options.config or site_file(environment)
    config = [] if file is None else [f"--config={file}"]

    def given_options(*names: str) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(options, name)) is not None}

    def settings(section: type[S], *names: str) -> S:
        given = given_options(*names)
        if "collector" in declared(section):  # agents may have those of several services in the environment
            given["collector"] = DEFAULT_ENDPOINT
        return Configuration(section, given=given, environment=environment, file=file).settings

    def passed(*names: str) -> list[str]:
        return [f"--{name.replace('_', '-')}={value}" for name, value in given_options(*names).items()]

    def daemon(name: str, *arguments: str) -> SupervisedDaemon:
        title = f"{name}{number if number > 1 else ''}"
        return SupervisedDaemon(title, [sys.executable, "-m", f"barograph_{name}.main", *config, *arguments])

    # Settings of all daemons are validated before the first one starts.
    log, modeler = settings(CollectorSettings, *LAKE, "journal"), settings(ModelerSettings, "window")
    alerts = settings(AlertsSettings, "alpha", "margin")
    state = options.state or log.state or default_state()
    bound = urlsplit(log.listen)
    first = {
        "listen": (bound.hostname or "", bound.port or 0),
        "collector": log.metrics,
        "modeler": modeler.metrics,
        "alerts": alerts.metrics,
    }
    if options.port is not None:
        first = {name: ("127.0.0.1", options.port + above) for above, name in enumerate(first)}
    daemons, shards = [], []
    for number in range(1, options.shards + 1):
        own = {name: _shifted(address, number) for name, address in first.items()}
        below = "" if number == 1 else f"shard{number}"
        endpoint = f"tcp://{_here(own['listen'])}"
        places = [f"--state={state / below}", f"--listen=tcp://{_text(own['listen'])}"]
        if log.journal is not None:
            places.append(f"--journal={log.journal / f'shard{number}'}")
        # A configured state directory of the modeler takes precedence.
        snapshots = [f"--state={(modeler.state or state) / below}"]
        metrics = {name: f"--metrics={_text(own[name])}" for name in ("collector", "modeler", "alerts")}
        follows = f"--collector={endpoint}"
        daemons += [
            daemon("collector", *places, metrics["collector"], *passed(*LAKE)),
            daemon("modeler", follows, metrics["modeler"], *snapshots, *passed("window")),
            daemon("alerts", follows, metrics["alerts"], *passed("alpha", "margin")),
        ]
        shards.append((endpoint, *(f"http://{_here(own[name])}" for name in ("collector", "modeler"))))
    # The page has these shards, whatever the environment has for agents.
    names = "collector", "collector_metrics", "modeler"
    given = dict(zip(names, map(",".join, zip(*shards, strict=True)), strict=True))
    page = Configuration(PageSettings, given=given, environment=environment, file=file).settings
    shown = page.listen if options.port is None else ("127.0.0.1", options.port + PAGE_OFFSET)
    seen = [f"--{name.replace('_', '-')}={value}" for name, value in given.items()]
    listens = [] if options.port is None else [f"--listen={_text(shown)}"]
    page_command = [sys.executable, "-m", "barograph", "page", *config, *listens, *seen]
    daemons.append(SupervisedDaemon("page", page_command, reloads=False))
    return ServicePlan(state, given["collector"], f"http://{_here(shown)}", log.log_format, daemons)


def _shifted(address: tuple[str, int], number: int) -> tuple[str, int]:
    """An address of the shard with a number from 1 on, by that of the first. Raises ConfigError."""
    host, first = address
    if number == 1:
        return address
    port = first + (number - 1) * SHARD_PORTS
    if not first or port > MAX_PORT:
        raise ConfigError(f"shards: port {port} for shard {number}, expected {SHARD_PORTS + 1} to {MAX_PORT}")
    return host, port


def _text(address: tuple[str, int]) -> str:
    return f"{_bracketed(address[0])}:{address[1]}"


def _here(address: tuple[str, int]) -> str:
    """The address at which clients on this host reach a daemon that listens on `address`.

    >>> _here(("0.0.0.0", 7450))
    '127.0.0.1:7450'
    """
    host, port = address
    return _text(({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@contextmanager
def owned(state: Path) -> Iterator[None]:
    """Hold an exclusive lock on the state directory. Raises CannotStart."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(state / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        text = f"state directory {state}: {error.strerror}, expected a writable directory"
        raise CannotStart(text, Exit.STATE) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        text = f"state directory {state}: in use by another `barograph up`, expected one"
        raise CannotStart(text, Exit.STATE) from None
    try:
        yield
    finally:
        os.close(lock)


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM or Ctrl-C."""
    parser = Parser(
        prog="barograph up",
        description="Run collector, modeler, alerts and page on this host; restart any that exits.",
    )
    add_config(parser)
    parser.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help=f"directory of the log (default: as configured, else {default_state()})",
    )
    parser.add_argument(
        "--port",
        type=int,
        metavar="N",
        help="port of the log on 127.0.0.1; metrics and page use the next four "
        f"(default: as configured, else {DEFAULT_PORT})",
    )
    parser.add_argument(
        "--shards",
        type=checked(int, lambda shards: 1 <= shards <= MAX_SHARDS, f"1 to {MAX_SHARDS}"),
        default=1,
        metavar="N",
        help="shards, each a collector with a modeler and alerts, with a state directory below and"
        f" {SHARD_PORTS} ports above the shard before; users are shared between them (default: %(default)s)",
    )
    for section, name in (
        *((CollectorSettings, name) for name in (*LAKE, "journal")),
        (AlertsSettings, "alpha"),
        (AlertsSettings, "margin"),
        (ModelerSettings, "window"),
    ):
        add_option(parser, declared(section)[name])
    options = parser.parse_args(arguments)
    if options.port is not None and not 1024 <= options.port <= 65531:
        parser.error(f"argument --port: {options.port}, expected 1024 to 65531")
    try:
        planned = plan(options, os.environ)
    except ConfigError as error:
        parser.exit(Exit.USAGE, f"barograph up: {error}\n")
    log_to_stderr("up", planned.log_format)
    try:
        with owned(planned.state), Shutdown() as shutdown:
            _supervise(Supervisor(planned.daemons), shutdown, planned)
    except CannotStart as error:
        raise CommandError(str(error), error.status) from None
    return Exit.OK


def _supervise(supervisor: Supervisor, shutdown: Shutdown, planned: ServicePlan) -> None:
    notifier = Notifier(os.environ)
    try:
        names = ", ".join(daemon.name for daemon in planned.daemons)
        _log.info("starting %s, state %s", names, planned.state)
        supervisor.start(shutdown)
        # No comma behind the endpoints, which may be several with commas between.
        where = f"page {planned.page}, BAROGRAPH_COLLECTOR={planned.endpoint}"
        _log.info("ready: %s (Ctrl-C stops everything)", where)
        notifier.ready()
        while not shutdown.wait(0.2):
            notifier.alive()
            if shutdown.hung_up():
                supervisor.reload()
            supervisor.check()
    finally:
        notifier.stopping()
        supervisor.stop()
