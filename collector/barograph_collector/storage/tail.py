"""The tail of the log: durable rows that the database does not have yet, with the offsets that it will give them.

Followers read new rows from here, so the database needs few transactions. The order of the journal decides the offsets:
a collector that is killed before the commit replays the same messages, and its database gives the same offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import numpy as np

from barograph_agent.protocol.tables import TABLES
from barograph_agent.protocol.wire import Column
from barograph_agent.system.threads import THREADS, Threads
from barograph_collector.storage.layout import OFFSET
from barograph_collector.storage.rows import Entry, numbered, numbers, offsets, texts

TAIL_ROWS: Final = 8192
"""Most rows of a tail, less than a page: a round has all of them."""
TAIL_BYTES: Final = 2**20
"""Most bytes of their messages."""


class Tail:
    """Belongs to the writer thread, except `heads` and `read`."""

    def __init__(self, head: int, heads: Mapping[str, int], threads: Threads = THREADS) -> None:
        """head: the offset of the last row in the database. heads: that of each table."""
        self._lock = threads.lock()
        self._entries: dict[str, list[Entry]] = {}
        self._head = head
        self._heads = dict(heads)

    @property
    def heads(self) -> Mapping[str, int]:
        """The offset of the last row of each table, from any thread."""
        return self._heads

    def add(self, entries: Sequence[Entry]) -> None:
        """Add entries behind the others, in the order of the journal."""
        by_table, head, heads = numbered(entries, self._head, self._heads)
        with self._lock:
            for table, new in by_table.items():
                self._entries.setdefault(table, []).extend(new)
            # In this order: up to its heads the tail lacks no row.
            self._head, self._heads = head, heads

    def settle(self, head: int, heads: Mapping[str, int]) -> None:
        """Forget all rows: the database has them, or has been opened anew."""
        with self._lock:
            self._entries = {}
            self._head, self._heads = head, dict(heads)

    def read(self, after: Mapping[str, int]) -> tuple[int, dict[str, dict[str, Column]]]:
        """The rows of some tables beyond their offsets, and the offset up to which there are no others."""
        with self._lock:
            head = self._head
            mine = {table: list(self._entries[table]) for table in after if table in self._entries}
        found = {table: _columns(table, entries, after[table]) for table, entries in mine.items()}
        return head, {table: columns for table, columns in found.items() if len(columns[OFFSET])}

    def of_job(self, table: str, after: int, job: str) -> dict[str, Column]:
        """The rows of a job in a table beyond an offset."""
        with self._lock:
            entries = list(self._entries.get(table, ()))
        of_job = [entry for entry in entries if job in np.atleast_1d(cast("Any", entry.columns["job"]))]
        columns = _columns(table, of_job, after)
        rows = [row for row, name in enumerate(columns.get("job", ())) if name == job]
        return {n: [v[row] for row in rows] if isinstance(v, list) else v[rows] for n, v in columns.items()}


def _columns(table: str, entries: Sequence[Entry], after: int) -> dict[str, Column]:
    new = [entry for entry in entries if entry.first + entry.rows - 1 > after]
    if not new:
        return {OFFSET: np.empty(0, np.int64)}
    columns: dict[str, Column] = {OFFSET: offsets(new)}
    for name, kind in TABLES[table].columns.items():
        columns[name] = texts(new, name) if kind.is_text else numbers(new, name)
    # An offset within an entry: of a client that has read pages before, which end anywhere.
    if (inside := int(np.searchsorted(columns[OFFSET], after, side="right"))) > 0:
        columns = {name: values[inside:] for name, values in columns.items()}
    return columns
