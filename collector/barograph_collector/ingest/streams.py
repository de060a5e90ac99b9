"""How far each stream has come, and what that means for the next message of it. No sockets, no database."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barograph_agent.protocol.wire import Ack, FromCollector, Refuse, Welcome

CREDIT: Final = 64
"""Messages of one stream that may be under way at once."""
MAX_SEQ: Final = 2**63 - 1
STREAMS_KEPT: Final = 100_000
"""Streams held in memory, those that spoke last; the database knows all of them."""
_LOOKED_AT: Final = 4  # streams that may have to stay, for each that comes


class StreamDecision(enum.Enum):
    """What to do with a message."""

    ACCEPT = "the next one"
    DUPLICATE = "committed already: acknowledge again"
    UNDER_WAY = "accepted already, not committed yet: its acknowledgement will come"
    CREDIT = "beyond the credit: ignore"
    GAP = "not the next one: refuse"
    UNKNOWN = "not greeted on this connection: refuse"


class Reply(NamedTuple):
    """A message for one peer."""

    peer: bytes
    message: FromCollector


@dataclass(slots=True)
class _Stream:
    known: bool = False
    """Whether the database has been asked about it, since when this is the newer answer."""
    greetings: int = 0
    greeter: bytes = b""
    """Who said the last of those."""
    stored: int = 0
    committed: int = 0
    accepted: int = 0
    pending: int = 0
    peer: bytes | None = None
    number: int = 0
    """Of the hello to be answered."""
    welcome_due: bool = False


@dataclass
class Streams:
    """The state of the streams that spoke last, by name. Belongs to the receive thread.

    One that has long said nothing is forgotten here, but not before everything of it is in the database, which is asked
    when it comes back. If it is still connected, it has to say hello again.
    """

    limit: int = STREAMS_KEPT
    under_way: int = 0
    """Messages accepted and not committed, of all streams."""
    exhausted: int = 0
    """Times that a stream had as many of them as it may."""
    _streams: OrderedDict[str, _Stream] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._streams)

    def is_expected(self, peer: bytes, name: str) -> bool:
        """Whether a greeting by this connection waits to be answered: one answer is enough."""
        stream = self._streams.get(name)
        return stream is not None and stream.greetings > 0 and stream.greeter == peer

    def expect(self, peer: bytes, name: str) -> bool:
        """Hold the stream until its greeting has been answered; False where the database has to be asked about it."""
        stream = self._streams.setdefault(name, _Stream())
        stream.greetings += 1
        stream.greeter = peer
        self._streams.move_to_end(name)
        self._forget()
        return stream.known

    def turn_away(self, name: str) -> None:
        """Answer the greeting of a stream that was expected by nothing."""
        self._streams[name].greetings -= 1

    def hello(self, peer: bytes, name: str, stored: int, number: int) -> list[Reply]:
        """Give a stream that was expected to this connection, and no other.

        `stored` is how far the database has it, `number` the hello's, which the welcome repeats.
        The welcome waits until nothing of it is under way: a producer that starts over from `acked` + 1 could have that
        number taken for one accepted before.
        """
        stream = self._streams[name]
        stream.greetings -= 1
        if not stream.known:
            stream.known = True
            stream.stored = stream.committed = stream.accepted = stored
        stream.peer = peer
        stream.number = number
        stream.welcome_due = True
        return self._settle(name, stream)

    def judge(self, peer: bytes, name: str, seq: int, *, may_jump: bool = False) -> StreamDecision:
        """Say what to do with message `seq`; `may_jump` for a skip, which need not be the next one."""
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
        """Count a message as on its way to the database."""
        stream = self._streams[name]
        stream.accepted = seq
        stream.pending += 1
        self.under_way += 1
        self.exhausted += stream.pending == CREDIT
        self._streams.move_to_end(name)

    def stored(self, name: str, seq: int) -> None:
        """Take note of a message that is in the database."""
        self._streams[name].stored = seq

    def expected(self, name: str) -> int:
        """The number that comes next."""
        return self._streams[name].accepted + 1

    def ack(self, peer: bytes, name: str) -> Reply:
        """Acknowledge everything committed so far."""
        return Reply(peer, Ack(name, self._streams[name].committed, CREDIT))

    def committed(self, done: Iterable[tuple[str, int, Refuse | None]]) -> list[Reply]:
        """Take note of committed messages, in order; answers refusals first, then one cumulative ack per stream."""
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
            replies += self._settle(name, stream) if stream.welcome_due else self._acks(name, stream)
        return replies

    def _forget(self) -> None:
        for _ in range(_LOOKED_AT):
            if len(self._streams) <= self.limit:
                return
            name, stream = self._streams.popitem(last=False)
            if stream.greetings or stream.pending or stream.stored < stream.committed:
                self._streams[name] = stream

    def _acks(self, name: str, stream: _Stream) -> list[Reply]:
        return [self.ack(stream.peer, name)] if stream.peer else []

    def _settle(self, name: str, stream: _Stream) -> list[Reply]:
        if stream.pending or stream.peer is None:
            return []
        stream.welcome_due = False
        return [Reply(stream.peer, Welcome(name, stream.committed, CREDIT, number=stream.number))]
