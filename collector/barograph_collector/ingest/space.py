"""Free disk space: below a reserve no appends are accepted; the reserve is for those accepted before."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from barograph_agent.system.system import SYSTEM, System

_CHECK_SECONDS: Final = 0.1
_log = logging.getLogger(__name__)


class DiskSpace:
    """The file system of `directory`, of which `reserve` bytes stay free; 0 for no reserve."""

    def __init__(self, directory: Path, reserve: int = 0, system: System = SYSTEM) -> None:
        self._system = system
        self._directory = directory
        self.reserve = reserve
        self._short = False
        self._free_bytes = 0
        self._checked_at = float("-inf")

    def is_short(self) -> bool:
        """Whether less than the reserve is free. Stays true until a quarter more than the reserve is free."""
        if not self.reserve:
            return False
        # Called for every message, and each system call releases the interpreter lock.
        if (now := self._system.clock.monotonic()) - self._checked_at > _CHECK_SECONDS:
            self._free_bytes, self._checked_at = self._system.disk.free_bytes(self._directory), now
        before, self._short = self._short, self._free_bytes < self.reserve * (1.25 if self._short else 1.0)
        if self._short != before:
            _log.warning(self.complaint if self._short else "the disk of the log has room again: rows are taken")
        return self._short

    @property
    def complaint(self) -> str:
        """What is short where, and what becomes of rows."""
        free, least = (f"{size / 1e6:,.0f} MB" for size in (self._free_bytes, self.reserve))
        return (
            f"the disk of the log is full: {self._directory} has {free} free, expected {least}; "
            "no row is taken, and producers keep theirs until there is room"
        )
