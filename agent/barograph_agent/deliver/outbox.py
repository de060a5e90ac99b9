"""Outboxes: ordered queues of encoded messages that the collector has not acknowledged yet.

`Memory` keeps the messages in memory; `spool.Spool` keeps them in files and survives a restart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Generic, NamedTuple, TypeVar


class Dropped(NamedTuple):
    """Messages dropped before they were acknowledged: everything up to `seq`, `rows` rows, and why."""

    seq: int
    rows: int
    reason: str


Held = TypeVar("Held")
"""What a kind of outbox stores of a message, beside the number of its rows."""


class Outbox(ABC, Generic[Held]):
    """Messages numbered 1, 2, 3 ... : appended by `put`, read by `get`, removed by `ack` or dropped."""

    def __init__(self, last_seq: int = 0) -> None:
        self.last_seq = last_seq
        """The highest number that may be sent."""
        self.dropped: Dropped | None = None
        """Dropped messages that the collector has not acknowledged as dropped, or None."""
        self._held: OrderedDict[int, tuple[int, Held]] = OrderedDict()
        """Number of rows, and content, by message number."""

    @property
    def next_seq(self) -> int:
        """The number the next message must carry."""
        return self.last_seq + 1

    @property
    def first_seq(self) -> int:
        """The lowest number still held; last_seq + 1 when empty."""
        return next(iter(self._held), self.last_seq + 1)

    @abstractmethod
    def put(self, rows: int, frame: bytes) -> None:
        """Append one message."""

    @abstractmethod
    def get(self, seq: int) -> bytes:
        """The message with this number, first_seq <= seq <= last_seq."""

    def discount(self, seq: int) -> int:
        """Remove the rows of a refused message from the count that `ack` returns; returns how many rows that was."""
        rows, held = self._held.get(seq, (0, None))
        if held is not None:
            self._held[seq] = 0, held
        return rows

    def ack(self, seq: int) -> int:
        """Remove everything up to seq; returns how many rows that was."""
        if self.dropped and self.dropped.seq <= seq:
            self.dropped = None
        return self._remove(seq)

    def _drop(self, seq: int, reason: str) -> None:
        """Remove everything up to seq, and record it in `dropped`."""
        before = self.dropped.rows if self.dropped else 0
        self.dropped = Dropped(seq, before + self._remove(seq), reason)

    def _remove(self, seq: int) -> int:
        rows = 0
        while self._held and next(iter(self._held)) <= seq:
            rows += self._held.popitem(last=False)[1][0]
        return rows


class Memory(Outbox[bytes]):
    """An outbox in memory, for derived data that its producer can recompute. Beyond the cap the oldest is dropped."""

    def __init__(self, next_seq: int = 1, cap_messages: int = 10_000) -> None:
        super().__init__(next_seq - 1)
        self._cap = cap_messages

    def put(self, rows: int, frame: bytes) -> None:
        """Append one message, which may be sent at once."""
        self.last_seq += 1
        self._held[self.last_seq] = (rows, frame)
        if len(self._held) > self._cap:
            self._drop(self.first_seq, "memory-cap")

    def get(self, seq: int) -> bytes:
        """The message with this number."""
        return self._held[seq][1]
