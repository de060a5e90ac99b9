"""Results that benchmarks print."""

from __future__ import annotations

from collections.abc import Iterable


def show(title: str, lines: Iterable[str]) -> None:
    """Print an underlined title and lines."""
    print("\n\n" + "\n".join([title, "-" * len(title), *lines]))
