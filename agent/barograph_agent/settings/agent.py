"""The settings of the agent: the table [agent] of the configuration.

Each key is the default of an environment variable. The agent itself reads variables only.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from barograph_agent.protocol.tables import ROWS_PER_SECOND
from barograph_agent.settings import places
from barograph_agent.settings.places import DEFAULT_ENDPOINT, check_endpoints
from barograph_agent.settings.setting import File, Form, Option, Section, Size, declared, path
from barograph_agent.settings.sources import ConfigError, from_file, site_file

MOST_ROWS: Final = 1e6


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}, expected a regular expression") from None
    return text


def rows(text: str) -> float:
    """Parse a budget in rows per second. Raises argparse.ArgumentTypeError."""
    try:
        figure = float(text)
    except ValueError:
        figure = math.nan
    if not 0 < figure <= MOST_ROWS:
        raise argparse.ArgumentTypeError(f"{text!r}, expected rows a second, above 0 and at most {MOST_ROWS:g}")
    return figure


CollectorAddresses: TypeAlias = Annotated[
    str,
    Form("ENDPOINT[,...]", "tcp://HOST:PORT or ipc://PATH, or several with commas between", check_endpoints),
    Option("the collector, or that of each shard, of which each user has one", variable="BAROGRAPH_COLLECTOR"),
]


class AgentSettings(Section, frozen=True):
    """Settings on compute nodes, read by `barograph run`, `spool`, `doctor` and the sidecar of the hooks.

    Other commands read the collector's address only.
    """

    table = "agent"
    variables = "BAROGRAPH"

    collector: CollectorAddresses = DEFAULT_ENDPOINT
    page: Annotated[
        str | None,
        Form("URL", "http://HOST:PORT"),
        Option(
            "the address of the page that `barograph run` prints at its end", otherwise="on this host, if it listens"
        ),
    ] = None
    key: Annotated[
        Path | None,
        Form("FILE", "a key file of `barograph keys add agent`", path),
        Option("the key file, if the collector requires one; readable by all users of the node"),
    ] = None
    munge_socket: Annotated[
        Path | None, Form("SOCKET", "a path", path), Option("the socket of the node's munged", otherwise="MUNGE's own")
    ] = None
    cluster: Annotated[
        str | None,
        Form("NAME", "a name; cut at 24 characters"),
        Option("the first part of every job and workload name", otherwise="the batch system's name, else local"),
    ] = None
    rules: Annotated[
        File, Option("the site's names and parameters", otherwise="/etc/barograph/rules.toml if it exists")
    ] = None
    apps: Annotated[
        str | None,
        Form("REGEX", "a regular expression", _expression),
        Option("watch only applications whose whole name matches", otherwise="all"),
    ] = None
    ranks: Annotated[
        str, Form("LIST", "all, or a list such as 0,4-7"), Option("ranks of MPI_COMM_WORLD that record")
    ] = "all"
    budget: Annotated[
        float,
        Form("ROWS", f"rows a second, above 0 and at most {MOST_ROWS:g}", rows),
        Option("long-term limit on the rows a run sends per second; beyond it, intervals are reduced to blocks"),
    ] = ROWS_PER_SECOND
    spool: Annotated[
        Path | None,
        Form("DIR", "a directory on a disk of the node", path),
        Option("directory of undelivered messages", otherwise="/var/tmp/barograph-UID"),
    ] = None
    spool_bytes: Annotated[
        Size, Option("limit of a run's spool; beyond, the oldest messages are dropped and counted")
    ] = 256 * 2**20
    rings: Annotated[
        Path | None,
        Form("DIR", "a directory in memory", path),
        Option("directory of rings", otherwise="/dev/shm/barograph-UID"),
    ] = None
    processes: Annotated[
        Literal["all", "own"],
        Form("WHOSE", "all or own"),
        Option("whose busy processes beside a rank are recorded by name; own: of the job's user only"),
    ] = "all"
    work: Annotated[
        Literal["numbers", "digests", "plain", "none"],
        Form("WHAT", "numbers, digests, plain or none"),
        Option(
            "what is recorded of command lines and input files: digests; numbers: and numbers in them; plain: and the"
            " words of command lines"
        ),
    ] = "numbers"
    salt: Annotated[
        File, Option("a secret of the site, without which digests cannot be guessed", otherwise="the cluster's name")
    ] = None


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """This environment, with unset variables taken from the site's file. Raises ConfigError."""
    known = declared(AgentSettings)
    written = from_file(AgentSettings, site_file(given))
    found = {known[name].variable: str(value) for name, value in written.items()}
    return {**given, **{variable: value for variable, value in found.items() if not given.get(variable)}}


def environment_or_complaint(given: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """The same without an exception: if the file is invalid, the environment as given and the error's text."""
    try:
        return environment(given), ""
    except ConfigError as error:
        return dict(given), str(error)


def value_or_default(name: str, given: Mapping[str, str]) -> Any:
    """The value of a setting's variable; if it is invalid, the default and a message on standard error."""
    setting = declared(AgentSettings)[name]
    try:
        return setting.read(given.get(setting.variable) or setting.default_text)
    except (argparse.ArgumentTypeError, ValueError) as error:
        print(f"barograph: {setting.variable} is {error}; using {setting.default_text}", file=sys.stderr)
        return setting.default


def endpoint(given: Mapping[str, str]) -> str:
    """The collector's address, or several: the variable's, the file's, or the default. An invalid file is a message."""
    found, complaint = environment_or_complaint(given)
    if complaint:
        print(f"barograph: {complaint}; going on without this file", file=sys.stderr)
    return places.endpoint(found)
