"""`barograph page`: wires the site to the log, to the modeler and to a port."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from urllib.parse import urlsplit

from barograph.site.settings import PAGE, check_page
from barograph.views.modeler import ModelerClient, default_modeler
from barograph.views.refusal import refuse
from barograph_agent.deliver import keys
from barograph_collector.auth.http_access import Access
from barograph_collector.auth.keys import KeysError
from barograph_collector.daemon.logs import log_to_stderr
from barograph_collector.daemon.options import parse
from barograph_collector.daemon.service import CannotListen, Exit


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C; returns an `Exit`."""
    parser = argparse.ArgumentParser(
        prog="barograph page", description="Serve a web page: running jobs, alarms, applications, predictions."
    )
    options = parse(parser, PAGE, arguments, os.environ, check_page).options
    host, port = options.listen
    log_to_stderr("page", options.log_format)
    try:
        key = keys.load(options.key) if options.key is not None else None
        access = Access.read(options.access) if options.access is not None else None
    except keys.KeyFileError as error:
        return refuse("page", str(error), Exit.DATA)
    except KeysError as error:
        return refuse("page", str(error), Exit.STATE)

    from barograph.site.app import create
    from barograph.site.server import serve
    from barograph.views.log import LogView

    modeler = options.modeler or default_modeler(options.collector)
    with LogView(options.collector, key) as log:
        site = create(log, ModelerClient(modeler, log.clock), metrics(modeler), access)
        try:
            serve(site, host, port, options.collector)
        except CannotListen as error:
            return refuse("page", str(error), Exit.UNAVAILABLE)
    return Exit.OK


def metrics(modeler: str) -> dict[str, str]:
    """Where the daemons' metrics are, one port from each other as `barograph up` has them.

    >>> metrics("http://127.0.0.1:7452")["alerts"]
    'http://127.0.0.1:7453/metrics'
    """
    parts = urlsplit(modeler)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    middle = parts.port or 80
    return {
        name: f"{parts.scheme}://{host}:{middle + step}/metrics"
        for name, step in (("collector", -1), ("modeler", 0), ("alerts", 1))
    }
