"""Following the log: what a daemon that lives on its rows reads, and how it says something back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from barograph_agent.deliver.keys import ClientKey
from barograph_agent.deliver.link import Link
from barograph_agent.deliver.outbox import Memory
from barograph_agent.protocol import wire
from barograph_agent.protocol.wire import Column

Rows: TypeAlias = tuple[str, Mapping[str, Column]]
"""A table's name and some of its rows as columns, `offset` among them."""


class RowPage(Protocol):
    """Rows as the log gives them back."""

    @property
    def columns(self) -> Mapping[str, Column]:
        """Arrays and lists by column name."""
        ...

    @property
    def rows(self) -> int:
        """How many."""
        ...

    @property
    def next_offset(self) -> int:
        """Where to read on."""
        ...


class LogReading(Protocol):
    """The reading verb of the log, as LogReader has it."""

    def read(self, table: str, after: int, limit: int = ..., job: str = ...) -> RowPage:
        """At most `limit` rows with an offset above `after`."""
        ...


class Follower:
    """Reads tables on from where it stands, in the order of the log.

    tables: in the order in which a round hands them over. Rows come in rounds, and what came by the end of a round is
    everything the log holds up to some offset: a run's end never comes in an earlier round than its intervals,
    neither live nor when years are read again after a restart.

    offsets: where each table is read on, ahead of what was handed over. delivered: the last row of each table that was
    handed over, 0 for none: where to resume for what the rounds so far have led to.
    """

    def __init__(self, reader: LogReading, tables: Sequence[str], page: int = 10_000) -> None:
        self.offsets = dict.fromkeys(tables, 0)
        self.delivered = dict.fromkeys(tables, 0)
        self._reader = reader
        self._page = page
        self._held: dict[str, Mapping[str, Column]] = {}

    def resume(self, offsets: Mapping[str, int]) -> None:
        """Read on from offsets that `delivered` gave, for the same tables, before the first poll."""
        self.offsets.update(offsets)
        self.delivered.update(offsets)

    def poll(self) -> Iterator[list[Rows]]:
        """Rounds of new rows up to the present end. Raises LogUnavailable; rounds given by then count as read."""
        while True:
            self._fill()
            if not self._held:
                return
            # Behind the last row of a page more may stand, so nothing beyond the first page's end is safe yet.
            horizon = min(int(columns["offset"][-1]) for columns in self._held.values())
            yield [(table, rows) for table in self.offsets if (rows := self._up_to(table, horizon)) is not None]

    def _fill(self) -> None:
        # The other way round than handed over: what a row refers to is read after it, and so cannot be missing.
        for table in reversed(self.offsets):
            if table not in self._held:
                page = self._reader.read(table, self.offsets[table], self._page)
                if page.rows:
                    self._held[table] = page.columns
                    self.offsets[table] = page.next_offset

    def _up_to(self, table: str, horizon: int) -> Mapping[str, Column] | None:
        columns = self._held.get(table)
        if columns is None:
            return None
        count = int(np.searchsorted(np.asarray(columns["offset"]), horizon, side="right"))
        if count == 0:
            return None
        self.delivered[table] = int(columns["offset"][count - 1])
        if count == len(columns["offset"]):
            return self._held.pop(table)
        self._held[table] = {name: values[count:] for name, values in columns.items()}
        return {name: values[:count] for name, values in columns.items()}


class LogWriter:
    """The appending verb for derived rows: held in memory until acknowledged, computed again after a restart."""

    def __init__(self, endpoint: str, stream: str, key: ClientKey | None = None) -> None:
        self._outbox = Memory()
        self.link = Link(endpoint, stream, self._outbox, key=key)

    def put(self, table: str, rows: int, columns: Mapping[str, Any]) -> None:
        """Append rows, soon."""
        message = wire.append(self.link.stream, self._outbox.next_seq, table, rows, columns)
        self._outbox.put(rows, wire.encode(message))

    def pump(self) -> None:
        """Send and receive what can be without waiting."""
        self.link.pump()

    @property
    def idle(self) -> bool:
        """True once everything put so far is acknowledged."""
        return self.link.idle

    def close(self, seconds: float) -> bool:
        """Deliver what is held, for at most this long, and let go; says whether all of it was delivered."""
        delivered = self.link.wait_idle(seconds)
        self.link.close()
        return delivered
