"""A copy of a log while a collector writes to it.

DuckDB changes nothing that the header of its file leads to but in a checkpoint. A copy of the file between two
checkpoints is therefore the state of the first one, and the journal has all messages since. Both are copied under the
lock that a checkpoint needs. The copy is then opened as the collector opens its log, which replays the journal.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import duckdb
import msgspec

from barograph_agent.system.system import SYSTEM, System
from barograph_collector.storage.connection import reason_of
from barograph_collector.storage.layout import LOG_COLUMNS
from barograph_collector.storage.store import JOURNAL_FOLDER, LOG, Store

MANIFEST: Final = "backup.json"
HOLD_SECONDS: Final = 60.0
"""Longest wait for a checkpoint to end."""
CHUNK_BYTES: Final = 4 * 2**20
_POLL_SECONDS: Final = 0.1

Progress = Callable[[int, int], object]
"""Called with the bytes copied and those to copy."""


class BackupError(Exception):
    """There is no backup. The text names the file and what was expected."""


class Backup(msgspec.Struct, frozen=True):
    """A backup. log: its name. made_at: Unix seconds. head: the offset of its last row. rows: of each table."""

    log: str
    made_at: float
    head: int
    rows: dict[str, int]

    @property
    def total(self) -> int:
        """Rows of all tables."""
        return sum(self.rows.values())


def make(state: Path, target: Path, progress: Progress = lambda done, total: None, system: System = SYSTEM) -> Backup:
    """Copy the log in a state directory to `target`, which must not exist. Raises BackupError.

    Every row that was acknowledged before the call is in it.
    """
    log = state / LOG
    if not log.is_file():
        raise BackupError(f"{log}: not found, expected the log of a collector")
    if target.exists():
        raise BackupError(f"{target}: exists, expected a new directory")
    part = target.with_name(f"{target.name}.part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(mode=0o700, parents=True)
        try:
            _copy_files(log, part, progress, system)
            with Store(part / LOG, system=system) as store, store.cursor() as rows:
                store.checkpoint()  # a restore takes the database only
                counts = {name: rows.execute(f'SELECT count(*) FROM "{name}"').fetchone() for name in LOG_COLUMNS}
                rows_of = {name: row[0] for name, row in counts.items() if row}
                made = Backup(store.database.name, system.clock.now(), store.head, rows_of)
            system.disk.replace(part / MANIFEST, msgspec.json.encode(made))
            part.rename(target)
            system.disk.sync_directory(target.parent)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    except duckdb.Error as error:
        raise BackupError(f"cannot copy {log} to {target}: {reason_of(error)}") from None
    except OSError as error:
        raise BackupError(f"cannot copy {log} to {target}: {error.strerror or error}") from None
    return made


def read(directory: Path) -> Backup:
    """What a backup holds. Raises BackupError for a directory that is none."""
    try:
        return msgspec.json.decode((directory / MANIFEST).read_bytes(), type=Backup)
    except (OSError, msgspec.DecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BackupError(f"{directory / MANIFEST}: {reason}, expected a backup made by barograph backup") from None


def _copy_files(log: Path, part: Path, progress: Progress, system: System) -> None:
    """Copy database and journal between two checkpoints."""
    folder = log.parent / JOURNAL_FOLDER
    with _held(folder, system):
        # What a checkpoint that was cut off has saved comes first: who opens the copy undoes it.
        files = [path for path in (log.with_name(f"{LOG}.undo"), log, *sorted(folder.glob("*"))) if path.exists()]
        total = sum(path.stat().st_size for path in files)
        (part / JOURNAL_FOLDER).mkdir(mode=0o700, exist_ok=True)
        done = 0
        for path in files:
            done = _copy(path, part / path.relative_to(log.parent), progress, done, total)


@contextlib.contextmanager
def _held(path: Path, system: System) -> Iterator[None]:
    deadline = system.clock.monotonic() + HOLD_SECONDS
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(system.disk.locked(path))
                break
            except BlockingIOError:
                if system.clock.monotonic() > deadline:
                    raise BackupError(f"{path}: locked by another process for {HOLD_SECONDS:g} s") from None
                system.clock.sleep(_POLL_SECONDS)
        yield


def _copy(source: Path, target: Path, progress: Progress, done: int, total: int) -> int:
    with source.open("rb") as given, target.open("wb") as taken:
        while data := given.read(CHUNK_BYTES):
            taken.write(data)
            done += len(data)
            progress(done, max(total, done))
    return done
