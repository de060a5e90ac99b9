"""The settings of the collector, and those that several daemons have."""

from __future__ import annotations

import argparse
import ipaddress
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Meta

from barograph_agent.deliver import keys
from barograph_agent.deliver.keys import ClientKey
from barograph_agent.settings.agent import CollectorAddress
from barograph_agent.settings.places import DEFAULT_ENDPOINT
from barograph_agent.settings.setting import REQUIRED, Directory, Form, Option, Section, Size, path
from barograph_agent.settings.sources import ConfigError
from barograph_collector.auth.http_access import Access, is_loopback
from barograph_collector.auth.keys import KeysError
from barograph_collector.daemon.service import CannotStart, Exit, host_and_port


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


HostPort: TypeAlias = Annotated[
    tuple[str, int], Form("HOST:PORT", "HOST:PORT, the port from 0 to 65535", host_and_port, "text")
]
Metrics: TypeAlias = Annotated[HostPort, Option("where Prometheus scrapes")]
KeyFile: TypeAlias = Annotated[
    Path | None,
    Form("FILE", "a key file of `barograph keys add`", path),
    Option("the key file, where the collector asks for one", variable="BAROGRAPH_KEY"),
]
AccessFile: TypeAlias = Annotated[
    Path | None,
    Form("FILE", "viewers.json of the key directory", path),
    Option("viewers: a token of `barograph keys add operator` or `user` is required; needed where others can connect"),
]


class DaemonSettings(Section, frozen=True, kw_only=True):
    """The settings of every daemon. A field for keywords only comes after those of subclasses."""

    log_format: Annotated[
        Literal["text", "json"], Form("FORMAT", "text or json"), Option("what log lines look like: text or json")
    ] = "text"


class FollowerSettings(DaemonSettings, frozen=True):
    """The settings of a daemon that follows the log."""

    collector: CollectorAddress = DEFAULT_ENDPOINT
    key: KeyFile = None
    metrics: Metrics = ("127.0.0.1", 0)


class CollectorSettings(DaemonSettings, frozen=True):
    """The log. `barograph collector` has each key as an option, with hyphens."""

    table = "collector"

    state: Annotated[Directory, Option("where the log is kept", otherwise=REQUIRED)] = None
    listen: Annotated[
        str,
        Form("ENDPOINT", "tcp://ADDRESS:PORT", tcp_endpoint),
        Option("where clients connect; without keys a loopback address"),
    ] = DEFAULT_ENDPOINT
    keys: Annotated[
        Path | None,
        Form("DIR", "the directory of `barograph keys init`", path),
        Option("admit only the clients that `barograph keys` has added there"),
    ] = None
    munge: Annotated[
        str | None,
        Form("SOCKET", "a socket, or an empty text for the host's munged"),
        Option("take MUNGE credentials, by this munged or the host's", otherwise="not taken", alone=""),
    ] = None
    rate: Annotated[
        float,
        Meta(gt=0),
        Form("ROWS", "rows a second, above 0"),
        Option("rows per second that one job may append over time", reloads=True),
    ] = 100_000.0
    keep_days: Annotated[
        int,
        Meta(ge=0),
        Form("N", "days, 0 for all"),
        Option("days before today whose raw rows are kept; class and hour sums stay; 0: all", reloads=True),
    ] = 0
    keep_bytes: Annotated[
        Size,
        Option("limit of the database, as in 500G; beyond, the oldest day is deleted; 0: no limit", reloads=True),
    ] = 0
    reserve: Annotated[
        Size, Option("with less than this free on the disk rows are refused, and reads go on", reloads=True)
    ] = 512 * 2**20
    metrics: Metrics = ("127.0.0.1", 7451)

    def check(self) -> None:
        """Check the listening address and MUNGE against the keys. Raises ConfigError."""
        if self.keys is None and not is_loopback(urlsplit(self.listen).hostname or ""):
            raise ConfigError(
                f"listen: {self.listen!r} is not a loopback address, expected tcp://127.0.0.1:PORT, or keys with it"
            )
        if self.munge is not None and self.keys is None:
            raise ConfigError("munge: expected keys with it: without keys nobody is asked who he is")


def load_key(path: Path | None) -> ClientKey | None:
    """The client's key, where there is one. Raises CannotStart."""
    try:
        return None if path is None else keys.load(path)
    except keys.KeyFileError as error:
        raise CannotStart(str(error), Exit.DATA) from None


def load_access(path: Path | None) -> Access | None:
    """The list of viewers, where there is one. Raises CannotStart."""
    try:
        return None if path is None else Access.read(path)
    except KeysError as error:
        raise CannotStart(str(error), Exit.STATE) from None


def check_loopback(name: str, address: tuple[str, int], access: Path | None, serves: str = "") -> None:
    """Check that what is served beyond this host has access control. Raises ConfigError."""
    host, port = address
    if access is None and not is_loopback(host):
        raise ConfigError(f"{name}: '{host}:{port}' is not a loopback address{serves}, expected one, or access with it")
