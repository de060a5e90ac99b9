"""The settings of the page."""

from __future__ import annotations

from typing import Annotated

from barograph.commands.predict import http_address
from barograph_agent.settings.agent import CollectorAddress
from barograph_agent.settings.places import DEFAULT_ENDPOINT
from barograph_agent.settings.setting import Form, Option, Section
from barograph_collector.settings import AccessFile, HostPort, KeyFile, LogFormat, check_loopback


class PageSettings(Section, frozen=True):
    """The settings of the page."""

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
    listen: Annotated[HostPort, Option("where browsers connect, plain HTTP")] = ("127.0.0.1", 7454)
    access: AccessFile = None
    log_format: LogFormat = "text"

    def check(self) -> None:
        """Check that the page is not open to others without access control. Raises ConfigError."""
        check_loopback("listen", self.listen, self.access)
