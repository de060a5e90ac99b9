"""A drain for maintenance, between the collector and `barograph drain`: two files in the state directory.

Whoever may write there may ask for it. The collector reports on it until it ends; a restart ends it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from barograph_agent.system.system import SYSTEM, System
from barograph_collector.ingest.intake import DrainProgress

REQUEST: Final = "drain"
"""Exists while a drain is asked for."""
REPORT: Final = "drained"
_log = logging.getLogger(__name__)


class DrainFiles:
    """The collector's side. Raises OSError nowhere: a disk that is full must not end the service."""

    def __init__(
        self,
        state: Path,
        drain: Callable[[bool], None],
        progress: Callable[[], DrainProgress],
        system: System = SYSTEM,
    ) -> None:
        """Forgets a request to an earlier process. drain, progress: those of the collector."""
        self._request, self._report = state / REQUEST, state / REPORT
        self._drain = drain
        self._progress = progress
        self._disk = system.disk
        self._on = False
        self._reported: DrainProgress | None = None
        self._forget(self._request)
        self._forget(self._report)

    def poll(self) -> None:
        """Begin or end a drain as the files say, and report on it."""
        if self._disk.exists(self._request) != self._on:
            self._on = not self._on
            self._drain(self._on)
            _log.info("drained for maintenance: no row is taken" if self._on else "the drain has ended: rows are taken")
            if not self._on:
                self._reported = None
                self._forget(self._report)
        if not self._on or (found := self._progress()) == self._reported:
            return
        try:
            self._disk.replace(self._report, msgspec.json.encode(found))
        except OSError as error:
            _log.warning("cannot write %s: %s", self._report, error.strerror)
            return
        if found.complete:
            _log.info("everything that was received is in the log, up to offset %d, and in its lake", found.offset)
        self._reported = found

    def _forget(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            self._disk.unlink(path, missing_ok=True)


class DrainRequest:
    """The operator's side. Raises OSError."""

    def __init__(self, state: Path, system: System = SYSTEM) -> None:
        self._request, self._report = state / REQUEST, state / REPORT
        self._disk = system.disk

    def begin(self) -> None:
        """Ask for a drain."""
        self._disk.unlink(self._report, missing_ok=True)
        self._disk.replace(self._request, b"")

    def end(self) -> bool:
        """Ask for its end; whether there was one."""
        found = self._disk.exists(self._request)
        self._disk.unlink(self._request, missing_ok=True)
        return found

    def report(self) -> DrainProgress | None:
        """What the collector has reported of this drain; None for nothing yet."""
        try:
            return msgspec.json.decode(self._disk.read(self._report), type=DrainProgress)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
