"""A command that parses nothing."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Nothing."""
    return len(arguments)
