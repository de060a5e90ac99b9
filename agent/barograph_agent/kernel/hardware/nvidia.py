"""Accelerators of NVIDIA, by the library of their driver: `nvidia.h`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Final

from barograph_agent.kernel.hardware.source import Figures
from barograph_agent.system.sockets import LIBRARY

_NAMES: Final = ("accelerator_clock_hz", "accelerator_limited", "accelerator_celsius", "accelerator_errors")


class NvidiaSource:
    """The lowest clock, share that is limited and highest temperature of those that are not idle, and errors of all.

    A thread asks, since that takes long; its answers are those of the next read. root: what precedes /dev.
    """

    def __init__(self, root: str = "", driver: str = "libnvidia-ml.so.1") -> None:
        self._driver = driver.encode()
        self._exists = Path(f"{root}/dev/nvidiactl").exists()
        self._thread: Thread | None = None
        self._known: Figures = {}

    def read(self, cores: Sequence[int]) -> Figures:
        """As of a source."""
        if not self._exists or (self._thread is not None and self._thread.is_alive()):
            return {}
        known, self._known = self._known, {}
        self._thread = Thread(target=self._ask, daemon=True)
        self._thread.start()
        return known

    def _ask(self) -> None:
        found = (ctypes.c_double * len(_NAMES))()
        self._exists = ctypes.CDLL(str(LIBRARY)).nvidia_ask(self._driver, found) == 0
        self._known = dict(zip(_NAMES, found, strict=True)) if self._exists else {}
