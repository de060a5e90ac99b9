"""Addresses of HTTP servers, as options and settings have them."""

from __future__ import annotations

import argparse
from urllib.parse import urlsplit


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
