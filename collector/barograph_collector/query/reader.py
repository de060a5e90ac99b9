"""The reader thread's work: answer reads from the store."""

from __future__ import annotations

import queue
from collections.abc import Callable

import duckdb

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import IDENTIFIER, Kind, Table
from barograph_collector.ingest.streams import Reply
from barograph_collector.storage.layout import OFFSET
from barograph_collector.storage.store import Store

_FURTHEST = 2**62


class ReadWorker:
    """Answers requests one after the other; a None in the queue ends it."""

    def __init__(
        self,
        store: Store,
        requests: queue.SimpleQueue[tuple[bytes, wire.Read] | None],
        reply: Callable[[Reply], None],
        settle: Callable[[], object],
    ) -> None:
        """`settle` waits until what is durable by now can be read."""
        self._store = store
        self._requests = requests
        self._reply = reply
        self._settle = settle

    def run(self) -> None:
        """Work until told to end."""
        while (request := self._requests.get()) is not None:
            peer, read = request
            self._reply(Reply(peer, self.answer(read)))

    def answer(self, read: wire.Read) -> wire.Rows:
        """The rows a read asks for, or the error that says what is wrong with it."""
        try:
            table = wire.table_of(read)
            _check(read, table)
            self._settle()
            page = self._store.read(table.name, read.after, min(read.limit, wire.MAX_ROWS), read.job)
        except wire.Invalid as error:
            return failed(read, str(error))
        except duckdb.Error as error:
            self._store.heard_of(error)
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
