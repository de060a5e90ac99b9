"""Accelerators of NVIDIA, by the library of their driver: `nvidia.h`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barograph_agent.kernel.hardware.source import Figures
from barograph_agent.system.sockets import LIBRARY
from barograph_agent.system.threads import THREADS, ThreadTask

_NAMES: Final = ("accelerator_clock_hz", "accelerator_limited", "accelerator_celsius", "accelerator_errors")


class NvidiaSource:
    """The lowest clock, share that is limited and highest temperature of those that are not idle, and errors of all.

    A thread asks, since that takes long; its answers are those of the next read. root: what precedes /dev.
    """

    def __init__(self, root: str = "", driver: str = "libnvidia-ml.so.1") -> None:
        self._driver = driver.encode()
        self._exists = Path(f"{root}/dev/nvidiactl").exists()
        self._task: ThreadTask | None = None

    def read(self, cores: Sequence[int]) -> Figures:
        """As of a source."""
        if not self._exists or (self._task is not None and not self._task.wait(0.0)):
            return {}
        found: Figures = (self._task.result if self._task is not None else None) or {}
        self._task = ThreadTask(THREADS, "nvidia", self._ask) if self._exists else None
        return found

    def _ask(self) -> Figures:
        found = (ctypes.c_double * len(_NAMES))()
        self._exists = ctypes.CDLL(str(LIBRARY)).nvidia_ask(self._driver, found) == 0
        return dict(zip(_NAMES, found, strict=True)) if self._exists else {}
