"""Settings common to several daemons, and the files they name: key and viewers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from barograph_agent.deliver import keys
from barograph_agent.deliver.keys import ClientKey
from barograph_agent.settings.places import DEFAULT_ENDPOINT, check_endpoint
from barograph_agent.settings.setting import Form, Option, Section, path
from barograph_agent.settings.sources import ConfigError
from barograph_collector.auth.http_access import Access, is_loopback
from barograph_collector.auth.keys import KeysError
from barograph_collector.daemon.service import CannotStart, Exit, host_and_port

HostPort: TypeAlias = Annotated[
    tuple[str, int], Form("HOST:PORT", "HOST:PORT, the port from 0 to 65535", host_and_port, "text")
]
Metrics: TypeAlias = Annotated[HostPort, Option("where Prometheus scrapes")]
KeyFile: TypeAlias = Annotated[
    Path | None,
    Form("FILE", "a key file of `barograph keys add`", path),
    Option("the key file, if the collector requires one", variable="BAROGRAPH_KEY"),
]
AccessFile: TypeAlias = Annotated[
    Path | None,
    Form("FILE", "viewers.json of the key directory", path),
    Option("viewers with tokens of `barograph keys add operator` or `user`; required if other hosts can connect"),
]


class DaemonSettings(Section, frozen=True, kw_only=True):
    """The settings of every daemon. Keyword-only, so that fields of subclasses come first."""

    log_format: Annotated[
        Literal["text", "json"], Form("FORMAT", "text or json"), Option("format of log lines: text or json")
    ] = "text"


class FollowerSettings(DaemonSettings, frozen=True):
    """The settings of a daemon that follows the log."""

    collector: Annotated[
        str,
        Form("ENDPOINT", "tcp://HOST:PORT or ipc://PATH", check_endpoint),
        Option("the collector", variable="BAROGRAPH_COLLECTOR"),
    ] = DEFAULT_ENDPOINT
    key: KeyFile = None
    metrics: Metrics = ("127.0.0.1", 0)


def load_key(path: Path | None) -> ClientKey | None:
    """The key of the client; None without a path. Raises CannotStart."""
    try:
        return None if path is None else keys.load(path)
    except keys.KeyFileError as error:
        raise CannotStart(str(error), Exit.DATA) from None


def load_access(path: Path | None) -> Access | None:
    """The list of viewers; None without a path. Raises CannotStart."""
    try:
        return None if path is None else Access.read(path)
    except KeysError as error:
        raise CannotStart(str(error), Exit.STATE) from None


def check_loopback(name: str, address: tuple[str, int], access: Path | None, serves: str = "") -> None:
    """Check that an address that other hosts can reach has access control. Raises ConfigError."""
    host, port = address
    if access is None and not is_loopback(host):
        raise ConfigError(f"{name}: '{host}:{port}' is not a loopback address{serves}, expected one, or access with it")
