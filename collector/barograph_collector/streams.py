"""How far each stream has come, and what that means for the next message of it. No sockets, no database."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from barograph_agent.wire import Ack, FromCollector, Refuse, Welcome

CREDIT: Final = 64
"""Messages of one stream that may be under way at once."""
MAX_SEQ: Final = 2**63 - 1


class Verdict(enum.Enum):
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
    committed: int = 0
    accepted: int = 0
    pending: int = 0
    peer: bytes | None = None
    welcome_due: bool = False


@dataclass
class Streams:
    """The state of every stream, by name. Belongs to the receive thread."""

    _streams: dict[str, _Stream] = field(default_factory=dict)

    @classmethod
    def recovered(cls, high_water: dict[str, int]) -> Streams:
        """Streams as the database has them: committed, and not greeted since."""
        return cls({name: _Stream(seq, seq) for name, seq in high_water.items()})

    def __len__(self) -> int:
        return len(self._streams)

    def retain(self, names: Collection[str]) -> None:
        """Forget the streams that the database has forgotten; one that is connected still has to say hello again."""
        gone = [n for n, stream in self._streams.items() if n not in names and stream.committed and not stream.pending]
        for name in gone:
            del self._streams[name]

    def hello(self, peer: bytes, name: str) -> list[Reply]:
        """Give the stream to this connection, and no other. The welcome waits until nothing of it is under way.

        Otherwise a producer that starts over from `acked` + 1 could have that number taken for one accepted before.
        """
        stream = self._streams.setdefault(name, _Stream())
        stream.peer = peer
        stream.welcome_due = True
        return self._settle(name, stream)

    def judge(self, peer: bytes, name: str, seq: int, *, may_jump: bool = False) -> Verdict:
        """Say what to do with message `seq`; `may_jump` for a skip, which need not be the next one."""
        stream = self._streams.get(name)
        if stream is None or stream.peer != peer:
            return Verdict.UNKNOWN
        if seq <= stream.committed:
            return Verdict.DUPLICATE
        if seq <= stream.accepted:
            return Verdict.UNDER_WAY
        if seq > MAX_SEQ or (seq > stream.accepted + 1 and not may_jump):
            return Verdict.GAP
        return Verdict.CREDIT if stream.pending >= CREDIT else Verdict.ACCEPT

    def accept(self, name: str, seq: int) -> None:
        """Count a message as on its way to the database."""
        stream = self._streams[name]
        stream.accepted = seq
        stream.pending += 1

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
            if refusal and stream.peer:
                replies.append(Reply(stream.peer, refusal))
        for name, stream in touched.items():
            replies += self._settle(name, stream) if stream.welcome_due else self._acks(name, stream)
        return replies

    def _acks(self, name: str, stream: _Stream) -> list[Reply]:
        return [self.ack(stream.peer, name)] if stream.peer else []

    def _settle(self, name: str, stream: _Stream) -> list[Reply]:
        if stream.pending or stream.peer is None:
            return []
        stream.welcome_due = False
        return [Reply(stream.peer, Welcome(name, stream.committed, CREDIT))]
