"""The settings of the page."""

from __future__ import annotations

import argparse
from typing import Final

from barograph.views.modeler import http_address
from barograph_agent.settings.agent import COLLECTOR_ADDRESS
from barograph_agent.settings.setting import Section, Setting
from barograph_agent.settings.sources import ConfigError
from barograph_collector.auth.http_access import is_loopback
from barograph_collector.daemon.service import host_and_port
from barograph_collector.settings import ACCESS, KEY, LOG_FORMAT

PAGE: Final = Section(
    "page",
    [
        COLLECTOR_ADDRESS,
        KEY,
        Setting(
            "modeler",
            "text",
            http_address,
            None,
            "URL",
            "http://HOST:PORT",
            "the modeler; the metrics of collector and alerts are a port below and above it",
            otherwise="two ports above the collector's",
        ),
        Setting(
            "listen",
            "text",
            host_and_port,
            "127.0.0.1:7454",
            "HOST:PORT",
            "HOST:PORT, the port from 0 to 65535",
            "where browsers connect, plain HTTP",
        ),
        ACCESS,
        LOG_FORMAT,
    ],
)


def check_page(options: argparse.Namespace) -> None:
    """Whether the settings go together. Raises ConfigError."""
    host, port = options.listen
    if options.access is None and not is_loopback(host):
        raise ConfigError(f"listen: '{host}:{port}' is not a loopback address, expected one, or access with it")
