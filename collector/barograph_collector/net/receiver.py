"""The receive thread: checks messages, queues rows, hellos and requests, and sends all answers. It never blocks."""

from __future__ import annotations

import functools
import logging
import math
import queue
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import zmq

from barograph_agent.protocol import wire
from barograph_agent.system.system import System
from barograph_collector.auth.authenticator import HelloRequest
from barograph_collector.auth.authorization import Authorization, Claim, EventLimit, Grant, Refused
from barograph_collector.auth.rate_limit import TokenBuckets
from barograph_collector.ingest.counters import Counters
from barograph_collector.ingest.space import DiskSpace
from barograph_collector.ingest.streams import Reply, StreamDecision, Streams
from barograph_collector.net.answerer import Answerer
from barograph_collector.net.router_socket import RouterSocket
from barograph_collector.net.waiting_reads import SCORES, WaitingRead, WaitingReads
from barograph_collector.net.wakeup_queue import WakeupQueue
from barograph_collector.query.reader import answer_read, failed
from barograph_collector.query.sql import Querier
from barograph_collector.storage import messages
from barograph_collector.storage.rows import Entry
from barograph_collector.storage.store import Store

QUEUE_BYTES: Final = 128 * 2**20
"""Limit on the memory of rows that are not committed. Beyond it nothing is received until a commit releases some."""
BYTES_PER_REJECTED: Final = 2**17
"""A rejected message of this size costs its sender twice what an empty one does: it was received and parsed."""
BYTES_PER_ROW: Final = 1024
"""Long rows count as several with the limit of their producer."""
READS_WAITING: Final = 4096
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
_AT_ONCE: Final = 256  # messages received before answers are sent
_WARNING_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)


@dataclass
class Receiver:
    """Owns the socket and the streams. Other threads put calls of its methods into the mailbox."""

    mailbox: WakeupQueue[Callable[[], object]]
    store: Store
    settle: Callable[..., bool]
    """Waits until durable rows are in the database or, called with False, in the tail."""
    admission: Authorization
    space: DiskSpace
    entries: queue.SimpleQueue[Entry | None]
    counters: Counters
    system: System
    socket: RouterSocket = field(init=False)
    """Opened before `run`."""
    _queued_bytes: int = 0
    _stopping: bool = False
    _ended: bool = False
    _unanswered: Counter[bytes] = field(default_factory=Counter)
    """Requests, by connection."""
    _ignored: int = 0
    _warned_at: float = float("-inf")

    def __post_init__(self) -> None:
        threads, monotonic = self.system.threads, self.system.clock.monotonic
        self.streams = Streams()
        self.waits = WaitingReads(self.store.has_rows, monotonic)
        self.querier = Querier(self.store, self.settle)
        self.hellos: queue.SimpleQueue[HelloRequest | None] = threads.queue()
        self._limiter = TokenBuckets(REJECTED_PER_SECOND, monotonic)
        self._events = EventLimit(self.admission, monotonic)
        read, done = functools.partial(answer_read, self.store, self.settle), self.later(self.send_answer)
        # Those of daemons do not queue behind those of agents, of which many come at once when many jobs end.
        self.reads, self.rounds = (Answerer(read, done, READS_WAITING, threads.queue()) for _ in range(2))
        self.queries = Answerer(self.querier.answer, done, QUERIES_WAITING, threads.queue())

    def later(self, function: Callable[..., object]) -> Callable[..., None]:
        """A function that lets the receive thread call this one."""
        return lambda *arguments: self.mailbox.put(functools.partial(function, *arguments))

    def run(self) -> None:
        """Work until `end`, and close the socket."""
        try:
            while not self._ended:
                self._work()
        finally:
            self.socket.close()

    def _work(self) -> None:
        has_room = self._queued_bytes < QUEUE_BYTES and not self._stopping
        ready = self.socket.wait(self.mailbox, self.waits.seconds(), receives=has_room)
        self._answer(self.waits.take_due())
        if ready.calls:
            for call in self.mailbox.take():
                call()
        if ready.failures:
            for reason in self.socket.failures():
                self.counters.rejected[reason] += 1
        if ready.messages:
            self._receive()
        self.counters.streams = len(self.streams)
        self.counters.credit_taken_messages = self.streams.under_way
        self.counters.credit_exhausted = self.streams.exhausted

    def durable(self, entries: list[Entry]) -> None:
        """Acknowledge entries that are in the journal."""
        for reply in self.streams.committed((entry.stream, entry.seq, entry.refusal) for entry in entries):
            self.socket.send(*reply)
        scores = [entry for entry in entries if entry.table == SCORES]
        for entry in scores:
            self.waits.add_final(entry)
        if scores:
            self.answer_ready()

    def stored(self, entries: list[Entry]) -> None:
        """Release the memory of entries that are in the database, and answer reads that wait for their rows."""
        self._queued_bytes -= sum(entry.size for entry in entries)
        self.counters.queue_rows -= sum(entry.rows for entry in entries)
        for entry in entries:
            self.streams.stored(entry.stream, entry.seq)
        self.answer_ready()

    def stop_intake(self) -> None:
        """Stop receiving. Answers are still sent."""
        self._stopping = True
        self.entries.put(None)
        self.end_answers()

    def end(self) -> None:
        """Let `run` return."""
        self._ended = True

    def _receive(self) -> None:
        for _ in range(_AT_ONCE):
            if self._queued_bytes >= QUEUE_BYTES:
                return
            try:
                peer, key, frames = self.socket.receive()
            except zmq.Again:
                return
            if self._limiter.is_empty(peer):
                self.counters.rejected["ignored"] += 1
                continue
            price = 1.0 + sum(map(len, frames)) / BYTES_PER_REJECTED
            try:
                self._handle(peer, key, messages.decode(frames), frames[0], price)
            except messages.Undecodable as reason:
                self._reject(peer, price, str(reason))
            except Exception as error:
                # A defect, which one message must not turn into the end of the service.
                self._reject(peer, price, "failed", error)

    def _handle(self, peer: bytes, key: str, message: wire.FromClient, frame: bytes, price: float) -> None:
        match message:
            # The most frequent kind first.
            case wire.Append() | wire.Skip():
                self._handle_rows(peer, key, message, frame, price)
            case wire.Hello():
                self._route_hello(peer, key, message)
            case wire.Read() | wire.Sql():
                self._route_request(peer, key, message)

    def _handle_rows(self, peer: bytes, key: str, message: wire.Append | wire.Skip, frame: bytes, price: float) -> None:
        """Queue rows or refuse them. A refusal costs the connection its price, except where no rows are taken."""
        result, charged = "refused", True
        stream, seq = message.stream, message.seq
        try:
            match self.streams.judge(peer, stream, seq, may_jump=isinstance(message, wire.Skip)):
                case StreamDecision.ACCEPT if self.space.is_short():
                    self._refuse(peer, stream, seq, "disk-full", self.space.complaint)
                    charged = False
                case StreamDecision.ACCEPT if isinstance(message, wire.Skip) and not self._follows(message):
                    raise Refused("gap", f"after is {message.after}, expected {self.streams.expected(stream) - 1}")
                case StreamDecision.ACCEPT:
                    entry = self._entry(key, message, frame)
                    self._queue(entry)
                    result, charged = "accepted", entry.refusal is not None
                case StreamDecision.UNDER_WAY:
                    result = "duplicate"
                case StreamDecision.DUPLICATE:
                    result = "duplicate"
                    self.socket.send(*self.streams.ack(peer, stream))
                case StreamDecision.CREDIT:
                    self.counters.rejected["credit"] += 1
                case StreamDecision.GAP:
                    raise Refused("gap", f"seq is {seq}, expected {self.streams.expected(stream)}")
                case StreamDecision.UNKNOWN:
                    text = f"stream {stream[:140]!r} was not opened on this connection, expected hello first"
                    raise Refused("unknown-stream", text)
        except Refused as error:
            self._refuse(peer, stream, seq, error.reason, str(error))
        if isinstance(message, wire.Append):
            self.counters.appends[result] += 1
        if charged:
            self._limiter.consume(peer, price)

    def _follows(self, skip: wire.Skip) -> bool:
        """Whether a skip reports no message that was accepted meanwhile."""
        return skip.after in {-1, self.streams.expected(skip.stream) - 1}

    def _entry(self, key: str, message: wire.Append | wire.Skip, frame: bytes) -> Entry:
        """What to store: the rows, or a record of their refusal. Raises Refused where neither is stored."""
        grant = self.admission.grant(key, message.stream)
        now = self.system.clock.now()
        if isinstance(message, wire.Skip):
            self.admission.check_rate(grant, message.stream, 1)
            return self._events.limited(grant, messages.skipped(message, now))
        self.admission.check_rate(grant, message.stream, max(message.rows, len(frame) // BYTES_PER_ROW))
        try:
            entry = self._checked(grant, message, frame, now)
        except Refused as error:
            entry = messages.refused(message, error.reason, str(error), now)
        return entry if entry.refusal is None else self._events.limited(grant, entry)

    def _checked(self, grant: Grant, message: wire.Append, frame: bytes, now: float) -> Entry:
        """The rows of an append, which are decoded once nothing else speaks against them. Raises Refused."""
        if len(frame) > wire.MAX_APPEND_BYTES:
            detail = f"message has {len(frame)} bytes, expected at most {wire.MAX_APPEND_BYTES}"
            raise Refused("oversized", detail)
        grant.check_table(message.table)
        entry = messages.appended(message, frame, now)
        if entry.refusal is not None:
            return entry
        columns = grant.check(entry)
        self.admission.check_kept(grant, message.table, len(frame))
        if columns is entry.columns:
            return entry
        corrected = wire.Append(entry.stream, entry.seq, entry.table, entry.rows, dict(columns))
        return messages.appended(corrected, wire.encode(corrected), now)

    def _queue(self, entry: Entry) -> None:
        self.streams.accept(entry.stream, entry.seq)
        self._queued_bytes += entry.size
        self.counters.queue_rows += entry.rows
        if entry.refusal:
            # The refusal is sent once it is durable: after an earlier one the producer could leave a gap in its stream.
            self.counters.rejected[entry.refusal.reason] += 1
        self.entries.put(entry)

    def _route_hello(self, peer: bytes, key: str, hello: wire.Hello) -> None:
        """Open a stream; through the authenticator where a credential or the database is to be consulted."""
        try:
            if hello.version != wire.VERSION:
                raise Refused("version", f"version is {hello.version}, expected {wire.VERSION}")
            messages.check_stream(hello.stream)
            if len(hello.credential) > MAX_CREDENTIAL:
                size = len(hello.credential)
                raise Refused("credential", f"credential has {size} characters, expected at most {MAX_CREDENTIAL}")
            request = HelloRequest(peer, key, hello, self.admission.needs_credential(key))
            # Verifying a credential may take a request to MUNGE.
            self._limiter.consume(peer, 1.0 if request.needs_credential else HELLO_COST)
            if self.space.is_short():
                raise Refused("disk-full", self.space.complaint)
            if self.hellos.qsize() >= HELLOS_WAITING:
                raise Refused("rate", "too many hellos are waiting, send it again later")
            if self.streams.is_opening(peer, hello.stream):
                return
            known = self.streams.begin_opening(peer, hello.stream)
            if known and not request.needs_credential:
                self.open_stream(request, None, 0)
            else:
                self.hellos.put(request)
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
            self.admission.open(peer, key, hello.stream, claim)
        except Refused as error:
            self.streams.cancel_opening(hello.stream)
            self._refuse_hello(peer, hello, error.reason, str(error))
            return
        for reply in self.streams.open(peer, hello.stream, stored, hello.number):
            self.socket.send(*reply)

    def _route_request(self, peer: bytes, key: str, request: wire.Read | wire.Sql) -> None:
        """Queue a request for the threads that answer its kind, or let it wait for rows."""
        try:
            self.admission.check_read(peer, key, request)
            if not math.isfinite(request.seconds):
                raise Refused("invalid", f"seconds is {request.seconds}, expected a finite number")
            if self._unanswered[peer] >= REQUESTS_OF_ONE:
                raise Refused("rate", f"{REQUESTS_OF_ONE} requests of this connection are waiting, ask again later")
            if isinstance(request, wire.Read) and self.waits.must_wait(request):
                self._answer(self.waits.add(peer, key, request))
            else:
                self._submit(peer, request)
            self._unanswered[peer] += 1
        except Refused as error:
            self.counters.rejected[error.reason] += 1
            self._limiter.consume(peer, 1.0)
            self.socket.send(peer, failed(request, str(error)))

    def _submit(self, peer: bytes, request: wire.Read | wire.Sql) -> None:
        """Queue a request for the threads that answer its kind."""
        kind = self.queries if isinstance(request, wire.Sql) else self.reads if request.tables is None else self.rounds
        if not kind.put(peer, request):
            raise Refused("rate", "too many of its kind are waiting, ask again later")

    def answer_ready(self) -> None:
        """Answer the waiting reads for which there are rows by now."""
        self._answer(self.waits.take_ready())

    def send_answer(self, answer: Reply) -> None:
        """Send the answer to a request."""
        self._unanswered[answer.peer] -= 1
        if not self._unanswered[answer.peer]:
            del self._unanswered[answer.peer]
        self.socket.send(*answer)

    def _refuse(self, peer: bytes, stream: str, seq: int, reason: str, detail: str) -> None:
        """Count a rejected message and answer it; `seq` is 0 for a hello."""
        self.counters.rejected[reason] += 1
        self.socket.send(peer, wire.Refuse(stream[:128], seq, reason, detail))

    def end_answers(self) -> None:
        """End the threads that answer. Reads that wait are answered before."""
        self._answer(self.waits.take_all())
        self.reads.end()
        self.rounds.end()
        self.queries.end()
        self.hellos.put(None)

    def _answer(self, waited: Iterable[WaitingRead]) -> None:
        for peer, key, read, _ in waited:
            try:
                # The key may have been revoked meanwhile.
                self.admission.check_read(peer, key, read)
                self._submit(peer, read)
            except Refused as error:
                self.counters.rejected[error.reason] += 1
                self.send_answer(Reply(peer, failed(read, str(error))))

    def _refuse_hello(self, peer: bytes, hello: wire.Hello, reason: str, detail: str) -> None:
        self._limiter.consume(peer, 1.0)
        self._refuse(peer, hello.stream, 0, reason, detail)

    def _reject(self, peer: bytes, price: float, reason: str, error: Exception | None = None) -> None:
        """Count a message that cannot be answered, at the cost of its sender, and log some of them."""
        self.counters.rejected[reason] += 1
        self._limiter.consume(peer, price)
        self._ignored += 1
        now = self.system.clock.now()
        if now - self._warned_at >= _WARNING_SECONDS:
            text = "ignored %d messages that are not of the log protocol, the last one %s"
            _log.warning(text, self._ignored, reason, exc_info=error)
            self._warned_at = now
            self._ignored = 0
