"""Replacing a file as a whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from barograph_agent.system.disk import DISK


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, which replaces `path` on success and is removed on failure."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.touch()  # its OSError has a shorter text than pyarrow's
        yield partial
        with partial.open("rb") as written:
            DISK.sync(written.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
