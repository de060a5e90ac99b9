"""The state of each stream, which decides what to do with its next message. No sockets, no database."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barograph_agent.protocol.wire import Ack, FromCollector, Refuse, Welcome

CREDIT: Final = 64
"""Messages of one stream that may be unacknowledged at once."""
MAX_SEQ: Final = 2**63 - 1
STREAMS_KEPT: Final = 100_000
"""Limit of the streams in memory, the most recently used ones; the database has the marks of all."""
_EVICTION_TRIES: Final = 4  # least recently used streams examined for each new one


class StreamDecision(enum.Enum):
    """What to do with a message."""

    ACCEPT = "the next one"
    DUPLICATE = "committed already: acknowledge again"
    UNDER_WAY = "accepted already, not committed yet: its acknowledgement will come"
    CREDIT = "beyond the credit: ignore"
    GAP = "not the next one: refuse"
    UNKNOWN = "not opened on this connection: refuse"


class Reply(NamedTuple):
    """A message for one peer."""

    peer: bytes
    message: FromCollector


@dataclass(slots=True)
class _Stream:
    known: bool = False
    """Whether `stored` was read from the database, after which this state is the newer one."""
    openings: int = 0
    """Unanswered hellos."""
    opener: bytes = b""
    """The connection of the last unanswered hello."""
    stored: int = 0
    committed: int = 0
    accepted: int = 0
    pending: int = 0
    peer: bytes | None = None
    number: int = 0
    """Number of the last hello, repeated in its welcome."""
    welcome_due: bool = False


@dataclass
class Streams:
    """The most recently used streams by name. Belongs to the receive thread.

    The least recently used stream is evicted once all its messages are in the database. A client that is still
    connected must send another hello, for which the state is read from the database.
    """

    limit: int = STREAMS_KEPT
    under_way: int = 0
    """Messages accepted and not committed, of all streams."""
    exhausted: int = 0
    """How often a stream reached its credit."""
    _streams: OrderedDict[str, _Stream] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._streams)

    def is_opening(self, peer: bytes, name: str) -> bool:
        """Whether a hello of this connection is unanswered: a repeated hello needs no answer of its own."""
        stream = self._streams.get(name)
        return stream is not None and stream.openings > 0 and stream.opener == peer

    def begin_opening(self, peer: bytes, name: str) -> bool:
        """Keep the stream in memory until its hello is answered; False where its state must be read from the database.

        `open` or `cancel_opening` follows.
        """
        stream = self._streams.setdefault(name, _Stream())
        stream.openings += 1
        stream.opener = peer
        self._streams.move_to_end(name)
        self._evict()
        return stream.known

    def cancel_opening(self, name: str) -> None:
        """End an opening whose hello was refused."""
        self._streams[name].openings -= 1

    def open(self, peer: bytes, name: str, stored: int, number: int) -> list[Reply]:
        """Assign a stream to this connection and to no other.

        stored: its highest number in the database. number: of the hello, repeated in the welcome.
        The welcome waits until no message of the stream is under way: otherwise a new message of a producer that
        continues at `acked` + 1 could be mistaken for one accepted before.
        """
        stream = self._streams[name]
        stream.openings -= 1
        if not stream.known:
            stream.known = True
            stream.stored = stream.committed = stream.accepted = stored
        stream.peer = peer
        stream.number = number
        stream.welcome_due = True
        return self._welcome(name, stream)

    def judge(self, peer: bytes, name: str, seq: int, *, may_jump: bool = False) -> StreamDecision:
        """What to do with message `seq`. may_jump: true for a skip, whose number need not be the next one."""
        stream = self._streams.get(name)
        if stream is None or stream.peer != peer:
            return StreamDecision.UNKNOWN
        if seq <= stream.committed:
            return StreamDecision.DUPLICATE
        if seq <= stream.accepted:
            return StreamDecision.UNDER_WAY
        if seq > MAX_SEQ or (seq > stream.accepted + 1 and not may_jump):
            return StreamDecision.GAP
        return StreamDecision.CREDIT if stream.pending >= CREDIT else StreamDecision.ACCEPT

    def accept(self, name: str, seq: int) -> None:
        """Record that a message was queued for the journal."""
        stream = self._streams[name]
        stream.accepted = seq
        stream.pending += 1
        self.under_way += 1
        self.exhausted += stream.pending == CREDIT
        self._streams.move_to_end(name)

    def stored(self, name: str, seq: int) -> None:
        """Record that a message is in the database."""
        self._streams[name].stored = seq

    def expected(self, name: str) -> int:
        """The next number of a stream."""
        return self._streams[name].accepted + 1

    def ack(self, peer: bytes, name: str) -> Reply:
        """Acknowledge everything committed so far."""
        return Reply(peer, Ack(name, self._streams[name].committed, CREDIT))

    def committed(self, done: Iterable[tuple[str, int, Refuse | None]]) -> list[Reply]:
        """Record committed messages, in order; returns refusals first, then one cumulative ack per stream."""
        replies: list[Reply] = []
        touched: dict[str, _Stream] = {}
        for name, seq, refusal in done:
            stream = touched[name] = self._streams[name]
            stream.committed = seq
            stream.pending -= 1
            self.under_way -= 1
            if refusal and stream.peer:
                replies.append(Reply(stream.peer, refusal))
        for name, stream in touched.items():
            if stream.welcome_due:
                replies += self._welcome(name, stream)
            elif stream.peer:
                replies.append(self.ack(stream.peer, name))
        return replies

    def _evict(self) -> None:
        for _ in range(_EVICTION_TRIES):
            if len(self._streams) <= self.limit:
                return
            name, stream = self._streams.popitem(last=False)
            if stream.openings or stream.pending or stream.stored < stream.committed:
                self._streams[name] = stream

    def _welcome(self, name: str, stream: _Stream) -> list[Reply]:
        if stream.pending or stream.peer is None:
            return []
        stream.welcome_due = False
        return [Reply(stream.peer, Welcome(name, stream.committed, CREDIT, number=stream.number))]
