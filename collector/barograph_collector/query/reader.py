"""Reads: a page of one table, for daemons."""

from __future__ import annotations

from collections.abc import Callable

import duckdb

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import IDENTIFIER, Kind, Table
from barograph_collector.storage.layout import OFFSET
from barograph_collector.storage.store import Store

_FURTHEST = 2**62


def read_page(store: Store, settle: Callable[[], object], read: wire.Read) -> wire.Rows:
    """The rows that a read asks for, or the error in it. `settle` waits until durable rows are in the database."""
    try:
        table = wire.table_of(read)
        _check(read, table)
        settle()
        page = store.read(table.name, read.after, min(read.limit, wire.MAX_ROWS), read.job)
    except wire.Invalid as error:
        return failed(read, str(error))
    except duckdb.Error as error:
        store.note_error(error)
        return failed(read, f"the database could not answer: {error}")
    kinds = {OFFSET: Kind.I64, **table.columns}
    return wire.Rows(read.request, table.name, page.rows, wire.pack(page.columns, kinds), page.next_offset)


def failed(read: wire.Read, error: str) -> wire.Rows:
    """An answer without rows."""
    return wire.Rows(read.request, read.table[:128], 0, {}, read.after, error[:500])


def _check(read: wire.Read, table: Table) -> None:
    if read.limit < 1:
        raise wire.Invalid(f"limit is {read.limit}, expected 1 to {wire.MAX_ROWS}")
    if not -_FURTHEST <= read.after <= _FURTHEST:
        raise wire.Invalid(f"after is {read.after}, expected {-_FURTHEST} to {_FURTHEST}")
    if read.job and "job" not in table.columns:
        raise wire.Invalid(f"table {table.name!r} has no column 'job', expected no job but got {read.job[:140]!r}")
    if read.job and not IDENTIFIER.fullmatch(read.job):
        raise wire.Invalid(f"job is {read.job[:140]!r}, expected {Kind.NAME.text}")
