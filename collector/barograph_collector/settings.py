"""The settings of the collector, and those that every daemon has."""

from __future__ import annotations

import argparse
import ipaddress
from typing import Final
from urllib.parse import urlsplit

from barograph_agent.settings.setting import Section, Setting, choice, number, path, size, text, whole
from barograph_agent.settings.sources import ConfigError
from barograph_collector.auth.http_access import is_loopback
from barograph_collector.daemon.logs import FORMATS
from barograph_collector.daemon.options import REQUIRED
from barograph_collector.daemon.service import host_and_port


def tcp_endpoint(value: str) -> str:
    """Check `tcp://ADDRESS:PORT` with a numeric address. Raises argparse.ArgumentTypeError."""
    try:
        parts = urlsplit(value)
        if parts.scheme != "tcp" or parts.port is None or parts.path:
            raise ValueError
        ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        raise argparse.ArgumentTypeError(f"{value!r} is no endpoint, expected tcp://127.0.0.1:PORT") from None
    return value


def metrics(port: int, meaning: str = "where Prometheus scrapes") -> Setting:
    """Where a daemon serves HTTP."""
    expected = "HOST:PORT, the port from 0 to 65535"
    return Setting("metrics", "text", host_and_port, f"127.0.0.1:{port}", "HOST:PORT", expected, meaning)


LOG_FORMAT: Final = Setting(
    "log_format",
    "text",
    choice(*FORMATS),
    "text",
    "FORMAT",
    " or ".join(FORMATS),
    "what log lines look like: text or json",
)
KEY: Final = Setting(
    "key",
    "text",
    path,
    None,
    "FILE",
    "a key file of `barograph keys add`",
    "the key file, where the collector asks for one",
    variable="BAROGRAPH_KEY",
)
ACCESS: Final = Setting(
    "access",
    "text",
    path,
    None,
    "FILE",
    "viewers.json of the key directory",
    "who may look: a token of `barograph keys add operator` or `user` is asked for; needed where others can connect",
)
COLLECTOR: Final = Section(
    "collector",
    [
        Setting("state", "text", path, None, "DIR", "a directory", "where the log is kept", otherwise=REQUIRED),
        Setting(
            "listen",
            "text",
            tcp_endpoint,
            "tcp://127.0.0.1:7450",
            "ENDPOINT",
            "tcp://ADDRESS:PORT",
            "where clients connect; without keys a loopback address",
        ),
        Setting(
            "keys",
            "text",
            path,
            None,
            "DIR",
            "the directory of `barograph keys init`",
            "let in whom `barograph keys` has added there",
        ),
        Setting(
            "munge",
            "text",
            text,
            None,
            "SOCKET",
            "a socket, or an empty text for the host's munged",
            "take MUNGE credentials, by this munged or the host's",
            otherwise="not taken",
            alone="",
        ),
        Setting(
            "rate",
            "number",
            number(0),
            "100000",
            "ROWS",
            "rows a second, above 0",
            "rows per second that one job may append over time",
            reloads=True,
        ),
        Setting(
            "keep_days",
            "whole number",
            whole(0),
            "0",
            "N",
            "days, 0 for all",
            "days before today whose raw rows are kept; class and hour sums stay; 0: all",
            reloads=True,
        ),
        Setting(
            "keep_bytes",
            "size",
            size,
            "0",
            "SIZE",
            "bytes, or as in 500G; 0 for no limit",
            "what the database may use, as in 500G: beyond that the oldest day goes; 0: no limit",
            reloads=True,
        ),
        Setting(
            "reserve",
            "size",
            size,
            "512M",
            "SIZE",
            "bytes, or as in 512M",
            "with less than this free on the disk nothing is taken, only read",
            reloads=True,
        ),
        metrics(7451),
        LOG_FORMAT,
    ],
)


def check_collector(options: argparse.Namespace) -> None:
    """Whether the settings go together. Raises ConfigError."""
    if options.keys is None and not is_loopback(urlsplit(options.listen).hostname or ""):
        raise ConfigError(
            f"listen: {options.listen!r} is not a loopback address, expected tcp://127.0.0.1:PORT, or keys with it"
        )
    if options.munge is not None and options.keys is None:
        raise ConfigError("munge: expected keys with it: without keys nobody is asked who he is")
