"""What the facility says of runs on its nodes: the table [agent] of its configuration.

Each key stands for an environment variable that the user has not set.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Mapping
from typing import Final

from barograph_agent.reduce.blocks import ROWS_PER_SECOND
from barograph_agent.settings import places
from barograph_agent.settings.places import DEFAULT_ENDPOINT, endpoint_argument
from barograph_agent.settings.setting import Section, Setting, path, size, text
from barograph_agent.settings.sources import ConfigError, from_file, site_file

MOST_ROWS: Final = 1e6
SPOOL_VARIABLE: Final = "BAROGRAPH_SPOOL_BYTES"
SPOOL_SIZE: Final = "256M"


def _expression(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{value!r}: {error}, expected a regular expression") from None
    return value


def rows(value: str) -> float:
    """Check a budget in rows a second. Raises argparse.ArgumentTypeError."""
    try:
        figure = float(value)
    except ValueError:
        figure = math.nan
    if not 0 < figure <= MOST_ROWS:
        raise argparse.ArgumentTypeError(f"{value!r}, expected rows a second, above 0 and at most {MOST_ROWS:g}")
    return figure


COLLECTOR_ADDRESS: Final = Setting(
    "collector",
    "text",
    endpoint_argument,
    DEFAULT_ENDPOINT,
    "ENDPOINT",
    "tcp://HOST:PORT or ipc://PATH",
    "the collector",
    variable="BAROGRAPH_COLLECTOR",
)
"""Whoever asks the log needs it, daemons too."""

AGENT: Final = Section(
    "agent",
    [
        COLLECTOR_ADDRESS,
        Setting(
            "key",
            "text",
            path,
            None,
            "FILE",
            "a key file of `barograph keys add agent`",
            "the key file, where the collector asks for one; all users of the node read it",
            variable="BAROGRAPH_KEY",
        ),
        Setting(
            "munge_socket",
            "text",
            path,
            None,
            "SOCKET",
            "a path",
            "the socket of the node's munged",
            variable="BAROGRAPH_MUNGE_SOCKET",
            otherwise="MUNGE's own",
        ),
        Setting(
            "cluster",
            "text",
            text,
            None,
            "NAME",
            "a name; cut at 24 characters",
            "the first part of every job and workload name",
            variable="BAROGRAPH_CLUSTER",
            otherwise="the batch system's name, else local",
        ),
        Setting(
            "rules",
            "text",
            path,
            None,
            "FILE",
            "a path",
            "the site's names and parameters",
            variable="BAROGRAPH_RULES",
            otherwise="/etc/barograph/rules.toml where it exists",
        ),
        Setting(
            "apps",
            "text",
            _expression,
            None,
            "REGEX",
            "a regular expression",
            "only applications whose whole name fits are watched",
            variable="BAROGRAPH_APPS",
            otherwise="all",
        ),
        Setting(
            "ranks",
            "text",
            text,
            "all",
            "LIST",
            "all, or a list such as 0,4-7",
            "which ranks of the world record",
            variable="BAROGRAPH_RANKS",
        ),
        Setting(
            "budget",
            "number",
            rows,
            f"{ROWS_PER_SECOND:g}",
            "ROWS",
            f"rows a second, above 0 and at most {MOST_ROWS:g}",
            "rows a second that a run may send in the long run; beyond, intervals are reduced to blocks",
            variable="BAROGRAPH_BUDGET",
        ),
        Setting(
            "spool",
            "text",
            path,
            None,
            "DIR",
            "a directory on a disk of the node",
            "where runs keep what is not delivered yet",
            variable="BAROGRAPH_SPOOL",
            otherwise="/var/tmp/barograph-UID",
        ),
        Setting(
            "spool_bytes",
            "size",
            size,
            SPOOL_SIZE,
            "SIZE",
            "bytes, or as in 256M",
            "what the spool of a run may hold; beyond, the oldest goes and is counted",
            variable=SPOOL_VARIABLE,
        ),
        Setting(
            "rings",
            "text",
            path,
            None,
            "DIR",
            "a directory in memory",
            "where rings live",
            variable="BAROGRAPH_RINGS",
            otherwise="/dev/shm/barograph-UID",
        ),
    ],
)


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """This environment, and for what it does not say what the site's file says. Raises ConfigError."""
    found = {AGENT.variable(setting): setting for setting in AGENT.settings}
    written = from_file(AGENT, site_file(given))
    said = {
        variable: str(written[setting.name])
        for variable, setting in found.items()
        if setting.name in written and not given.get(variable)
    }
    return {**given, **said}


def environment_or_complaint(given: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """The same for what must go on whatever the file is like: as given, and what is wrong with the file."""
    try:
        return environment(given), ""
    except ConfigError as error:
        return dict(given), str(error)


def endpoint(given: Mapping[str, str]) -> str:
    """The collector's address: the environment's, the facility's, or this host's default. A bad file is one line."""
    found, complaint = environment_or_complaint(given)
    if complaint:
        print(f"barograph: {complaint}; going on without this file", file=sys.stderr)
    return places.endpoint(found)
