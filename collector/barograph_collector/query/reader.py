"""Reads: a page of one table, or a round of several."""

from __future__ import annotations

from collections.abc import Callable

import duckdb

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import IDENTIFIER, Kind, Table
from barograph_collector.storage.days.archive import LakeAway
from barograph_collector.storage.store import Store

_FURTHEST = 2**62
UNSETTLED = "the newest rows are missing, which the database is slow to take."


def answer_read(store: Store, settle: Callable[[bool], bool], read: wire.Read) -> wire.Rows | wire.Result:
    """The rows that a read asks for, or the error in it. `settle` waits until durable rows are in the database or,
    called with False, in the tail.

    A round has the rows of the database as it is: rows that are on their way to it are news to the next round.
    """
    try:
        if read.tables is not None:
            return _read_round(store, read, read.tables)
        table = wire.table_named(read.table)
        _check_page(read, table)
        is_settled = settle(not read.job)  # agents ask for their job again and again
        page = store.read(table.name, read.after, min(read.limit, wire.MAX_ROWS), read.job)
    except (wire.Invalid, LakeAway) as error:
        return failed(read, str(error))
    except duckdb.Error as error:
        store.note_error(error)
        if read.tables is not None:
            settle(True)  # wakes up the writer, which opens the database again
        return failed(read, f"the database could not answer: {error}")
    columns = wire.pack(page.columns, wire.READ_KINDS[table.name])
    note = page.note if is_settled else f"{UNSETTLED} {page.note}".rstrip()
    return wire.Rows(read.request, table.name, page.rows, columns, page.next_offset, note=note[:500])


def failed(request: wire.Read | wire.Sql, error: str) -> wire.Rows | wire.Result:
    """An answer without rows."""
    if isinstance(request, wire.Sql):
        return wire.Result(request.request, b"", 0, False, error[:2000])
    return wire.Rows(request.request, request.table[:128], 0, {}, request.after, error[:500])


def _read_round(store: Store, read: wire.Read, offsets: dict[str, int]) -> wire.Rows:
    _check_limit(read)
    for table, after in offsets.items():
        wire.table_named(table)
        if not 0 <= after <= _FURTHEST:
            raise wire.Invalid(f"after of table {table!r} is {after}, expected 0 to {_FURTHEST}")
    upto, tables = store.read_round(offsets, min(read.limit, wire.MAX_ROWS))
    rows = sum(len(columns["log_offset"]) for columns in tables.values())
    packed = {table: wire.pack(columns, wire.READ_KINDS[table]) for table, columns in tables.items()}
    return wire.Rows(read.request, "", rows, packed, upto)


def _check_page(read: wire.Read, table: Table) -> None:
    _check_limit(read)
    if not -_FURTHEST <= read.after <= _FURTHEST:
        raise wire.Invalid(f"after is {read.after}, expected {-_FURTHEST} to {_FURTHEST}")
    if read.job and "job" not in table.columns:
        raise wire.Invalid(f"table {table.name!r} has no column 'job', expected no job but got {read.job[:140]!r}")
    if read.job and not IDENTIFIER.fullmatch(read.job):
        raise wire.Invalid(f"job is {read.job[:140]!r}, expected {Kind.NAME.text}")


def _check_limit(read: wire.Read) -> None:
    if read.limit < 1:
        raise wire.Invalid(f"limit is {read.limit}, expected 1 to {wire.MAX_ROWS}")
