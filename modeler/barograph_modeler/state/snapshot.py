"""A snapshot: the modeler's state, and the log of which it is with the offsets it was read to, in one file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import logging
import pickle
from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from barograph_agent.system.clock import CLOCK
from barograph_agent.system.disk import DISK
from barograph_collector.client.follow import Follower
from barograph_collector.client.log_reader import RowBatch
from barograph_modeler.state.forked_task import ForkedTask
from barograph_modeler.state.gate import Gate
from barograph_modeler.state.stateful import Stateful

FILE_NAME: Final = "modeler.snapshot"
SNAPSHOT_SECONDS: Final = 300.0
GATE_SECONDS: Final = 1.0
"""Longest wait for running fits; a snapshot that times out is tried again in the next cycle."""
FORMAT: Final = 31
"""To be raised when classes in the state, or their attributes, are renamed: older snapshots are ignored."""
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
    ("river._river_rust.drift", "AdaptiveWindowing"),
}
_log = logging.getLogger(__name__)


class TableReader(Protocol):
    """What reads tables of a log, such as LogReader."""

    def read(self, table: str, after: int, limit: int) -> RowBatch:
        """At most `limit` rows with an offset above `after`."""
        ...


class FollowedLog(Protocol):
    """A log that the modeler follows, such as LogSource."""

    @property
    def name(self) -> str:
        """Its name, wherever it is."""
        ...

    @property
    def reader(self) -> TableReader:
        """Reads it."""
        ...

    @property
    def follower(self) -> Follower:
        """Follows it."""
        ...


class UnusableSnapshot(Exception):
    """A snapshot cannot be used. The message has the reason."""


class Offsets(NamedTuple):
    """Up to where the tables of a log were read. log: its name."""

    log: str
    tables: dict[str, int]


def write_snapshot(path: Path, offsets: Offsets, settings: str, state: Any) -> None:
    """Replace the file atomically. Raises OSError.

    Layout: a line of JSON with format, versions, settings, offsets and the BLAKE2b digest of the rest; then the state
    as a pickle.
    """
    body = pickle.dumps(state, protocol=5)
    head = {
        "format": FORMAT,
        "versions": _versions(),
        "settings": settings,
        "log": offsets.log,
        "offsets": offsets.tables,
        "digest": _digest(body),
    }
    DISK.replace(path, json.dumps(head).encode() + b"\n" + body)


def read_snapshot(path: Path, settings: str) -> tuple[Offsets, Any]:
    """Offsets and state. Raises FileNotFoundError, and UnusableSnapshot with the reason.

    Only the modeler's own classes and plain containers are ever unpickled.
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
        offsets = Offsets(str(head["log"]), {str(table): int(offset) for table, offset in head["offsets"].items()})
        digest = head["digest"]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise UnusableSnapshot("its first line is no header") from None
    for name, expected in (("format", FORMAT), ("versions", _versions()), ("settings", settings)):
        if found[name] != expected:
            verb = "is" if name == "format" else "are"
            raise UnusableSnapshot(f"its {name} {verb} {found[name]!r:.100}, expected {expected!r}")
    if digest != _digest(body):
        raise UnusableSnapshot("its digest is not that of its content")
    try:
        return offsets, _Unpickler(BytesIO(body)).load()
    except (pickle.UnpicklingError, AttributeError, ImportError, EOFError, LookupError, TypeError, ValueError) as error:
        raise UnusableSnapshot(f"its content is not readable: {error}") from None


class SnapshotKeeper:
    """Writes snapshots of an object's state to a directory, and restores them.

    settings: settings that the state depends on; a snapshot with others is ignored. clock: seconds.
    gate: held by other threads while the process must not fork.
    """

    def __init__(
        self,
        directory: Path,
        processor: Stateful,
        settings: str,
        clock: Callable[[], float] = CLOCK.monotonic,
        gate: Gate | None = None,
    ) -> None:
        self.path = directory / FILE_NAME
        self._processor = processor
        self._task = ForkedTask()
        self._gate = gate or Gate()
        self._settings = settings
        self._clock = clock
        self._due = clock() + SNAPSHOT_SECONDS

    def restore(self, source: FollowedLog) -> None:
        """Continue from the snapshot if it is of this version and of this log; otherwise log a warning.

        Exceptions of readers are raised before anything is changed.
        """
        try:
            offsets, state = read_snapshot(self.path, self._settings)
            if offsets.log != source.name:
                raise UnusableSnapshot(f"it is of log {offsets.log}, expected {source.name}")
            _check_log(source, offsets.tables)
        except FileNotFoundError:
            return
        except UnusableSnapshot as error:
            _log.warning("snapshot %s is ignored, the log is read from its beginning: %s", self.path, error)
            return
        self._processor.restore(state)
        source.follower.resume(offsets.tables)
        last = max(offsets.tables.values(), default=0)
        _log.info("going on from snapshot %s at offset %d of log %s", self.path, last, source.name)

    def keep(self, log: str, delivered: Mapping[str, int], closing: bool) -> None:
        """Write a snapshot if one is due, in a forked child; or at once if `closing`. Failures are only logged.

        log: its name. delivered: up to where each table was read.
        """
        offsets = Offsets(log, dict(delivered))
        if closing:
            self._task.stop()
            try:
                write_snapshot(self.path, offsets, self._settings, self._processor.state())
            except OSError as error:
                self._log_failure(str(error.strerror))
        elif self._task.busy:
            self.poll()
        elif self._clock() >= self._due:
            with self._gate.closed(GATE_SECONDS) as alone:
                if alone:
                    state = self._processor.state()
                    self._task.start(partial(write_snapshot, self.path, offsets, self._settings, state))
                    self._due = self._clock() + SNAPSHOT_SECONDS

    def poll(self, *, wait: bool = False) -> None:
        """Fetch the result of the snapshot being written, if it has finished."""
        if self._task.busy and (reason := self._task.result(wait=wait)):
            self._log_failure(reason)

    def _log_failure(self, reason: str) -> None:
        _log.warning("snapshot %s is not written: %s", self.path, reason)


def _check_log(source: FollowedLog, offsets: Mapping[str, int]) -> None:
    """Check for a replaced log, which rarely has a row of the same table at the same offset."""
    if offsets.keys() != source.follower.offsets.keys():
        raise UnusableSnapshot(f"it is of tables {sorted(offsets)}, expected {sorted(source.follower.offsets)}")
    for table, offset in offsets.items():
        if offset > 0:
            page = source.reader.read(table, offset - 1, 1)
            if not page.rows or page.columns["log_offset"][0] != offset:
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
    # The packages whose objects are pickled; reading them with other versions is not tested.
    return {name: importlib.metadata.version(name) for name in ("numpy", "river")}
