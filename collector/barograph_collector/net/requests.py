"""Hellos and requests: what arrives and is no row. Part of the receive thread; others answer what takes time."""

from __future__ import annotations

import queue
from collections import Counter
from typing import Final

from barograph_agent.protocol import wire
from barograph_collector.auth.authenticator import HelloRejected, HelloRequest
from barograph_collector.auth.authorization import Authorization, Refused
from barograph_collector.auth.credentials import Claim
from barograph_collector.ingest.counters import Counters
from barograph_collector.ingest.streams import Reply, Streams
from barograph_collector.net.penalties import HELLO, RejectionLimiter
from barograph_collector.net.router_socket import RouterSocket
from barograph_collector.query import reader, sql
from barograph_collector.storage import messages

READS_WAITING: Final = 256
QUERIES_WAITING: Final = 16
GREETINGS_WAITING: Final = 20_000
REQUESTS_OF_ONE: Final = 4
"""Reads and queries of one connection that wait for their answers at once."""


class RequestRouter:
    """Opens streams to who may have them, and passes reads and queries on to who answers them."""

    def __init__(
        self,
        door: RouterSocket,
        streams: Streams,
        admission: Authorization,
        counters: Counters,
        patience: RejectionLimiter,
        *,
        reads: queue.SimpleQueue[tuple[bytes, wire.Read] | None],
        queries: queue.SimpleQueue[tuple[bytes, wire.Sql] | None],
        greetings: queue.SimpleQueue[HelloRequest | None],
    ) -> None:
        self._door = door
        self._streams = streams
        self._admission = admission
        self._counters = counters
        self._patience = patience
        self._unanswered: Counter[bytes] = Counter()
        self._reads = reads
        self._queries = queries
        self._greetings = greetings

    def greet(self, peer: bytes, key: str, hello: wire.Hello) -> None:
        """Open a stream at once, or once its credential, and the database about it, have been looked at."""
        try:
            if hello.version != wire.VERSION:
                raise Refused("version", f"version is {hello.version}, expected {wire.VERSION}")
            messages.check_stream(hello.stream)
            greeting = HelloRequest(peer, key, hello, self._admission.needs_proof(key))
            # To look at a credential may mean to ask MUNGE.
            self._patience.spend(peer, 1.0 if greeting.needs_proof else HELLO)
            if self._greetings.qsize() >= GREETINGS_WAITING:
                raise Refused("rate", "too many hellos are waiting, say it again later")
            if self._streams.is_expected(peer, hello.stream):
                return
            known = self._streams.expect(peer, hello.stream)
            if known and not greeting.needs_proof:
                self.open(greeting, None, 0)
            else:
                self._greetings.put(greeting)
        except Refused as error:
            self._turn_away(peer, hello, error.reason, str(error))
        except wire.Invalid as error:
            self._turn_away(peer, hello, "invalid", str(error))

    def open(self, greeting: HelloRequest, claim: Claim | HelloRejected | None, stored: int) -> None:
        """Open a stream; `claim` is what its credential said, None where none is asked for.

        `stored` is how far the database has it.
        """
        peer, key, hello, _ = greeting
        try:
            if isinstance(claim, HelloRejected):
                raise Refused(claim.reason, claim.text)
            self._admission.open(peer, key, hello.stream, claim)
        except Refused as error:
            self._streams.turn_away(hello.stream)
            self._turn_away(peer, hello, error.reason, str(error))
            return
        for reply in self._streams.hello(peer, hello.stream, stored, hello.number):
            self._door.send(*reply)

    def pass_on(self, peer: bytes, key: str, request: wire.Read | wire.Sql) -> None:
        """Queue a request for the thread that answers its kind."""
        try:
            self._admission.check_read(peer, key, request)
            self._pass_on(peer, request)
        except Refused as error:
            self._counters.rejected[error.reason] += 1
            self._patience.spend(peer)
            self._door.send(peer, _unanswered(request, str(error)))

    def pass_back(self, answer: Reply) -> None:
        """Send what came of a request that was passed on."""
        self._unanswered[answer.peer] -= 1
        if not self._unanswered[answer.peer]:
            del self._unanswered[answer.peer]
        self._door.send(*answer)

    def _pass_on(self, peer: bytes, request: wire.Read | wire.Sql) -> None:
        if self._unanswered[peer] >= REQUESTS_OF_ONE:
            raise Refused("rate", f"{REQUESTS_OF_ONE} requests of this connection are waiting, ask again later")
        match request:
            case wire.Read() if self._reads.qsize() < READS_WAITING:
                self._reads.put((peer, request))
            case wire.Sql() if self._queries.qsize() < QUERIES_WAITING:
                self._queries.put((peer, request))
            case _:
                raise Refused("rate", "too many of its kind are waiting, ask again later")
        self._unanswered[peer] += 1

    def _turn_away(self, peer: bytes, hello: wire.Hello, reason: str, detail: str) -> None:
        self._patience.spend(peer)
        self.refuse(peer, hello.stream, 0, reason, detail)

    def refuse(self, peer: bytes, stream: str, seq: int, reason: str, detail: str) -> None:
        """Count a message that is not taken, and say so; `seq` is 0 for a hello."""
        self._counters.rejected[reason] += 1
        self._door.send(peer, wire.Refuse(stream[:128], seq, reason, detail))

    def end(self) -> None:
        """Nothing more will be passed on."""
        for waiting in (self._reads, self._queries, self._greetings):
            waiting.put(None)


def _unanswered(request: wire.Read | wire.Sql, error: str) -> wire.FromCollector:
    return sql.refused(request, error) if isinstance(request, wire.Sql) else reader.failed(request, error)
