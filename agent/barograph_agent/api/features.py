"""Features that a program reports: numbers that it knows early and that decide how long it will run.

    from barograph_agent import features

    features(cells=nx * ny * nz, order=4)

Under `barograph run`, or where $BAROGRAPH_FEATURES names a folder, they are written to a side file of this process, as
those of instrumented sources are. Otherwise they are ignored. A name noted again has its new value.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barograph_agent.feature_files.writer import SideFileWriter


def features(**values: float) -> None:
    """Note numbers by name: 1-64 characters from A-Z a-z 0-9 _ . -, the first a letter or _.

    Never raises. Values with another name, that are not finite numbers, or beyond 256 names are not noted; the log has
    their number.
    """
    _NOTES.put(values, monotonic_ns())


class _Notes:
    """The side file of this process, if it has one."""

    def __init__(self) -> None:
        self.begin_again()

    def begin_again(self) -> None:
        """Start anew in the child of a fork: file and lock belong to the parent."""
        self._lock = threading.Lock()
        self._writer: SideFileWriter | None = None
        self._begun = False

    def put(self, values: Mapping[str, float], now: int) -> None:
        with self._lock:
            if not self._begun:
                self._begun = True
                self._begin(os.environ)
            if self._writer is not None:
                self._writer.put(values, now)

    def _begin(self, environment: Mapping[str, str]) -> None:
        folder = environment.get("BAROGRAPH_FEATURES", "")
        if not folder or environment.get("BAROGRAPH_DISABLE", "0") not in ("", "0"):
            return
        try:
            # Imported late: it needs numpy, which an unwatched program may not have.
            from barograph_agent.feature_files.writer import SideFileWriter
        except ImportError:
            return
        self._writer = SideFileWriter(Path(folder))
        atexit.register(self._writer.finish)


_NOTES: Final = _Notes()
os.register_at_fork(after_in_child=_NOTES.begin_again)
