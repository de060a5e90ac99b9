"""`barograph page`: connects the site to log, modeler and port."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from barograph.site.settings import PageSettings
from barograph.views.modeler import ModelerClient, default_modeler
from barograph_agent.settings.sources import Configuration
from barograph_collector.daemon.options import run_daemon
from barograph_collector.daemon.service import Exit
from barograph_collector.daemon.settings import load_access, load_key


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C; returns an `Exit`."""
    description = "Serve a web page: running jobs, alarms, applications, predictions."
    return run_daemon(PageSettings, description, _serve, arguments)


def _serve(configuration: Configuration[PageSettings]) -> int:
    from barograph.site.app import create
    from barograph.site.server import serve
    from barograph.views.log import LogView

    settings = configuration.settings
    modeler = settings.modeler or default_modeler(settings.collector)
    key, access = load_key(settings.key), load_access(settings.access)
    with LogView(settings.collector, key) as log:
        site = create(log, ModelerClient(modeler, log.clock), metrics(modeler, settings.collector_metrics), access)
        serve(site, *settings.listen, settings.collector)
    return Exit.OK


def metrics(modeler: str, collector: str | None = None) -> dict[str, str]:
    """The addresses of the metrics by daemon, on consecutive ports as `barograph up` assigns them.

    collector: that of the collector, where it is another one.

    >>> metrics("http://127.0.0.1:7452")["alerts"]
    'http://127.0.0.1:7453/metrics'
    """
    parts = urlsplit(modeler)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = parts.port or 80
    found = {
        name: f"{parts.scheme}://{host}:{port + offset}/metrics"
        for name, offset in (("collector", -1), ("modeler", 0), ("alerts", 1))
    }
    return found if collector is None else {**found, "collector": f"{collector.rstrip('/')}/metrics"}
