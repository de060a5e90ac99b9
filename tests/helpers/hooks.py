"""Hooks that a busy machine may keep waiting: how long they take at most has a test of its own."""

from __future__ import annotations

from pathlib import Path


def unhurried(bounded: Path) -> None:
    """Let this copy of `bounded` give a hook a minute."""
    text = bounded.read_text()
    assert text.count(" KILL 1.5 ") == 1
    bounded.write_text(text.replace(" KILL 1.5 ", " KILL 60 "))
