"""Following the log: what a daemon that lives on its rows reads, and how it says something back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from barograph_agent import wire
from barograph_agent.link import Link
from barograph_agent.outbox import Memory
from barograph_agent.wire import Column


class Page(Protocol):
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


class Reader(Protocol):
    """The reading verb of the log, as LogReader has it."""

    def read(self, table: str, after: int, limit: int = ..., job: str = ...) -> Page:
        """At most `limit` rows with an offset above `after`."""
        ...


class Follower:
    """Reads tables on from where it stands, in the order given, each to its present end.

    A row of an earlier table may refer to rows of a later one: when `poll` is through, those have been given too.
    """

    def __init__(self, reader: Reader, tables: Sequence[str], page: int = 10_000) -> None:
        self.offsets = dict.fromkeys(tables, 0)
        self._reader = reader
        self._page = page

    def poll(self) -> Iterator[tuple[str, Mapping[str, Column]]]:
        """Every new row, as (table, columns) in pages. Raises LogUnavailable; what was given by then counts as read."""
        for table, offset in self.offsets.items():
            after = offset
            while (page := self._reader.read(table, after, self._page)).rows:
                after = page.next_offset
                self.offsets[table] = after
                yield table, page.columns


class Writer:
    """The appending verb for derived rows: held in memory until acknowledged, computed again after a restart."""

    def __init__(self, endpoint: str, stream: str) -> None:
        self._outbox = Memory()
        self.link = Link(endpoint, stream, self._outbox)

    def put(self, table: str, rows: int, columns: Mapping[str, Any]) -> None:
        """Append rows, soon."""
        message = wire.append(self.link.stream, self._outbox.next_seq, table, rows, columns)
        self._outbox.put(rows, wire.encode(message))

    def pump(self) -> None:
        """Send and receive what can be without waiting."""
        self.link.pump()

    def close(self, seconds: float) -> None:
        """Deliver what is held, for at most this long, and let go."""
        self.link.wait_idle(seconds)
        self.link.close()
