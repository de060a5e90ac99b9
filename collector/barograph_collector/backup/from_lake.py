"""The log of a collector that is lost, made again from what the lake has of it.

Rows of days that have ended stay in the lake, and those of the newest one and of tables that are kept for ever are
copied. The marks of the streams are those at the last commit: agents go on behind it.
"""

from __future__ import annotations

import contextlib
import datetime
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import Final

import duckdb

from barograph_agent.system.system import SYSTEM, System
from barograph_collector.backup.archive import Backup, BackupError
from barograph_collector.backup.restore import JUMP, check_place, jump, put_log
from barograph_collector.lake.archiver import describe
from barograph_collector.lake.catalog import Catalog
from barograph_collector.lake.compaction import Span
from barograph_collector.lake.layout import COLLECTOR, DAY, MARKS, places_of
from barograph_collector.lake.place import Lake
from barograph_collector.storage.connection import StoreError, connect, first_line, transaction
from barograph_collector.storage.database import Database
from barograph_collector.storage.days.archive import FILES, ArchivedFile
from barograph_collector.storage.days.extensions import LakeError
from barograph_collector.storage.days.partitions import Partition, hours
from barograph_collector.storage.days.retention import EPOCH
from barograph_collector.storage.journal import Journal
from barograph_collector.storage.layout import (
    CLASS_HOURS,
    DAILY,
    FOLLOWING,
    JOURNAL,
    LOG_COLUMNS,
    OFFSET,
    STREAMS,
    default,
    quoted,
    restored,
)
from barograph_collector.storage.store import LOG, Store, put_journal
from barograph_collector.storage.text import literal

MAX_NAMED: Final = 20

Days = dict[int, dict[str, list[PurePosixPath]]]
"""Files by day and table."""


def restore_from_lake(
    name: str,
    lake: Lake,
    state: Path,
    *,
    journal: Path | None = None,
    replace: bool = False,
    system: System = SYSTEM,
) -> tuple[Backup, Path | None]:
    """Make what a lake has of a log the log of a state directory; returns what that is, and where an older one is now.

    name: of the log, which no collector has any more. journal: its journal, where that was apart: with it nothing that
    was acknowledged is lost, also where nothing was published yet. replace: whether there may be a log. Raises
    BackupError.
    """
    part = state / f"{LOG}.part"
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_place(state, replace=replace)
        for left in (part, part.with_name(f"{part.name}.wal")):
            left.unlink(missing_ok=True)
        catalog = Catalog(lake, name, state / f"{LOG}.lake.tmp", system)
        try:
            catalog.check(1)  # rather than make a new lake
            catalog.open(0)  # makes tables and columns that an older version did not have
            _fill(catalog, name, part, is_known=journal is not None and _opened(journal, system).owner == name)
        finally:
            catalog.close()
        if journal is None:
            jump(part)
        else:
            with contextlib.closing(Database(part)) as database:
                check_journal(_opened(journal, system), name, database.journal_mark)
        aside = put_log(part, state, replace=replace, system=system)
        if journal is not None:
            put_journal(state, journal, system.disk)
        with Store(state / LOG, system=system, lake=lake.data) as store:
            head = store.head if journal is not None else store.head - JUMP
            return Backup(system.clock.now(), head, store.database.row_counts()), aside
    except (LakeError, StoreError) as error:
        raise BackupError(str(error)) from None
    except duckdb.Error as error:
        raise BackupError(f"cannot read {name} from the lake {lake.data.lake}: {first_line(error)}") from None
    except OSError as error:
        raise BackupError(f"cannot write {error.filename or state}: {error.strerror or error}") from None


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


def _opened(directory: Path, system: System) -> Journal:
    if not directory.is_dir():
        raise BackupError(f"{directory}: not found, expected the journal of the log")
    return Journal(directory, system=system)


def _fill(catalog: Catalog, name: str, part: Path, *, is_known: bool) -> None:
    """is_known: whether there was such a log, although the lake may have nothing of it."""
    with catalog.reading() as positions:
        position = positions.get(name, 0 if is_known else None)
        if position is None:
            known = ", ".join(sorted(positions)[:MAX_NAMED]) or "none"
            raise BackupError(f"{name!r} is no log of the lake {catalog.data.lake}, expected one of: {known}")
    days: Days = defaultdict(lambda: defaultdict(list))
    firsts: dict[int, int] = {}
    for table, path, size in catalog.files():
        if (span := Span.of(path, size, name)) is not None:
            day = (datetime.date.fromisoformat(places_of(table, path.parent)[DAY]) - EPOCH).days
            firsts[day] = min(span.first, firsts.get(day, span.first))
            days[day][table].append(path)
    # As in the log: a day in the future is followed by earlier ones.
    every = sorted(firsts, key=lambda day: (firsts[day], day))
    ended, newest = every[:-1], every[-1] if every else None
    Database(part).close()
    with connect(part) as connection, transaction(connection):
        connection.execute("UPDATE identity SET name = ?", [name])
        for day in ended:
            connection.execute("INSERT INTO partitions VALUES (?, ?, true, true)", [day, firsts[day]])
    hot = None
    with contextlib.closing(Database(part)) as database:
        if newest is not None:
            hot = database.partitions.open(newest, firsts[newest] - 1)
    with catalog.reading():
        connection = catalog.connection
        files = [
            file
            for day in ended
            for table in DAILY
            for file in describe(connection, catalog.data, day, table, days[day][table])
        ]
        connection.execute(f"ATTACH {literal(str(part))} AS log")
        try:
            with transaction(connection):
                _copy(connection, name, position, hot, ended, files)
        finally:
            connection.execute("DETACH log")


def _copy(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    position: int,
    hot: Partition | None,
    ended: list[int],
    files: list[ArchivedFile],
) -> None:
    """Copy rows and marks from `lake` to `log`. hot: the day whose rows are in tables of the log."""
    own = f"{COLLECTOR} = {literal(name)}"
    for table in LOG_COLUMNS:
        if table not in DAILY:
            _insert(connection, table, table, own)
        elif hot is not None:
            _insert(connection, hot.table(table), table, f"{own} AND {DAY} = '{hot.date}'")
    connection.execute(
        f'INSERT INTO log."{STREAMS}" SELECT stream, max(seq), max("{OFFSET}") FROM lake.{MARKS} WHERE {own} GROUP BY 1'
    )
    last = f"SELECT '{JOURNAL}', coalesce(max(seq) FILTER (stream = '{JOURNAL}'), 0), {position}"
    connection.execute(f'INSERT INTO log."{STREAMS}" {last} FROM log."{STREAMS}"')
    for file in files:
        connection.execute(f"INSERT INTO log.{FILES} VALUES ({', '.join('?' * len(file))})", list(file))
    for day in ended:
        date = EPOCH + datetime.timedelta(days=day)
        blocks = f"(SELECT {_columns('blocks')} FROM lake.blocks WHERE {own} AND {DAY} = '{date}')"
        connection.execute(f'INSERT INTO log."{CLASS_HOURS}" {hours(blocks, "log.jobs")}')


def _insert(connection: duckdb.DuckDBPyConnection, target: str, table: str, condition: str) -> None:
    rows = f'SELECT {_columns(table)} FROM lake."{table}" WHERE {condition} ORDER BY "{OFFSET}"'
    connection.execute(f'INSERT INTO log."{target}" ({quoted(LOG_COLUMNS[table])}) {rows}')


def _columns(table: str) -> str:
    """The columns of the log from those of the lake, where one is NULL that follows or is younger than a row."""
    return ", ".join(
        restored(table, column)
        if column == OFFSET or column in FOLLOWING.get(table, {})
        else f'coalesce("{column}", {default(table, column)}) AS "{column}"'
        for column in LOG_COLUMNS[table]
    )
