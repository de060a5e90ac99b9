"""A collector's log without sockets: the same messages, checks and DuckDB file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barograph_agent.protocol import wire
from barograph_collector.client.log_reader import Round
from barograph_collector.storage.messages import appended
from barograph_collector.storage.pages import LogPage
from barograph_collector.storage.store import Store


class ReplayLog:
    """Append and read on a file in `directory`, for one thread."""

    def __init__(self, directory: Path) -> None:
        self._store = Store(directory / "log.duckdb")
        self._seq = 0

    def put(self, table: str, rows: int, columns: Mapping[str, Any]) -> None:
        """Append rows synchronously. Raises wire.Invalid for rows that the collector would refuse."""
        self._seq += 1
        frame = wire.encode(wire.append("replay", self._seq, table, rows, columns))
        message = wire.decode_from_client(frame)
        assert isinstance(message, wire.Append)
        entry = appended(message, frame, 0.0)
        if entry.refusal is not None:
            raise wire.Invalid(entry.refusal.detail)
        self._store.commit([entry], {entry.stream: entry.seq})

    @property
    def idle(self) -> bool:
        """True: rows are appended at once."""
        return True

    def pump(self) -> None:
        """Do nothing: `put` is synchronous."""

    def read(self, table: str, after: int, limit: int = wire.MAX_ROWS, job: str = "") -> LogPage:
        """At most `limit` rows of `table` with offset > `after`."""
        return self._store.read(table, after, limit, job)

    def follow(self, offsets: Mapping[str, int], limit: int, seconds: float) -> Round:
        """The next round of some tables, at once."""
        return self._store.read_round(offsets, limit)

    def close(self) -> None:
        """Close the file."""
        self._store.close()
