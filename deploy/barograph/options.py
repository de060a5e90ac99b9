"""Types of options and settings that several commands have."""

from __future__ import annotations

import argparse
from datetime import datetime
from urllib.parse import urlsplit

from barograph.cli import checked
from barograph_agent.protocol.tables import IDENTIFIER, Kind
from barograph_agent.system.clock import CLOCK

identifier = checked(str, IDENTIFIER.fullmatch, Kind.NAME.text)
"""The type of an option that is a name in the log."""


def since_argument(text: str) -> float:
    """Parse a date, a date and time (local by default), or an age such as 7d or 12h; returns Unix seconds."""
    units = {"d": 86400.0, "h": 3600.0}
    if text[-1:] in units and text[:-1].isdecimal():
        return CLOCK.now() - float(text[:-1]) * units[text[-1]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a date, date and time, or an age as 7d or 12h") from None


def http_addresses(text: str) -> str:
    """Check addresses with commas between. Raises argparse.ArgumentTypeError."""
    return ",".join(http_address(one.strip()) for one in text.split(","))


def http_address(text: str) -> str:
    """Check `http://HOST:PORT`. Raises argparse.ArgumentTypeError."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
    except ValueError:  # an invalid port
        good = False
    if not good:
        raise argparse.ArgumentTypeError(f"{text!r}, expected http://HOST:PORT")
    return text
