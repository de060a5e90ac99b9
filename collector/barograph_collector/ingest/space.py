"""Free disk space: below a reserve no appends are accepted; the reserve is for those accepted before."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from barograph_agent.system.system import SYSTEM, System

_CHECK_SECONDS: Final = 0.1
_log = logging.getLogger(__name__)


@dataclass
class DiskSpace:
    """The file systems of log and journal, of which `reserve` bytes each stay free; 0 for no reserve."""

    directories: Sequence[Path]
    reserve: int = 0
    system: System = SYSTEM
    _short: bool = False
    _free_bytes: int = 0
    _fullest: Path = Path()
    _checked_at: float = float("-inf")

    def is_short(self) -> bool:
        """Whether less than the reserve is free. Stays true until a quarter more than the reserve is free."""
        if not self.reserve:
            return False
        # Called for every message, and each system call releases the interpreter lock.
        if (now := self.system.clock.monotonic()) - self._checked_at > _CHECK_SECONDS:
            free = ((self.system.disk.free_bytes(directory), directory) for directory in self.directories)
            (self._free_bytes, self._fullest), self._checked_at = min(free), now
        before, self._short = self._short, self._free_bytes < self.reserve * (1.25 if self._short else 1.0)
        if self._short != before:
            _log.warning(self.complaint if self._short else "the disk of the log has room again: rows are taken")
        return self._short

    @property
    def complaint(self) -> str:
        """What is short where, and what becomes of rows."""
        free, least = (f"{size / 1e6:,.0f} MB" for size in (self._free_bytes, self.reserve))
        return (
            f"the disk of the log is full: {self._fullest} has {free} free, expected {least}; "
            "no row is taken, and producers keep theirs until there is room"
        )
