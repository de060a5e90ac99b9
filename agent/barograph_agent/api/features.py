"""Features reported by a program: numbers that are known early and determine how long it will run.

    from barograph_agent import features

    features(cells=nx * ny * nz, order=4)

Under `barograph run`, or if $BAROGRAPH_FEATURES names a folder, they are written to a side file of this process, as are
those of instrumented sources. Otherwise they are ignored. A repeated name replaces the value.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barograph_agent.shim import is_disabled
from barograph_agent.system.clock import CLOCK

if TYPE_CHECKING:
    from barograph_agent.feature_files.writer import SideFileWriter


def features(**values: float) -> None:
    """Report numbers by name: 1-64 characters from A-Z a-z 0-9 _ . -, the first a letter or _.

    Never raises. Values with an invalid name, that are not finite numbers, or beyond 256 names are ignored and counted
    in the log.
    """
    _NOTES.put(values, CLOCK.monotonic_ns())


class _Notes:
    """The side file of this process, if there is one."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset in the child of a fork: file and lock belong to the parent."""
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
        if not folder or is_disabled(environment):
            return
        try:
            # Imported here, because it needs numpy, which an unwatched program may lack.
            from barograph_agent.feature_files.writer import SideFileWriter
        except ImportError:
            return
        self._writer = SideFileWriter(Path(folder))
        atexit.register(self._writer.finish)


_NOTES: Final = _Notes()
os.register_at_fork(after_in_child=_NOTES.reset)
