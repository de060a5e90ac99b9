"""Room on the disk: below a reserve nothing more is taken, while there is still enough to finish what was."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

_LOOK_SECONDS: Final = 0.1


class DiskSpace:
    """The file system that `directory` is on, of which `reserve` bytes are to stay free."""

    def __init__(self, directory: Path, reserve: int = 0) -> None:
        self._directory = directory
        self.reserve = reserve
        self._short = False
        self._free_bytes = 0
        self._looked_at = float("-inf")

    @property
    def free_bytes(self) -> int:
        """What this user may still write."""
        status = os.statvfs(self._directory)
        return status.f_bavail * status.f_frsize

    def is_short(self) -> bool:
        """True from when less than the reserve is free until a quarter more is: not on and off with every message."""
        if not self.reserve:
            return False
        # Asked for every message, and each look at the file system lets other threads go first.
        if (now := time.monotonic()) - self._looked_at > _LOOK_SECONDS:
            self._free_bytes, self._looked_at = self.free_bytes, now
        self._short = self._free_bytes < self.reserve * (1.25 if self._short else 1.0)
        return self._short
