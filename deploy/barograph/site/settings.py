"""The settings of the page."""

from __future__ import annotations

from typing import Annotated

from barograph.options import http_addresses
from barograph_agent.settings import places
from barograph_agent.settings.agent import CollectorAddresses
from barograph_agent.settings.places import DEFAULT_ENDPOINT
from barograph_agent.settings.setting import Form, Option
from barograph_agent.settings.sources import ConfigError
from barograph_collector.daemon.settings import AccessFile, DaemonSettings, HostPort, KeyFile, check_loopback


class PageSettings(DaemonSettings, frozen=True):
    """The settings of `barograph page`, which has each key as an option."""

    table = "page"

    collector: CollectorAddresses = DEFAULT_ENDPOINT
    key: KeyFile = None
    modeler: Annotated[
        str | None,
        Form("URL[,...]", "http://HOST:PORT, or that of each shard with commas between", http_addresses),
        Option(
            "the modeler of each shard; the metrics of its collector and alerts are a port below and above it",
            otherwise="two ports above the collector's",
        ),
    ] = None
    collector_metrics: Annotated[
        str | None,
        Form("URL[,...]", "http://HOST:PORT, or several with commas between", http_addresses),
        Option("the metrics of each collector", otherwise="a port below the modeler's"),
    ] = None
    listen: Annotated[HostPort, Option("where browsers connect, plain HTTP")] = ("127.0.0.1", 7454)
    access: AccessFile = None

    def check(self) -> None:
        """Check that the page is not open to others without access control, and the number of addresses.

        Raises ConfigError.
        """
        expected = len(places.endpoints(self.collector))
        for name in ("modeler", "collector_metrics"):
            addresses: str | None = getattr(self, name)
            if addresses is not None and (given := len(addresses.split(","))) != expected:
                raise ConfigError(f"{name}: {given} addresses, expected {expected}, one of each collector")
        check_loopback("listen", self.listen, self.access)
