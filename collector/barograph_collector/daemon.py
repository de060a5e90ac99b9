"""`barograph collector`: wires store, server and metrics together, and stops them in order."""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

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

HEARTBEAT_SECONDS = 5.0
_log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the collector until SIGTERM or SIGINT; returns an `Exit`."""
    arguments = _parser().parse_args(argv)
    log_to_stderr("collector")
    from barograph_collector.store import StoreError

    try:
        return _serve(arguments.state, arguments.listen, arguments.metrics)
    except StoreError as error:
        return _say(Exit.STATE, str(error))
    except CannotListen as error:
        return _say(Exit.UNAVAILABLE, str(error))


def _serve(state: Path, listen: str, metrics: tuple[str, int]) -> int:
    from barograph_collector.exporter import Exporter
    from barograph_collector.server import Collector
    from barograph_collector.store import Store, StoreError

    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot create the state directory {state}: {error.strerror}") from None
    with Shutdown() as shutdown, Store(state / "log.duckdb") as store:
        collector = Collector(store, listen, on_failure=shutdown.request)
        registry, beat = daemon_registry("collector")
        registry.register(Exporter(collector.counters, store.path))
        collector.start()
        try:
            exposition = serve_metrics(registry, *metrics)
        except CannotListen:
            collector.stop()
            raise
        _log.info(
            "listening on %s, log in %s, metrics on %s; without keys only loopback addresses are taken",
            collector.endpoint,
            store.path,
            exposition.url,
        )
        notify_ready(os.environ)
        while not shutdown.wait(HEARTBEAT_SECONDS):
            beat()
        in_time = collector.stop()
        exposition.stop()
    return Exit.OK if in_time and collector.failure is None else Exit.FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="barograph collector", description="Keep the log: one database, two verbs.")
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="where log.duckdb is kept")
    parser.add_argument(
        "--listen",
        type=loopback_endpoint,
        default="tcp://127.0.0.1:7450",
        metavar="ENDPOINT",
        help="where clients connect (default: %(default)s)",
    )
    parser.add_argument(
        "--metrics",
        type=host_and_port,
        default="127.0.0.1:7451",
        metavar="HOST:PORT",
        help="where Prometheus scrapes (default: %(default)s)",
    )
    return parser


def loopback_endpoint(text: str) -> str:
    """Check `tcp://HOST:PORT` with a loopback address. Raises argparse.ArgumentTypeError."""
    try:
        parts = urlsplit(text)
        if parts.scheme != "tcp" or parts.port is None or parts.path:
            raise ValueError
        host = parts.hostname or ""
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no endpoint, expected tcp://127.0.0.1:PORT") from None
    if not is_loopback:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a loopback address, expected tcp://127.0.0.1:PORT: there are no keys to protect more"
        )
    return text


def _say(status: Exit, text: str) -> Exit:
    print(f"barograph collector: {text}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
