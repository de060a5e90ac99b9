"""Routing of hellos, reads and queries, in the receive thread, which never blocks."""

from __future__ import annotations

import math
import queue
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from barograph_agent.protocol import wire
from barograph_collector.auth.authenticator import HelloRequest
from barograph_collector.auth.authorization import Authorization, Claim, Refused
from barograph_collector.auth.rate_limit import TokenBuckets
from barograph_collector.ingest.counters import Counters
from barograph_collector.ingest.intake import Intake
from barograph_collector.ingest.streams import Reply, Streams
from barograph_collector.net.answerer import Answerer
from barograph_collector.net.final_scores import FinalScores
from barograph_collector.net.router_socket import RouterSocket
from barograph_collector.net.waiting_reads import WaitingRead, WaitingReads
from barograph_collector.query import reader, sql
from barograph_collector.storage import messages
from barograph_collector.storage.rows import CheckedRows

READS_WAITING: Final = 256
QUERIES_WAITING: Final = 16
HELLOS_WAITING: Final = 20_000
MAX_CREDENTIAL: Final = 8_192
"""Characters. A credential of MUNGE has some hundred; hellos that wait for the authenticator are in memory."""
REQUESTS_OF_ONE: Final = 4
"""Reads and queries of one connection that may be unanswered at once."""
REJECTED_PER_SECOND: Final = 100.0
"""Limit on the rejected and duplicate messages of a connection, on average; `rate_limit.BURST_SECONDS` times that at
once. ZeroMQ cannot close one connection of a socket, so messages beyond the limit are received and dropped unread. To a
client they look lost: it sends hello after a timeout, and resends."""
HELLO_COST: Final = 0.1
"""Cost of a hello in rejected messages: an import opens thousands of streams, one for each run."""
_TOO_MANY: Final = "too many of its kind are waiting, ask again later"


class RequestRouter:
    """Opens streams, and passes reads and queries to the threads that answer them."""

    def __init__(
        self,
        socket: RouterSocket,
        streams: Streams,
        admission: Authorization,
        counters: Counters,
        limiter: TokenBuckets,
        *,
        reads: Answerer[wire.Read],
        rounds: Answerer[wire.Read],
        intake: Intake,
        waits: Sequence[WaitingReads],
        finals: FinalScores,
        queries: Answerer[wire.Sql],
        hellos: queue.SimpleQueue[HelloRequest | None],
    ) -> None:
        self._socket = socket
        self._streams = streams
        self._admission = admission
        self._counters = counters
        self._limiter = limiter
        self._unanswered: Counter[bytes] = Counter()
        self._reads = reads
        self._rounds = rounds
        self._intake = intake
        self._waits = waits
        self._finals = finals
        self._queries = queries
        self._hellos = hellos

    def route_hello(self, peer: bytes, key: str, hello: wire.Hello) -> None:
        """Open a stream; through the authenticator where a credential or the database is to be consulted."""
        try:
            if hello.version != wire.VERSION:
                raise Refused("version", f"version is {hello.version}, expected {wire.VERSION}")
            messages.check_stream(hello.stream)
            if len(hello.credential) > MAX_CREDENTIAL:
                size = len(hello.credential)
                raise Refused("credential", f"credential has {size} characters, expected at most {MAX_CREDENTIAL}")
            request = HelloRequest(peer, key, hello, self._admission.needs_credential(key))
            # Verifying a credential may take a request to MUNGE.
            self._limiter.consume(peer, 1.0 if request.needs_credential else HELLO_COST)
            if (withheld := self._intake.withheld()) is not None:
                raise Refused(*withheld)
            if self._hellos.qsize() >= HELLOS_WAITING:
                raise Refused("rate", "too many hellos are waiting, send it again later")
            if self._streams.is_opening(peer, hello.stream):
                return
            known = self._streams.begin_opening(peer, hello.stream)
            if known and not request.needs_credential:
                self.open_stream(request, None, 0)
            else:
                self._hellos.put(request)
        except Refused as error:
            self._refuse_hello(peer, hello, error.reason, str(error))
        except wire.Invalid as error:
            self._refuse_hello(peer, hello, "invalid", str(error))

    def open_stream(self, request: HelloRequest, claim: Claim | Refused | None, stored: int) -> None:
        """Open a stream, or refuse it. claim, stored: results of the authenticator."""
        peer, key, hello, _ = request
        try:
            if isinstance(claim, Refused):
                raise claim
            self._admission.open(peer, key, hello.stream, claim)
        except Refused as error:
            self._streams.cancel_opening(hello.stream)
            self._refuse_hello(peer, hello, error.reason, str(error))
            return
        for reply in self._streams.open(peer, hello.stream, stored, hello.number):
            self._socket.send(*reply)

    def route_request(self, peer: bytes, key: str, request: wire.Read | wire.Sql) -> None:
        """Queue a request for the threads that answer its kind, or let it wait for rows."""
        try:
            self._admission.check_read(peer, key, request)
            if not math.isfinite(request.seconds):
                raise Refused("invalid", f"seconds is {request.seconds}, expected a finite number")
            if self._unanswered[peer] >= REQUESTS_OF_ONE:
                raise Refused("rate", f"{REQUESTS_OF_ONE} requests of this connection are waiting, ask again later")
            if isinstance(request, wire.Sql):
                queued = self._queries.put(peer, request)
            elif (waits := next((waits for waits in self._waits if waits.must_wait(request)), None)) is not None:
                self._answer(waits.add(peer, key, request))
                queued = True
            elif (answer := self._finals.answer(request)) is not None:
                self._socket.send(peer, answer)
                return
            else:
                queued = (self._reads if request.tables is None else self._rounds).put(peer, request)
            if not queued:
                raise Refused("rate", _TOO_MANY)
            self._unanswered[peer] += 1
        except Refused as error:
            self._counters.rejected[error.reason] += 1
            self._limiter.consume(peer, 1.0)
            self._socket.send(peer, _failed(request, str(error)))

    def seconds_to_wait(self) -> float | None:
        """The time until a read has waited long enough; None where none waits."""
        return min((s for waits in self._waits if (s := waits.seconds()) is not None), default=None)

    def answer_due(self) -> None:
        """Answer the reads that have waited long enough."""
        for waits in self._waits:
            self._answer(waits.take_due())

    def answer_ready(self) -> None:
        """Answer the waiting reads for which there are rows by now."""
        for waits in self._waits:
            self._answer(waits.take_ready())

    def add_scores(self, entry: CheckedRows) -> None:
        """Keep the final scores among these durable rows for the reads that wait for them."""
        self._finals.add(entry)

    def send_answer(self, answer: Reply) -> None:
        """Send the answer to a request."""
        self._unanswered[answer.peer] -= 1
        if not self._unanswered[answer.peer]:
            del self._unanswered[answer.peer]
        self._socket.send(*answer)

    def refuse(self, peer: bytes, stream: str, seq: int, reason: str, detail: str) -> None:
        """Count a rejected message and answer it; `seq` is 0 for a hello."""
        self._counters.rejected[reason] += 1
        self._socket.send(peer, wire.Refuse(stream[:128], seq, reason, detail))

    def end(self) -> None:
        """End the threads that answer. Reads that wait are answered before."""
        for waits in self._waits:
            self._answer(waits.take_all())
        self._reads.end()
        self._rounds.end()
        self._queries.end()
        self._hellos.put(None)

    def _answer(self, waited: Iterable[WaitingRead]) -> None:
        for peer, key, read, _ in waited:
            try:
                # The key may have been revoked meanwhile.
                self._admission.check_read(peer, key, read)
                if (answer := self._finals.answer(read)) is not None:
                    self.send_answer(Reply(peer, answer))
                elif not (self._reads if read.tables is None else self._rounds).put(peer, read):
                    raise Refused("rate", _TOO_MANY)
            except Refused as error:
                self._counters.rejected[error.reason] += 1
                self.send_answer(Reply(peer, reader.failed(read, str(error))))

    def _refuse_hello(self, peer: bytes, hello: wire.Hello, reason: str, detail: str) -> None:
        self._limiter.consume(peer, 1.0)
        self.refuse(peer, hello.stream, 0, reason, detail)


def _failed(request: wire.Read | wire.Sql, error: str) -> wire.FromCollector:
    return sql.refused(request, error) if isinstance(request, wire.Sql) else reader.failed(request, error)
