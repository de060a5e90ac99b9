"""`barograph page`: connects the site to log, modeler and port."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from barograph.site.settings import PageSettings
from barograph.views.modeler import ModelerClient, modelers_of
from barograph_agent.settings import places
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
    from barograph.views.collectors.log_views import LogViews

    settings = configuration.settings
    modelers = modelers_of(settings.collector, settings.modeler)
    urls = metrics(modelers, settings.collector, settings.collector_metrics)
    key, access = load_key(settings.key), load_access(settings.access)
    with LogViews(settings.collector, key) as log:
        site = create(log, ModelerClient(modelers, log.clock), urls, access)
        serve(site, *settings.listen, settings.collector)
    return Exit.OK


def metrics(modelers: Sequence[str], collectors: str, given: str | None = None) -> dict[str, str]:
    """The addresses of the metrics by daemon, on ports as `barograph up` assigns them.

    modelers, collectors: the addresses of each shard. given: of the metrics of the collectors, where they are others.

    >>> metrics(["http://127.0.0.1:7452"], "tcp://127.0.0.1:7450")["collector"]
    'http://127.0.0.1:7451/metrics'
    """
    addresses = places.endpoints(collectors)
    urls = given.split(",") if given is not None else [_shifted(modeler, -1) for modeler in modelers]
    found: dict[str, str] = {}
    for address, url, modeler in zip(addresses, urls, modelers, strict=True):
        of = f" {address}" if len(addresses) > 1 else ""
        found |= {f"collector{of}": url, f"modeler{of}": modeler, f"alerts{of}": _shifted(modeler, 1)}
    return {name: f"{url.rstrip('/')}/metrics" for name, url in found.items()}


def _shifted(url: str, ports: int) -> str:
    """The address that is so many ports above another one of http://."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{(parts.port or 80) + ports}"
