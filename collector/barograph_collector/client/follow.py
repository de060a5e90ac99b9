"""Following the log: reading new rows of several tables in order, and appending derived rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import zmq

from barograph_agent.deliver.keys import ClientKey
from barograph_agent.deliver.link import Link
from barograph_agent.deliver.outbox import Memory
from barograph_agent.protocol import wire
from barograph_agent.protocol.wire import Column
from barograph_agent.system.system import SYSTEM, System
from barograph_collector.client.log_reader import Round

Rows: TypeAlias = tuple[str, Mapping[str, Column]]
"""A table's name and some of its rows as columns, `offset` among them."""


class LogReading(Protocol):
    """What a follower reads from, such as LogReader."""

    def follow(self, offsets: Mapping[str, int], limit: int, seconds: float) -> Round | None:
        """A round of some tables, waited for at most `seconds`; None while it is awaited."""
        ...


class Follower:
    """Reads new rows of several tables in rounds, in the order of the log.

    At the end of each round all rows of these tables up to some offset have been returned. So the end of a run never
    comes in an earlier round than its intervals, neither live nor when years of log are read again after a restart.

    tables: in the order in which a round returns them. offsets: up to where each table was read. delivered: the offset
    of the last row of each table that was returned, 0 for none.
    """

    def __init__(self, reader: LogReading, tables: Sequence[str], page: int = 10_000) -> None:
        """page: most rows of a table in a round."""
        self.offsets = dict.fromkeys(tables, 0)
        self.delivered = dict.fromkeys(tables, 0)
        self._reader = reader
        self._page = page

    def resume(self, offsets: Mapping[str, int]) -> None:
        """Continue from offsets that `delivered` had, for the same tables, before the first poll."""
        self.offsets.update(offsets)
        self.delivered.update(offsets)

    def poll(self) -> Iterator[list[Rows]]:
        """Rounds of new rows up to the present end. Raises LogUnavailable; rounds returned before count as read."""
        while found := self.read(0.0):
            yield found

    def read(self, seconds: float) -> list[Rows] | None:
        """The next round, empty where no row has come within `seconds`; None while it is awaited, as by `LogReader`.

        Raises LogUnavailable and ReadRefused.
        """
        found = self._reader.follow(self.offsets, self._page, seconds)
        if found is None:
            return None
        upto, rows = found
        self.offsets = {table: max(offset, upto) for table, offset in self.offsets.items()}
        self.delivered.update({table: int(columns["log_offset"][-1]) for table, columns in rows.items()})
        return [(table, rows[table]) for table in self.offsets if table in rows]


class LogWriter:
    """A producer of rows that can be computed again: they are in memory until acknowledged."""

    def __init__(self, endpoint: str, stream: str, key: ClientKey | None = None, system: System = SYSTEM) -> None:
        self._outbox = Memory()
        self.link = Link(endpoint, stream, self._outbox, key=key, system=system)

    def put(self, table: str, rows: int, columns: Mapping[str, Any]) -> None:
        """Queue rows; `pump` sends them."""
        message = wire.append(self.link.stream, self._outbox.next_seq, table, rows, columns)
        self._outbox.put(rows, wire.encode(message))

    @property
    def rows(self) -> int:
        """Rows that are not acknowledged."""
        return self._outbox.rows

    def pump(self) -> None:
        """Send and receive what is possible without waiting."""
        self.link.pump()

    def register(self, poller: zmq.Poller) -> None:
        """Let a poller wait for acknowledgements."""
        self.link.register(poller)

    @property
    def idle(self) -> bool:
        """True once all rows are acknowledged."""
        return self.link.idle

    def close(self, seconds: float) -> bool:
        """Wait at most `seconds` until all rows are acknowledged, and disconnect. Returns whether they are."""
        delivered = self.link.wait_idle(seconds)
        self.link.close()
        return delivered
