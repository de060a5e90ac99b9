"""What a producer has said and the collector has not acknowledged yet: the interface, and a form that lives in memory.

The form that survives a restart is `spool.Spool`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, Protocol


class Dropped(NamedTuple):
    """Messages given up before they were acknowledged: everything up to `seq`, `rows` rows, and why."""

    seq: int
    rows: int
    reason: str


class Outbox(Protocol):
    """An ordered queue of encoded messages, numbered 1, 2, 3 ... ."""

    @property
    def next_seq(self) -> int:
        """The number the next message must carry."""
        ...

    @property
    def first_seq(self) -> int:
        """The lowest number still held; next_seq when empty."""
        ...

    @property
    def last_seq(self) -> int:
        """The highest number that may be sent."""
        ...

    @property
    def dropped(self) -> Dropped | None:
        """What was given up since the last acknowledgement beyond it, or None."""
        ...

    def put(self, rows: int, frame: bytes) -> None:
        """Hold one more message."""
        ...

    def get(self, seq: int) -> bytes:
        """The message with this number, first_seq <= seq < next_seq."""
        ...

    def rows_in(self, seq: int) -> int:
        """How many rows it was put with."""
        ...

    def ack(self, seq: int) -> int:
        """Forget everything up to seq; returns how many rows that was."""
        ...


class Memory:
    """An outbox for derived data, which its producer can compute again."""

    def __init__(self, next_seq: int = 1, cap_messages: int = 10_000) -> None:
        self._held: OrderedDict[int, tuple[int, bytes]] = OrderedDict()
        self._next_seq = next_seq
        self._cap = cap_messages
        self._dropped: Dropped | None = None

    @property
    def next_seq(self) -> int:
        """The number the next message must carry."""
        return self._next_seq

    @property
    def first_seq(self) -> int:
        """The lowest number still held."""
        return next(iter(self._held), self._next_seq)

    @property
    def last_seq(self) -> int:
        """The highest number held so far."""
        return self._next_seq - 1

    @property
    def dropped(self) -> Dropped | None:
        """What the cap has pushed out, or None."""
        return self._dropped

    def put(self, rows: int, frame: bytes) -> None:
        """Hold one more message; beyond the cap the oldest is given up."""
        self._held[self._next_seq] = (rows, frame)
        self._next_seq += 1
        if len(self._held) > self._cap:
            seq, (lost, _) = self._held.popitem(last=False)
            self._dropped = Dropped(seq, lost + (self._dropped.rows if self._dropped else 0), "memory-cap")

    def get(self, seq: int) -> bytes:
        """The message with this number."""
        return self._held[seq][1]

    def rows_in(self, seq: int) -> int:
        """How many rows it was put with."""
        return self._held[seq][0]

    def ack(self, seq: int) -> int:
        """Forget everything up to seq; returns how many rows that was."""
        rows = 0
        while self._held and next(iter(self._held)) <= seq:
            rows += self._held.popitem(last=False)[1][0]
        if self._dropped and self._dropped.seq <= seq:
            self._dropped = None
        return rows
