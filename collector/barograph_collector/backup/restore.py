"""A backup becomes the log of a state directory."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import Final

import duckdb

from barograph_agent.system.system import SYSTEM, System
from barograph_collector.backup.archive import Backup, BackupError, read
from barograph_collector.lake.place import CATALOG_FOLDER
from barograph_collector.storage.connection import StoreError, StoreHeld, connect, transaction
from barograph_collector.storage.layout import JOURNAL, OFFSET, STREAMS
from barograph_collector.storage.store import JOURNAL_FOLDER, LOG

JUMP: Final = 10**12
"""New rows get offsets so far above those of the backup: readers that had read further miss none of them."""


def restore(backup: Path, state: Path, *, replace: bool = False, system: System = SYSTEM) -> tuple[Backup, Path | None]:
    """Make a backup the log of a state directory; returns what it holds, and where a log that was there is now.

    replace: whether there may be one. Raises BackupError, also where a collector has it open.
    """
    found = read(backup)
    part = state / f"{LOG}.part"
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_place(state, replace=replace)
        shutil.copyfile(backup / LOG, part)
        jump(part)
        aside = put_log(part, state, replace=replace, system=system)
        if (backup / CATALOG_FOLDER).is_dir() and not (state / CATALOG_FOLDER).exists():
            shutil.copytree(backup / CATALOG_FOLDER, state / CATALOG_FOLDER)
    except StoreError as error:
        raise BackupError(str(error)) from None
    except (OSError, duckdb.Error) as error:
        raise BackupError(f"cannot restore {backup} to {state}: {error}") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return found, aside


def check_place(state: Path, *, replace: bool) -> list[Path]:
    """The files of a log in a state directory.

    Raises BackupError where there are some and none may be, and StoreHeld where a collector has the log open. What
    cannot be opened otherwise may be replaced.
    """
    log = state / LOG
    present = [path for path in (log, log.with_name(f"{LOG}.wal"), state / JOURNAL_FOLDER) if path.exists()]
    if present and not replace:
        raise BackupError(f"{present[0]}: exists, expected no log; --replace puts it aside")
    try:
        if log.exists():
            connect(log).close()
    except StoreHeld:
        raise
    except StoreError:
        pass
    return present


def put_log(part: Path, state: Path, *, replace: bool, system: System) -> Path | None:
    """Make a file the log of a state directory; returns where one that was there is now.

    Raises BackupError, OSError, and StoreError where a collector has the log open.
    """
    log = state / LOG
    aside: Path | None = None
    if present := check_place(state, replace=replace):
        aside = state / f"replaced-{time.strftime('%Y%m%dT%H%M%S', time.localtime(system.clock.now()))}"
        aside.mkdir(mode=0o700)
        for path in present:
            if path.exists():
                path.rename(aside / path.name)
    part.rename(log)
    system.disk.sync_directory(state)
    return aside


def jump(log: Path) -> None:
    """Let the log go on with offsets beyond JUMP, by a mark of the journal."""
    last = f"coalesce(max(seq) FILTER (stream = '{JOURNAL}'), 0), coalesce(max(\"{OFFSET}\"), 0) + {JUMP}"
    with connect(log) as connection, transaction(connection):
        connection.execute(f'INSERT INTO "{STREAMS}" SELECT \'{JOURNAL}\', {last} FROM "{STREAMS}"')
