"""Outboxes: ordered queues of encoded messages that the collector has not acknowledged yet.

`Memory` keeps the messages in memory; `spool.Spool` keeps them on disk and survives a restart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Final, Generic, NamedTuple, TypeVar


class Dropped(NamedTuple):
    """Messages dropped before they were acknowledged: everything up to `seq`, `rows` rows, and why."""

    seq: int
    rows: int
    reason: str


class Acked(NamedTuple):
    """Rows that an acknowledgement is for: those that the collector has, and those that it knows to be dropped."""

    stored: int
    dropped: int


MAX_DROP_RECORDS: Final = 128
"""Dropped messages whose rows are known one by one: more than may be under way when they are dropped."""
Stored = TypeVar("Stored")
"""What a kind of outbox stores of a message, beside the number of its rows."""


class Outbox(ABC, Generic[Stored]):
    """Messages numbered 1, 2, 3 ... : appended by `put`, read by `get`, removed by `ack` or dropped."""

    def __init__(self, last_seq: int = 0) -> None:
        self.last_seq = last_seq
        """The highest number that may be sent."""
        self._pieces: list[tuple[int, int]] = []
        """Dropped messages that are not acknowledged: the rows of all up to a number and beyond the one before."""
        self._reason = ""
        self._reported = 0
        """Pieces that `report_dropped` has returned."""
        self._held: OrderedDict[int, tuple[int, Stored]] = OrderedDict()
        """Number of rows, and content, by message number."""

    @property
    def next_seq(self) -> int:
        """The number the next message must carry."""
        return self.last_seq + 1

    @property
    def rows(self) -> int:
        """Rows of the messages that are held."""
        return sum(rows for rows, _ in list(self._held.values()))

    @property
    def dropped(self) -> Dropped | None:
        """Dropped messages that the collector has not acknowledged, or None."""
        if not self._pieces:
            return None
        return Dropped(self._pieces[-1][0], sum(rows for _, rows in self._pieces), self._reason)

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

    def report_dropped(self) -> Dropped | None:
        """`dropped`, for a report to the collector, while no other message is under way."""
        self._reported = len(self._pieces)
        return self.dropped

    def ack(self, seq: int) -> Acked:
        """Remove everything up to seq. A message that was dropped while it was under way may have been stored."""
        stored = dropped = done = 0
        for number, rows in self._pieces:
            if number > seq:
                break
            stored, dropped = (stored, dropped + rows) if done < self._reported else (stored + rows, dropped)
            done += 1
        del self._pieces[:done]
        self._reported = max(self._reported - done, 0)
        return Acked(stored + self._remove(seq), dropped)

    def _drop(self, seq: int, reason: str) -> None:
        """Remove everything up to seq, and record it in `dropped`."""
        self._reason = reason
        while self._held and next(iter(self._held)) <= seq:
            self._add_piece(*self._pop())
        if not self._pieces or self._pieces[-1][0] < seq:
            self._add_piece(seq, 0)

    def _add_piece(self, number: int, rows: int) -> None:
        if len(self._pieces) > max(MAX_DROP_RECORDS, self._reported):
            rows += self._pieces.pop()[1]
        self._pieces.append((number, rows))

    def _remove(self, seq: int) -> int:
        rows = 0
        while self._held and next(iter(self._held)) <= seq:
            rows += self._pop()[1]
        return rows

    def _pop(self) -> tuple[int, int]:
        """Remove the first message; returns its number and rows."""
        number, (rows, _) = self._held.popitem(last=False)
        return number, rows


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
