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

from barograph.cli import CommandError
from barograph.operate.supervisor import SupervisedDaemon, Supervisor
from barograph.site.settings import PageSettings
from barograph.views.modeler import default_modeler
from barograph_agent.settings.places import PAGE_OFFSET
from barograph_agent.settings.setting import declared
from barograph_agent.settings.sources import ConfigError, Configuration, S, site_file
from barograph_alerts.settings import AlertsSettings
from barograph_collector.daemon.logs import log_to_stderr
from barograph_collector.daemon.notify import Notifier
from barograph_collector.daemon.options import add_config, add_option
from barograph_collector.daemon.service import CannotStart, Exit, Shutdown
from barograph_collector.settings import CollectorSettings
from barograph_modeler.settings import ModelerSettings

DEFAULT_PORT: Final = 7450
SHARD_PORTS: Final = 10
"""The ports of a further collector are so many above those of the one before."""
MAX_SHARDS: Final = 64
MAX_PORT: Final = 65535
_LAKE: Final = ("lake", "lake_endpoint", "lake_credentials", "catalog")
_log = logging.getLogger(__name__)


def default_state() -> Path:
    """The default state directory."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "barograph"


class ServicePlan(NamedTuple):
    """State directory, addresses of collectors and pages, log format, and the daemons in the order of their start."""

    state: Path
    endpoint: str
    pages: list[str]
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
        return Configuration(section, given=given, environment=environment, file=file).settings

    def port(option: str, above: int) -> list[str]:
        return [] if options.port is None else [f"--{option}=127.0.0.1:{options.port + above}"]

    def passed(*names: str) -> list[str]:
        return [f"--{name.replace('_', '-')}={value}" for name, value in given_options(*names).items()]

    def daemon(name: str, above: int, *arguments: str) -> SupervisedDaemon:
        metrics = port("metrics", above)
        return SupervisedDaemon(name, [sys.executable, "-m", f"barograph_{name}.main", *config, *metrics, *arguments])

    # Settings of all daemons are validated before the first one starts.
    log, modeler = settings(CollectorSettings, *_LAKE), settings(ModelerSettings, "window")
    settings(AlertsSettings, "alpha", "margin")
    endpoint = _reachable(log.listen if options.port is None else f"tcp://127.0.0.1:{options.port}")
    # A page has one collector, whatever the environment has for agents.
    given = {"collector": endpoint}
    page = Configuration(PageSettings, given=given, environment=environment, file=file).settings
    state = options.state or log.state or default_state()
    listen = [] if options.port is None else [f"--listen={endpoint}"]
    # A configured state directory of the modeler takes precedence.
    snapshots = [] if modeler.state is not None else [f"--state={state}"]
    arguments = [*config]
    if options.port is None and page.modeler is None:
        host, number = modeler.metrics
        arguments.append(f"--modeler=http://{_here(host)}:{number}")
    listens = page.listen if options.port is None else ("127.0.0.1", options.port + PAGE_OFFSET)
    metrics = log.metrics if options.port is None else ("127.0.0.1", options.port + 1)
    lake = passed(*_LAKE)
    collectors = [daemon("collector", 1, f"--state={state}", *listen, *lake)]
    endpoints, pages = [endpoint], [f"http://{_here(listens[0])}:{listens[1]}"]
    page_daemons = [_page("page", [*arguments, *port("listen", PAGE_OFFSET), f"--collector={endpoint}"])]
    if options.shards > 1 and not any(word.startswith("--modeler=") for word in arguments):
        arguments.append(f"--modeler={page.modeler or default_modeler(endpoint)}")
    bound = urlsplit(log.listen if options.port is None else endpoint)
    for number in range(2, options.shards + 1):
        places = [_shifted(one, number) for one in ((bound.hostname or "", bound.port or 0), metrics, listens)]
        words = [f"--state={state / f'shard{number}'}", f"--listen=tcp://{_text(places[0])}", *lake]
        command = [sys.executable, "-m", "barograph_collector.main", *config, f"--metrics={_text(places[1])}", *words]
        collectors.append(SupervisedDaemon(f"collector{number}", command))
        endpoints.append(_reachable(f"tcp://{_text(places[0])}"))
        scraped = f"http://{_here(places[1][0])}:{places[1][1]}"
        pages.append(f"http://{_here(places[2][0])}:{places[2][1]}")
        words = [f"--listen={_text(places[2])}", f"--collector={endpoints[-1]}", f"--collector-metrics={scraped}"]
        page_daemons.append(_page(f"page{number}", [*arguments, *words]))
    followed = f"--collector={','.join(endpoints)}"
    daemons = [
        *collectors,
        daemon("modeler", 2, followed, *snapshots, *passed("window")),
        daemon("alerts", 3, followed, *passed("alpha", "margin")),
        *page_daemons,
    ]
    return ServicePlan(state, ",".join(endpoints), pages, log.log_format, daemons)


def _shifted(address: tuple[str, int], number: int) -> tuple[str, int]:
    """An address of the collector with a number from 2 on, by that of the first. Raises ConfigError."""
    host, first = address
    port = first + (number - 1) * SHARD_PORTS
    if not first or port > MAX_PORT:
        raise ConfigError(f"shards: port {port} for collector {number}, expected {SHARD_PORTS + 1} to {MAX_PORT}")
    return host, port


def _text(address: tuple[str, int]) -> str:
    return f"{_bracketed(address[0])}:{address[1]}"


def _page(name: str, arguments: list[str]) -> SupervisedDaemon:
    return SupervisedDaemon(name, [sys.executable, "-m", "barograph", "page", *arguments], reloads=False)


def _reachable(listen: str) -> str:
    """The address at which clients on this host reach a daemon that listens on `listen`.

    >>> _reachable("tcp://0.0.0.0:7450")
    'tcp://127.0.0.1:7450'
    """
    parts = urlsplit(listen)
    return f"tcp://{_here(parts.hostname or '')}:{parts.port}"


def _here(host: str) -> str:
    return _bracketed({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _shards(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_SHARDS:
        raise argparse.ArgumentTypeError(f"{text!r}, expected 1 to {MAX_SHARDS}")
    return int(text)


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
    parser = argparse.ArgumentParser(
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
        type=_shards,
        default=1,
        metavar="N",
        help=f"collectors, each with a state directory below, {SHARD_PORTS} ports above the one before, and a page of"
        " its own; jobs are shared between them (default: %(default)s)",
    )
    for section, name in (
        *((CollectorSettings, name) for name in _LAKE),
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
        supervisor.start(shutdown)
        pages = "page" if len(planned.pages) == 1 else "pages"
        # No comma behind the endpoints, which may be several with commas between.
        where = f"{pages} {' '.join(planned.pages)}, BAROGRAPH_COLLECTOR={planned.endpoint}"
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
