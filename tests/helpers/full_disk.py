"""A disk that is full, or not, as a test says."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from barograph_agent.system.disk import Disk


class FullDisk(Disk):
    """A disk that commits no transaction of a database while it is full, and moves no page while it is tight."""

    is_full = is_tight = False

    def database(self, path: Path) -> sqlite3.Connection:
        """A database whose commits fail while the disk is full."""
        return _Database(self, super().database(path))  # type: ignore[return-value]


class _Database:
    def __init__(self, disk: FullDisk, real: sqlite3.Connection) -> None:
        self._disk, self._real = disk, real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def commit(self) -> None:
        self._write(self._disk.is_full)
        self._real.commit()

    def executescript(self, script: str) -> None:
        self._write(self._disk.is_tight)
        self._real.executescript(script)

    def _write(self, has_no_room: bool) -> None:
        if has_no_room:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
