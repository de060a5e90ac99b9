"""A backup, or what the lake has of a log, becomes the log of a state directory.

Of the lake rows of days that have ended stay there; those of the newest day and of tables that are kept for ever are
copied. The marks of the streams are those of the last sealed period: agents go on behind it.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import duckdb

from barograph_agent.protocol import wire
from barograph_agent.system.system import SYSTEM, System
from barograph_collector.backup.archive import Backup, BackupError, read
from barograph_collector.lake.files import LakeFiles, sealed_names
from barograph_collector.lake.place import Lake
from barograph_collector.storage.connection import StoreError, StoreHeld, connect, reason_of, transaction
from barograph_collector.storage.database import Database
from barograph_collector.storage.days.archive import Archive, store_files
from barograph_collector.storage.days.data_path import sealed_periods
from barograph_collector.storage.days.extensions import LakeError
from barograph_collector.storage.days.retention import DAY_SECONDS
from barograph_collector.storage.journal import Journal
from barograph_collector.storage.layout import DAILY, JOURNAL, LOG_COLUMNS, OFFSET, STREAMS, quoted
from barograph_collector.storage.messages import checked
from barograph_collector.storage.store import JOURNAL_FOLDER, LOG, RESTORED, Store, newer_lake, put_journal

JUMP: Final = 10**12
"""New rows get offsets so far above those of the backup: readers that had read further miss none of them."""
MAX_NAMED: Final = 20
RUNNING_DAYS: Final = 31
"""A job that began earlier and has not ended is not taken for one that runs."""


class Restored(NamedTuple):
    """What has become the log. aside: where an older log is, None for none. replaced_rows: those of it that were later.

    unfinished: number of jobs that had not ended, of which later rows may be lost; each has a row of `events`.
    is_whole: whether all rows that were acknowledged are there.
    """

    backup: Backup
    aside: Path | None = None
    unfinished: int = 0
    replaced_rows: int = 0
    is_whole: bool = False

    def missing(self, until: str) -> Iterator[str]:
        """What is missing, in words. until: the time of the newest row."""
        if self.replaced_rows:
            share = self.replaced_rows / (self.replaced_rows + self.backup.head)
            yield f"{self.replaced_rows:,} rows of the log that was there ({share:.1%}), after {until}"
        elif not self.is_whole:
            yield f"rows that the collector acknowledged after {until}"
        if self.unfinished:
            yield f"the rest of {self.unfinished} jobs that had not ended then; events say of which"


def restore(
    backup: Path, state: Path, lake: Lake | None = None, *, replace: bool = False, system: System = SYSTEM
) -> Restored:
    """Make a backup the log of a state directory. Raises BackupError, also where a collector has it open.

    lake: of the collector, None for none: it may not have later rows of this log. replace: whether there may be a log.
    """
    found, part = read(backup), state / f"{LOG}.part"
    with _errors(f"cannot restore {backup} to {state}"):
        if lake is not None and (refusal := newer_lake(lake.data, found.log, found.head, state)):
            raise BackupError(refusal)
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_place(state, replace=replace)
        try:
            shutil.copyfile(backup / LOG, part)
            _jump(part)
            return Restored(found, _put_log(part, state, found.head, replace=replace, system=system))
        finally:
            part.unlink(missing_ok=True)


def restore_from_lake(
    name: str,
    lake: Lake,
    state: Path,
    *,
    journal: Path | None = None,
    replace: bool = False,
    system: System = SYSTEM,
) -> Restored:
    """Make what a lake has of a log, which no collector has, the log of a state directory. Raises BackupError.

    journal: its journal, where that was apart: with it nothing that was acknowledged is lost, also where nothing was
    sealed yet. replace: whether there may be a log.
    """
    part = state / f"{LOG}.part"
    with _errors(f"cannot make the log {name} of the lake {lake.data.lake}"):
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_place(state, replace=replace)
        for left in (part, part.with_name(f"{part.name}.wal")):
            left.unlink(missing_ok=True)
        lake.data.check(known=True)
        opened = _opened(journal, system) if journal is not None else None
        is_known = opened is not None and opened.owner == name
        until, position, mark = _fill(name, lake, part, is_known=is_known)
        if opened is None:
            _jump(part)
        else:
            check_journal(opened, name, mark)
        stays = journal is not None and journal.resolve() == (state / JOURNAL_FOLDER).resolve()
        aside = _put_log(part, state, None, replace=replace, stays=stays, system=system)
        if journal is not None and not stays:
            put_journal(state, journal, system.disk)
        with Store(state / LOG, system=system, lake=lake.data) as store:
            head = store.head if journal is not None else position
            unfinished = _note_unfinished(store, until) if journal is None else 0
            found = Backup(name, until, head, store.database.row_counts())
        later = max(_head_of(aside) - head, 0) if aside is not None else 0
        return Restored(found, aside, unfinished, later, journal is not None)


def remake(state: Path, lake: Lake, system: System = SYSTEM) -> Restored:
    """Make a log with a damaged database again of lake and journal. Raises BackupError where they lack rows."""
    journal = state / JOURNAL_FOLDER
    return restore_from_lake(_opened(journal, system).owner, lake, state, journal=journal, replace=True, system=system)


def check_journal(journal: Journal, name: str, mark: int) -> None:
    """Raises BackupError where a journal is not that of a log, or lacks messages behind number `mark`."""
    try:
        journal.claim(name)
    except ValueError as error:
        raise BackupError(str(error)) from None
    # Without messages: the lake has all, and the journal none that it would lack.
    if journal.size and not journal.first <= mark + 1 <= journal.last + 1:
        raise BackupError(
            f"the journal {journal.directory} has messages {journal.first} to {journal.last}, expected all behind"
            f" {mark}, of which the lake has the rows"
        )


@contextlib.contextmanager
def _errors(what: str) -> Iterator[None]:
    try:
        yield
    except (LakeError, StoreError) as error:
        raise BackupError(str(error)) from None
    except duckdb.Error as error:
        raise BackupError(f"{what}: {reason_of(error)}") from None
    except OSError as error:
        raise BackupError(f"{what}: {error.filename or ''} {error.strerror or error}".replace(":  ", ": ")) from None


def _opened(directory: Path, system: System) -> Journal:
    if not directory.is_dir():
        raise BackupError(f"{directory}: not found, expected the journal of the log")
    return Journal(directory, system=system)


def _fill(name: str, lake: Lake, part: Path, *, is_known: bool) -> tuple[float, int, int]:
    """Make a database of what the lake has; returns the time of its newest row (Unix seconds), its offset and its mark.

    is_known: whether there was such a log, although the lake may have nothing of it.
    """
    logs = sorted({period.log for period in sealed_periods(lake.data)})
    if name not in logs and not is_known:
        known = ", ".join(logs[:MAX_NAMED]) or "none"
        raise BackupError(f"{name!r} is no log of the lake {lake.data.lake}, expected one of: {known}")
    Database(part, lake.data).close()
    with contextlib.closing(connect(part, lake.data)) as log:
        files = LakeFiles(log, lake.data, name)
        periods = files.periods()
        position = periods[-1].last if periods else 0
        described = files.describe(sealed_names(lake.data, name))
        firsts: dict[int, int] = {}
        for file in described:
            firsts[file.day] = min(file.first, firsts.get(file.day, file.first))
        # As in the log: a day in the future is followed by earlier ones.
        days = sorted(firsts, key=lambda day: (firsts[day], day))
        marks = {JOURNAL: 0, **files.marks(periods)}
        with transaction(log):
            log.execute("UPDATE identity SET name = ?", [name])
            log.execute("INSERT INTO lake VALUES (?, ?)", [lake.name, position])
            for day in days:
                log.execute("INSERT INTO partitions VALUES (?, ?, ?)", [day, firsts[day], day != days[-1]])
            for table in DAILY:
                log.execute(f'DROP VIEW "{table}"')  # the next start makes that of these days
            query = f'INSERT INTO "{STREAMS}" SELECT unnest(?::VARCHAR[]), unnest(?::BIGINT[]), {position}'
            log.execute(query, [list(marks), list(marks.values())])
            store_files(log, described)
    with contextlib.closing(Database(part, lake.data)) as database, database.cursor() as log:
        archive, hot = Archive(lake.data, name), database.partitions.days[-1:]
        for file in sorted(described, key=lambda file: file.first):
            if file.table in DAILY and file.day not in {day.day for day in hot}:
                continue
            target = hot[0].table(file.table) if file.table in DAILY else file.table
            columns = quoted(LOG_COLUMNS[file.table])
            rows = f'SELECT {columns} FROM {archive.source([file])} ORDER BY "{OFFSET}"'
            log.execute(f'INSERT INTO "{target}" ({columns}) {rows}')
        database.checkpoint()
    return max((file.last_at for file in described), default=0.0), position, marks[JOURNAL]


def _note_unfinished(store: Store, until: float) -> int:
    """Append an event for each job that may have lost rows; returns how many."""
    query = "SELECT DISTINCT job FROM jobs WHERE started_at >= ? AND job NOT IN (SELECT job FROM runs) ORDER BY 1"
    with store.cursor() as log:
        jobs = [job for (job,) in log.execute(query, [until - RUNNING_DAYS * DAY_SECONDS]).fetchall()]
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(until))
    detail = f"{{}} had not ended at {at}: later rows that were acknowledged are not in the lake"
    event: dict[str, Any] = {"source": "collector", "kind": "lost", "rows": 0, "time": until}
    entries = [
        checked(wire.append("collector", 1, "events", 1, event | {"detail": detail.format(job)})) for job in jobs
    ]
    if entries:
        store.commit(entries, {JOURNAL: store.journal.last})
    return len(jobs)


def _check_place(state: Path, *, replace: bool) -> list[Path]:
    """The files of a log in a state directory.

    Raises BackupError where there are some and none may be, and StoreHeld where a collector has the log open. What
    cannot be opened otherwise may be replaced.
    """
    log = state / LOG
    files = (LOG, f"{LOG}.wal", f"{LOG}.undo", JOURNAL_FOLDER)
    present = [state / name for name in files if (state / name).exists()]
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


def _put_log(
    part: Path, state: Path, head: int | None, *, replace: bool, stays: bool = False, system: System
) -> Path | None:
    """Make a file the log of a state directory; returns where one that was there is now.

    head: the last offset of a backup, None for a log that was made of the lake. stays: whether the journal does.

    Raises BackupError, OSError, and StoreError where a collector has the log open.
    """
    log = state / LOG
    aside: Path | None = None
    if present := _check_place(state, replace=replace):
        aside = state / f"replaced-{time.strftime('%Y%m%dT%H%M%S', time.localtime(system.clock.now()))}"
        aside.mkdir(mode=0o700)
        for path in present:
            if path == log:
                (aside / LOG).hardlink_to(log)  # always there: a collector without it would begin another log
            elif path.exists() and not (stays and path.name == JOURNAL_FOLDER):
                path.rename(aside / path.name)
    (state / RESTORED).unlink(missing_ok=True)
    if head is not None:
        (state / RESTORED).write_text(str(head))
    part.rename(log)
    system.disk.sync_directory(state)
    return aside


def _head_of(aside: Path) -> int:
    """The last offset of a log that was replaced, without its journal; 0 where it cannot be read."""
    try:
        with contextlib.closing(connect(aside / LOG)) as log:
            return int((log.execute(f'SELECT coalesce(max("{OFFSET}"), 0) FROM "{STREAMS}"').fetchone() or (0,))[0])
    except (StoreError, duckdb.Error):
        return 0


def _jump(log: Path) -> None:
    """Let the log go on with offsets beyond JUMP, by a mark of the journal."""
    last = f"coalesce(max(seq) FILTER (stream = '{JOURNAL}'), 0), coalesce(max(\"{OFFSET}\"), 0) + {JUMP}"
    with connect(log) as connection:
        connection.execute(f'INSERT INTO "{STREAMS}" SELECT \'{JOURNAL}\', {last} FROM "{STREAMS}"')
        connection.execute("CHECKPOINT")
