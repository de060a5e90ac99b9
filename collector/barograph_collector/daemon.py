"""`barograph collector`: wires store, server and metrics together, and stops them in order."""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
import resource
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from barograph_collector.retention import Retention, size
from barograph_collector.service import (
    CannotListen,
    Exit,
    Shutdown,
    daemon_registry,
    host_and_port,
    log_to_stderr,
    notify_ready,
    serve_metrics,
)

if TYPE_CHECKING:
    from barograph_collector.keys import Keyring

HEARTBEAT_SECONDS = 5.0
LEAVE_SECONDS = 2.0
"""After SIGTERM. Less than any supervisor waits before it kills, which does no harm but looks like it."""
_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the collector until SIGTERM or SIGINT; returns an `Exit`."""
    arguments = _arguments(argv)
    log_to_stderr("collector")
    from barograph_collector.database import StoreError
    from barograph_collector.keys import KeysError

    try:
        return _serve(arguments)
    except (StoreError, KeysError) as error:
        return _say(Exit.STATE, str(error))
    except CannotListen as error:
        return _say(Exit.UNAVAILABLE, str(error))


def _allow_connections() -> None:
    """Let this process have as many descriptors as it may: each connection takes one, and so does each file."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _serve(options: argparse.Namespace) -> int:
    from barograph_collector.database import StoreError
    from barograph_collector.exporter import Exporter
    from barograph_collector.keys import Keyring
    from barograph_collector.server import Collector
    from barograph_collector.store import Store

    _allow_connections()
    state: Path = options.state
    keyring = Keyring(options.keys) if options.keys else None
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot create the state directory {state}: {error.strerror}") from None
    with Shutdown() as shutdown, Store(state / "log.duckdb") as store:
        collector = Collector(
            store,
            options.listen,
            on_failure=shutdown.request,
            keyring=keyring,
            munge_socket=options.munge,
            rows_per_second=options.rate,
            retention=Retention(options.keep_days, options.keep_bytes),
            reserve_bytes=options.reserve,
        )
        registry, beat = daemon_registry("collector")
        registry.register(Exporter(collector.counters, store.path))
        collector.start()
        try:
            exposition = serve_metrics(registry, *options.metrics)
        except CannotListen:
            collector.stop()
            raise
        _log.info(
            "listening on %s, log in %s, metrics on %s; %s",
            collector.endpoint,
            store.path,
            exposition.url,
            _let_in(keyring, options.keys),
        )
        notify_ready(os.environ)
        while not shutdown.wait(HEARTBEAT_SECONDS):
            beat()
            if keyring is not None:
                _refresh(keyring, options.keys)
        _leave_in(LEAVE_SECONDS)
        in_time = collector.stop(2 * LEAVE_SECONDS)
        exposition.stop()
    return Exit.OK if in_time and collector.failure is None else Exit.FAILED


def _leave_in(seconds: float) -> None:
    """End this process by then, whatever it waits for: a commit, a checkpoint, a disk.

    What was acknowledged is in the journal, and the next start brings it into the database.
    """

    def leave() -> None:
        _log.warning("not done within %g s: the next start brings into the database what the journal has", seconds)
        os._exit(Exit.OK)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()


def _let_in(keyring: Keyring | None, directory: Path) -> str:
    if keyring is None:
        return "no keys: everybody on this host is let in, and nobody else, for only loopback addresses are taken"
    return f"clients let in: {len(keyring)}, by the keys in {directory}"


def _refresh(keyring: Keyring, directory: Path) -> None:
    from barograph_collector.keys import KeysError

    try:
        if keyring.refresh():
            _log.info("the keys have changed: %s", _let_in(keyring, directory))
    except KeysError as error:
        _log.error("%s; those who were let in before still are", error)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="barograph collector", description="Keep the log: one database, two verbs.")
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="where the log is kept")
    parser.add_argument(
        "--listen",
        type=tcp_endpoint,
        default="tcp://127.0.0.1:7450",
        metavar="ENDPOINT",
        help="where clients connect; without keys a loopback address (default: %(default)s)",
    )
    parser.add_argument("--keys", type=Path, metavar="DIR", help="let in whom `barograph keys` has added there")
    parser.add_argument(
        "--munge",
        nargs="?",
        const="",
        metavar="SOCKET",
        help="take MUNGE credentials, by this munged or the host's",
    )
    parser.add_argument(
        "--rate",
        type=float,
        default=100_000.0,
        metavar="ROWS",
        help="rows per second that one job may append over time (default: 100000)",
    )
    parser.add_argument(
        "--keep-days",
        type=int,
        default=0,
        metavar="N",
        help="days before today whose raw rows are kept; class and hour sums stay (default: all)",
    )
    parser.add_argument(
        "--keep-bytes",
        type=size,
        default=0,
        metavar="SIZE",
        help="what the database may use, as in 500G: beyond that the oldest day goes (default: no limit)",
    )
    parser.add_argument(
        "--reserve",
        type=size,
        default="512M",
        metavar="SIZE",
        help="with less than this free on the disk nothing is taken, only read (default: %(default)s)",
    )
    parser.add_argument(
        "--metrics",
        type=host_and_port,
        default="127.0.0.1:7451",
        metavar="HOST:PORT",
        help="where Prometheus scrapes (default: %(default)s)",
    )
    options = parser.parse_args(argv)
    if options.keys is None and not _is_loopback(options.listen):
        parser.error(
            f"argument --listen: {options.listen!r} is not a loopback address, expected tcp://127.0.0.1:PORT or --keys"
        )
    if options.munge is not None and options.keys is None:
        parser.error("argument --munge: expected --keys with it: without keys nobody is asked who he is")
    if options.keep_days < 0:
        parser.error(f"argument --keep-days: {options.keep_days}, expected 0 or more")
    if not options.rate > 0:
        parser.error(f"argument --rate: {options.rate:g}, expected more than 0")
    return options


def tcp_endpoint(text: str) -> str:
    """Check `tcp://ADDRESS:PORT` with a numeric address. Raises argparse.ArgumentTypeError."""
    try:
        parts = urlsplit(text)
        if parts.scheme != "tcp" or parts.port is None or parts.path:
            raise ValueError
        ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no endpoint, expected tcp://127.0.0.1:PORT") from None
    return text


def _is_loopback(endpoint: str) -> bool:
    return ipaddress.ip_address(urlsplit(endpoint).hostname or "").is_loopback


def _say(status: Exit, text: str) -> Exit:
    print(f"barograph collector: {text}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
