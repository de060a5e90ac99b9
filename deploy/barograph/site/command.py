"""`barograph page`: wires the site to the log, to the modeler and to a port."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from barograph.predict import default_modeler
from barograph_agent import keys, places
from barograph_collector.access import Access, is_loopback
from barograph_collector.keys import KeysError
from barograph_collector.logs import log_to_stderr
from barograph_collector.service import Exit, host_and_port

DEFAULT_LISTEN: Final = "127.0.0.1:7454"


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C; returns an `Exit`."""
    parser = _parser()
    options = parser.parse_args(arguments)
    host, port = options.listen
    if options.access is None and not is_loopback(host):
        parser.error(f"argument --listen: {host!r} is not a loopback address, expected one or --access")
    log_to_stderr("page")
    try:
        key = keys.from_environment(os.environ)
        access = Access.read(options.access) if options.access is not None else None
    except keys.KeyFileError as error:
        return _refuse(str(error), Exit.DATA)
    except KeysError as error:
        return _refuse(str(error), Exit.STATE)

    from barograph.site.app import create
    from barograph.site.desk import Modeler
    from barograph.site.log import Log
    from barograph.site.server import CannotListen, serve

    modeler = options.modeler or default_modeler(options.collector)
    with Log(options.collector, key) as log:
        site = create(log, Modeler(modeler, log.clock), metrics(options.collector, modeler), access)
        try:
            serve(site, host, port, options.collector)
        except CannotListen as error:
            return _refuse(str(error), Exit.UNAVAILABLE)
    return Exit.OK


def metrics(collector: str, modeler: str) -> dict[str, str]:
    """Where the daemons' metrics are, one port from each other as `barograph up` has them.

    >>> metrics("tcp://127.0.0.1:7450", "http://127.0.0.1:7452")["alerts"]
    'http://127.0.0.1:7453/metrics'
    """
    parts = urlsplit(modeler)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    middle = parts.port or 80
    return {
        name: f"{parts.scheme}://{host}:{middle + step}/metrics"
        for name, step in (("collector", -1), ("modeler", 0), ("alerts", 1))
    }


def _refuse(text: str, status: int) -> int:
    print(f"barograph page: {text}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barograph page", description="Serve a web page: running jobs, alarms, applications, predictions."
    )
    places.add_collector_option(parser, places.endpoint(os.environ))
    parser.add_argument(
        "--modeler",
        metavar="URL",
        help="the modeler; the metrics of collector and alerts are a port below and above it"
        " (default: two ports above the collector's)",
    )
    parser.add_argument(
        "--listen",
        type=host_and_port,
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help="where browsers connect (default: %(default)s)",
    )
    parser.add_argument(
        "--access",
        type=Path,
        metavar="FILE",
        help="let in only whom this file names, each to what is theirs: viewers.json of the key directory",
    )
    return parser
