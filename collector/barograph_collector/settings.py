"""The settings of the collector."""

from __future__ import annotations

import argparse
import ipaddress
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Annotated, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from msgspec import Meta

from barograph_agent.settings.places import DEFAULT_ENDPOINT
from barograph_agent.settings.setting import REQUIRED, Directory, File, Form, Option, Size, declared, path
from barograph_agent.settings.sources import ConfigError, Configuration, site_file
from barograph_collector.auth.http_access import is_loopback
from barograph_collector.daemon.options import add_config, add_option
from barograph_collector.daemon.settings import DaemonSettings, Metrics
from barograph_collector.lake.catalog import redacted
from barograph_collector.lake.keep import FORM, Keep
from barograph_collector.lake.place import Lake, lake_place
from barograph_collector.storage.days.data_path import SCHEME
from barograph_collector.storage.days.extensions import extension
from barograph_collector.storage.days.retention import Retention

LAKE: Final = ("lake", "lake_endpoint", "lake_credentials", "catalog")
"""The settings that name a lake."""


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


def postgres_url(value: str) -> str:
    """Check `postgresql://USER@HOST/DATABASE`. Raises argparse.ArgumentTypeError, without a password in its text."""
    schemes, form = ("postgresql", "postgres"), "postgresql://USER@HOST/DATABASE"
    return _url(value, schemes, lambda parts: len(parts.path) > 1, form)


def http_url(value: str) -> str:
    """Check `http://HOST:PORT` or `https://HOST`, without a path. Raises argparse.ArgumentTypeError."""

    def names_host(parts: SplitResult) -> bool:
        return bool(parts.hostname) and parts.path in ("", "/") and not parts.query and parts.username is None

    return _url(value, ("http", "https"), names_host, "http://HOST:PORT or https://HOST")


def _url(value: str, schemes: Collection[str], good: Callable[[SplitResult], bool], form: str) -> str:
    try:
        parts = urlsplit(value)
        if parts.scheme in schemes and parts.port != 0 and good(parts):
            return value
    except ValueError:  # a port that is none
        pass
    raise argparse.ArgumentTypeError(f"{redacted(value)!r} is no URL, expected {form}")


def periods(value: str) -> str:
    """Check periods of the lake. Raises ValueError."""
    Keep.read(value)
    return value


class CollectorSettings(DaemonSettings, frozen=True):
    """Settings of the log. `barograph collector` has each key as an option, with hyphens."""

    table = "collector"

    state: Annotated[Directory, Option("directory of the log", otherwise=REQUIRED)] = None
    journal: Annotated[
        Directory,
        Option(
            "with a lake: directory of the journal, on storage that outlives the disk of the log",
            otherwise="in the directory of the log",
        ),
    ] = None
    listen: Annotated[
        str,
        Form("ENDPOINT", "tcp://ADDRESS:PORT", tcp_endpoint),
        Option("address for clients; without keys a loopback address"),
    ] = DEFAULT_ENDPOINT
    keys: Annotated[
        Path | None,
        Form("DIR", "the directory of `barograph keys init`", path),
        Option("admit only the clients that `barograph keys` has added there"),
    ] = None
    munge: Annotated[
        str | None,
        Form("SOCKET", "a socket, or an empty text for the host's munged"),
        Option("accept MUNGE credentials, verified by this munged or the host's", otherwise="not accepted", alone=""),
    ] = None
    rate: Annotated[
        float,
        Meta(gt=0),
        Form("ROWS", "rows a second, above 0"),
        Option("sustained rows per second of one job", reloads=True),
    ] = 100_000.0
    keep_days: Annotated[
        int,
        Meta(ge=0),
        Form("N", "days, 0 for all"),
        Option("days before today whose rows are kept; 0: all", reloads=True),
    ] = 0
    keep_bytes: Annotated[
        Size,
        Option("size of the database, as in 500G, above which the oldest day is deleted; 0: no limit", reloads=True),
    ] = 0
    reserve: Annotated[
        Size,
        Option(
            "free space on the disks of log and journal below which rows are refused, and on the lake's below which no"
            " period is sealed; reads continue",
            reloads=True,
        ),
    ] = 512 * 2**20
    lake: Annotated[
        str | None,
        Form("PLACE", "a directory or s3://BUCKET/PREFIX", lake_place),
        Option("place of the lake, which gets all rows as Parquet; needs barograph[lake]", otherwise="no lake"),
    ] = None
    lake_endpoint: Annotated[
        str | None,
        Form("URL", "http://HOST:PORT or https://HOST", http_url),
        Option("object store of a lake in s3://", otherwise="AWS_ENDPOINT_URL, or Amazon's"),
    ] = None
    lake_credentials: Annotated[
        File,
        Option("file with the keys of the object store, which only its owner may read", otherwise="AWS_ACCESS_KEY_ID"),
    ] = None
    catalog: Annotated[
        str | None,
        Form("URL", "postgresql://USER@HOST/DATABASE", postgres_url),
        Option("database with the catalog of the lake, instead of a file in its directory", otherwise="a file"),
    ] = None
    hot_days: Annotated[
        int,
        Meta(ge=0),
        Form("N", "days"),
        Option("with a lake: days before today that stay in the database; older ones leave it", reloads=True),
    ] = 7
    lake_keep: Annotated[
        str,
        Form("PERIODS", FORM, periods),
        Option("days before today that the lake keeps, as in '730 pressures=90'; empty: all", reloads=True),
    ] = ""
    lake_period: Annotated[
        float,
        Meta(ge=1),
        Form("SECONDS", "seconds, 1 or more"),
        Option("length of a period, whose rows become a file of each table in the lake"),
    ] = 3600.0
    metrics: Metrics = ("127.0.0.1", 7451)

    @property
    def retention(self) -> Retention:
        """Which days stay where."""
        return Retention(self.keep_days, self.keep_bytes, self.hot_days)

    def lake_of(self, state: Path) -> Lake | None:
        """The lake of the log in a state directory, None for none.

        Raises LakeError where a package or the credentials of its store are missing.
        """
        if self.lake is None:
            return None
        extension("ducklake")
        if self.catalog is not None:
            extension("postgres_scanner")
        place = self.lake, state, self.catalog or "", self.lake_endpoint or "", self.lake_credentials
        return Lake.find(*place, os.environ)

    def check(self) -> None:
        """Check the listening address and MUNGE against the keys. Raises ConfigError."""
        if self.keys is None and not is_loopback(urlsplit(self.listen).hostname or ""):
            raise ConfigError(
                f"listen: {self.listen!r} is not a loopback address, expected tcp://127.0.0.1:PORT, or keys with it"
            )
        if self.journal is not None and self.lake is None:
            raise ConfigError("journal: expected lake with it, which has what is no more in the journal")
        if self.lake_keep and self.lake is None:
            raise ConfigError("lake_keep: expected lake with it; keep_days is of a log without one")
        if self.catalog is not None and self.lake is None:
            raise ConfigError("catalog: expected lake with it, the place of the files")
        for name in ("lake_endpoint", "lake_credentials"):
            if getattr(self, name) is not None and not (self.lake or "").startswith(SCHEME):
                raise ConfigError(f"{name}: expected lake with it, as s3://BUCKET/PREFIX")
        if self.munge is not None and self.keys is None:
            raise ConfigError("munge: expected keys with it: without keys no credential is verified")


def add_lake_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a lake."""
    for name in LAKE:
        add_option(parser, declared(CollectorSettings)[name])


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a log and its lake, and the file that has them otherwise."""
    add_config(parser)
    add_option(parser, declared(CollectorSettings)["state"])
    add_lake_options(parser)


class NamedLog(NamedTuple):
    """Where a log is: its state directory, its lake, and its journal if that is apart."""

    state: Path
    lake: Lake | None
    journal: Path | None


def named_log(options: argparse.Namespace) -> NamedLog:
    """The log that these options name, or that of the configuration. Raises ConfigError and LakeError."""
    given = {name: value for name in ("state", *LAKE) if (value := getattr(options, name)) is not None}
    file = options.config or site_file(os.environ)
    configuration = Configuration(CollectorSettings, given=given, environment=os.environ, file=file, complete=True)
    settings = configuration.settings
    state = settings.state or Path()
    return NamedLog(state, settings.lake_of(state), settings.journal)


def named_lake(options: argparse.Namespace) -> Lake | None:
    """The lake that these options name, of the log in `--state`; None for none. Raises ConfigError and LakeError."""
    given = {name: value for name in LAKE if (value := getattr(options, name)) is not None}
    settings = Configuration(CollectorSettings, given=given, environment={}, file=None).settings
    settings.check()
    return settings.lake_of(options.state)
