"""Rows for one table of the log, and what makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol


class TableRows(NamedTuple):
    """Rows for one table. intervals: number of the shim's intervals that they represent."""

    table: str
    length: int
    values: dict[str, Any]
    intervals: int = 0


class RowSource(Protocol):
    """A source of rows of a run: rings, kernel, side files, silence, work, nodes."""

    def read(self, now: float, *, final: bool) -> Iterator[TableRows]:
        """The rows since the last call. now: monotonic seconds. final: the last call, as the run ends."""
        ...
