"""`barograph page`: wires the site to the log, to the modeler and to a port."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from urllib.parse import urlsplit

from barograph.commands.predict import default_modeler
from barograph.site.settings import PageSettings
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
    settings = parse(parser, PageSettings, arguments, os.environ).settings
    host, port = settings.listen
    log_to_stderr("page", settings.log_format)
    try:
        key = keys.load(settings.key) if settings.key is not None else None
        access = Access.read(settings.access) if settings.access is not None else None
    except keys.KeyFileError as error:
        return _refuse(str(error), Exit.DATA)
    except KeysError as error:
        return _refuse(str(error), Exit.STATE)

    from barograph.site.app import create
    from barograph.site.desk import ModelerClient
    from barograph.site.log import CachedLog
    from barograph.site.server import serve

    modeler = settings.modeler or default_modeler(settings.collector)
    with CachedLog(settings.collector, key) as log:
        site = create(log, ModelerClient(modeler, log.clock), metrics(modeler), access)
        try:
            serve(site, host, port, settings.collector)
        except CannotListen as error:
            return _refuse(str(error), Exit.UNAVAILABLE)
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


def _refuse(text: str, status: int) -> int:
    print(f"barograph page: {text}", file=sys.stderr)
    return status
