"""A snapshot: the modeler's state and the offsets it had read to, in one file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import logging
import pickle
import time
from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Protocol

from barograph_agent.deliver.spool import replace_file
from barograph_collector.client.follow import Follower, LogReading
from barograph_modeler.state.forked_task import ForkedTask
from barograph_modeler.state.gate import Gate

FILE_NAME: Final = "modeler.snapshot"
SNAPSHOT_SECONDS: Final = 300.0
GATE_SECONDS: Final = 1.0
"""How long a snapshot waits for a fit to end before it tries again in the next cycle."""
FORMAT: Final = 3
_ALLOWED: Final = {
    ("array", "array"),
    ("barograph_collector.daemon.runner", "Output"),
    ("array", "_array_reconstructor"),
    ("collections", "Counter"),
    ("collections", "OrderedDict"),
    ("collections", "deque"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "scalar"),
    ("numpy._core.numeric", "_frombuffer"),
    ("river.drift.adwin", "ADWIN"),
    ("river._river_rust.drift", "AdaptiveWindowing"),
}
_log = logging.getLogger(__name__)


class UnusableSnapshot(Exception):
    """A snapshot that cannot be used. The text says why."""


def write_snapshot(path: Path, offsets: Mapping[str, int], settings: str, state: Any) -> None:
    """Put state and offsets into a file, which at any instant is the old one or the new one. Raises OSError.

    The file: a line of JSON with format, versions, settings, offsets and the BLAKE2b digest of what follows; then the
    state as a pickle.
    """
    body = pickle.dumps(state, protocol=5)
    head = {
        "format": FORMAT,
        "versions": _versions(),
        "settings": settings,
        "offsets": dict(offsets),
        "digest": _digest(body),
    }
    replace_file(path, json.dumps(head).encode() + b"\n" + body)


def read_snapshot(path: Path, settings: str) -> tuple[dict[str, int], Any]:
    """Offsets and state. Raises FileNotFoundError where there is none, Unusable for any other that cannot be used.

    Nothing but the modeler's own classes and plain containers is ever made from a file, whatever it says.
    """
    try:
        with path.open("rb") as file:
            line, body = file.readline(65536), file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnusableSnapshot(str(error.strerror)) from None
    try:
        head = json.loads(line)
        found = {name: head[name] for name in ("format", "versions", "settings")}
        offsets = {str(table): int(offset) for table, offset in head["offsets"].items()}
        digest = head["digest"]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UnusableSnapshot("its first line is no header") from None
    for name, expected in (("format", FORMAT), ("versions", _versions()), ("settings", settings)):
        if found[name] != expected:
            raise UnusableSnapshot(f"its {name} are {found[name]!r:.100}, expected {expected!r}")
    if digest != _digest(body):
        raise UnusableSnapshot("its digest is not that of its content")
    try:
        return offsets, _Unpickler(BytesIO(body)).load()
    except (pickle.UnpicklingError, AttributeError, ImportError, EOFError, LookupError, TypeError, ValueError) as error:
        raise UnusableSnapshot(f"its content is not readable: {error}") from None


class Kept(Protocol):
    """An object whose state is kept."""

    def state(self) -> Any:
        """Everything, as it is now: not a copy."""
        ...

    def restore(self, state: Any) -> None:
        """Go on from what `state` gave."""
        ...


class SnapshotKeeper:
    """Keeps a snapshot of an object's state in a directory, and restores it.

    settings: whatever must be the same for a snapshot to be of use. clock: seconds, for when the next one is due.
    gate: what other threads pass while they must not be forked.
    """

    def __init__(
        self,
        directory: Path,
        processor: Kept,
        settings: str,
        clock: Callable[[], float] = time.monotonic,
        gate: Gate | None = None,
    ) -> None:
        self.path = directory / FILE_NAME
        self._processor = processor
        self._aside = ForkedTask()
        self._gate = gate or Gate()
        self._settings = settings
        self._clock = clock
        self._due = clock() + SNAPSHOT_SECONDS

    def restore(self, follower: Follower, reader: LogReading) -> None:
        """Go on from the snapshot, if there is one of this version and of this log; else say why not, once.

        Raises what `reader` raises, and then has done nothing.
        """
        try:
            offsets, state = read_snapshot(self.path, self._settings)
            _check_log(reader, follower, offsets)
        except FileNotFoundError:
            return
        except UnusableSnapshot as error:
            _log.warning("snapshot %s is ignored, the log is read from its beginning: %s", self.path, error)
            return
        self._processor.restore(state)
        follower.resume(offsets)
        _log.info("going on from snapshot %s at offset %d", self.path, max(offsets.values(), default=0))

    def keep(self, offsets: Mapping[str, int], closing: bool) -> None:
        """Write a snapshot if one is due, or this is the last chance. A full disk costs the snapshot and no more.

        One that is due is written aside, so that the caller goes on at once.
        """
        if closing:
            self._aside.stop()
            self._say(self._written(offsets))
        elif self._aside.busy:
            self.settle()
        elif self._clock() >= self._due:
            with self._gate.closed(GATE_SECONDS) as alone:
                if alone:
                    state = self._processor.state()
                    self._aside.start(partial(write_snapshot, self.path, offsets, self._settings, state))
                    self._due = self._clock() + SNAPSHOT_SECONDS

    def settle(self, *, wait: bool = False) -> None:
        """Take note of the end of a snapshot under way, if it has come by now."""
        if self._aside.busy and (reason := self._aside.ended(wait=wait)) is not None:
            self._say(reason)

    def _written(self, offsets: Mapping[str, int]) -> str:
        try:
            write_snapshot(self.path, offsets, self._settings, self._processor.state())
        except OSError as error:
            return str(error.strerror)
        return ""

    def _say(self, reason: str) -> None:
        if reason:
            _log.warning("snapshot %s is not written: %s", self.path, reason)


def _check_log(reader: LogReading, follower: Follower, offsets: Mapping[str, int]) -> None:
    """A log that was replaced by another one has no row of the same table at the same offset, but by rare chance."""
    if offsets.keys() != follower.offsets.keys():
        raise UnusableSnapshot(f"it is of tables {sorted(offsets)}, expected {sorted(follower.offsets)}")
    for table, offset in offsets.items():
        if offset > 0:
            page = reader.read(table, offset - 1, 1)
            if not page.rows or page.columns["offset"][0] != offset:
                raise UnusableSnapshot(
                    f"table {table!r} of the log has no row at its offset {offset}: it is of another log"
                )


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return super().find_class(module, name)
        if module.startswith("barograph_modeler.") and "." not in name:
            found = getattr(importlib.import_module(module), name)
            if isinstance(found, type) and found.__module__ == module:
                return found
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _digest(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def _versions() -> dict[str, str]:
    # Whose objects are inside: what another version makes of them nobody has tested.
    return {name: importlib.metadata.version(name) for name in ("barograph", "numpy", "river")}
