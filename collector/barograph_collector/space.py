"""Room on the disk: below a reserve nothing more is taken, while there is still enough to finish what was."""

from __future__ import annotations

import os
from pathlib import Path


class DiskSpace:
    """The file system that `directory` is on, of which `reserve` bytes are to stay free."""

    def __init__(self, directory: Path, reserve: int = 0) -> None:
        self._directory = directory
        self.reserve = reserve
        self._short = False

    @property
    def free_bytes(self) -> int:
        """What this user may still write."""
        status = os.statvfs(self._directory)
        return status.f_bavail * status.f_frsize

    def is_short(self) -> bool:
        """True from when less than the reserve is free until a quarter more is: not on and off with every message."""
        if not self.reserve:
            return False
        self._short = self.free_bytes < self.reserve * (1.25 if self._short else 1.0)
        return self._short
