"""The settings of the page."""

from __future__ import annotations

from typing import Annotated

from barograph.views.modeler import http_address
from barograph_agent.settings.agent import CollectorAddress
from barograph_agent.settings.places import DEFAULT_ENDPOINT
from barograph_agent.settings.setting import Form, Option
from barograph_collector.daemon.settings import AccessFile, DaemonSettings, HostPort, KeyFile, check_loopback


class PageSettings(DaemonSettings, frozen=True):
    """The settings of `barograph page`, which has each key as an option."""

    table = "page"

    collector: CollectorAddress = DEFAULT_ENDPOINT
    key: KeyFile = None
    modeler: Annotated[
        str | None,
        Form("URL", "http://HOST:PORT", http_address),
        Option(
            "the modeler; the metrics of collector and alerts are a port below and above it",
            otherwise="two ports above the collector's",
        ),
    ] = None
    collector_metrics: Annotated[
        str | None,
        Form("URL", "http://HOST:PORT", http_address),
        Option("the metrics of the collector", otherwise="a port below the modeler"),
    ] = None
    listen: Annotated[HostPort, Option("where browsers connect, plain HTTP")] = ("127.0.0.1", 7454)
    access: AccessFile = None

    def check(self) -> None:
        """Check that the page is not open to others without access control. Raises ConfigError."""
        check_loopback("listen", self.listen, self.access)
