"""Where commands print tables: a terminal, or a pipe that another program reads."""

from __future__ import annotations

import sys
from typing import Final

from rich.console import Console

MAX_WIDTH: Final = 10_000
"""Columns of a line that no terminal shows: names are whole there, and `grep` finds them."""


def console() -> Console:
    """Standard output: as wide as the terminal, and where it is none, wide enough for every line."""
    return Console(width=None if sys.stdout.isatty() else MAX_WIDTH)
