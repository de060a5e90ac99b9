"""The receive thread's work: judge what arrives, queue what is accepted, send every answer."""

from __future__ import annotations

import enum
import logging
import queue
from collections.abc import Callable
from typing import Final, TypeAlias

import zmq

from barograph_agent import wire
from barograph_collector import intake, query, reader
from barograph_collector.counters import Counters
from barograph_collector.mailbox import Mailbox
from barograph_collector.streams import Reply, Streams, Verdict

QUEUE_BYTES: Final = 128 * 2**20
"""With this much on its way to the database the socket is left alone until a commit has made room."""
READS_WAITING: Final = 256
QUERIES_WAITING: Final = 16
_AT_ONCE: Final = 256  # messages taken before answers get their turn again
_COMPLAINT_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)


class Order(enum.Enum):
    """What the receiver is told."""

    STOP_INTAKE = "take nothing more from clients; still send answers"
    END = "everything has been answered"


Post: TypeAlias = list[intake.Item] | Reply | Order


class Receiver:
    """Owns the ROUTER socket and the streams. A list of items in the mailbox says that those are committed."""

    def __init__(
        self,
        router: zmq.Socket[bytes],
        mailbox: Mailbox[Post],
        *,
        streams: Streams,
        items: queue.SimpleQueue[intake.Item | None],
        reads: queue.SimpleQueue[tuple[bytes, wire.Read] | None],
        queries: queue.SimpleQueue[tuple[bytes, wire.Sql] | None],
        counters: Counters,
        clock: Callable[[], float],
    ) -> None:
        self._router = router
        self._mailbox = mailbox
        self._streams = streams
        self._items = items
        self._reads = reads
        self._queries = queries
        self._counters = counters
        self._clock = clock
        self._queued_bytes = 0
        self._stopping = False
        self._ended = False
        self._ignored = 0
        self._complained_at = float("-inf")

    def run(self) -> None:
        """Work until told to end."""
        poller = zmq.Poller()
        poller.register(self._mailbox.fileno(), zmq.POLLIN)
        while not self._ended:
            has_room = self._queued_bytes < QUEUE_BYTES and not self._stopping
            poller.register(self._router, zmq.POLLIN if has_room else 0)
            ready = dict(poller.poll())
            if self._mailbox.fileno() in ready:
                for post in self._mailbox.take():
                    self._obey(post)
            if self._router in ready:
                self._receive()
            self._counters.streams = len(self._streams)

    def _obey(self, post: Post) -> None:
        match post:
            case Reply():
                self._send(post)
            case list():
                self._queued_bytes -= sum(item.size for item in post)
                self._counters.queue_rows -= sum(item.entry.rows for item in post)
                for reply in self._streams.committed((item.stream, item.seq, item.refusal) for item in post):
                    self._send(reply)
            case Order.STOP_INTAKE:
                self._stopping = True
                self._items.put(None)
                self._reads.put(None)
                self._queries.put(None)
            case Order.END:
                self._ended = True

    def _receive(self) -> None:
        for _ in range(_AT_ONCE):
            if self._queued_bytes >= QUEUE_BYTES:
                return
            try:
                peer, *frames = self._router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._handle(peer, intake.decode(frames), sum(map(len, frames)))
            except intake.Undecodable as reason:
                self._counters.refused[str(reason)] += 1
                self._complain(str(reason))

    def _handle(self, peer: bytes, message: wire.FromClient, size: int) -> None:
        match message:
            case wire.Read() | wire.Sql():
                self._pass_on(peer, message)
            case wire.Hello():
                self._greet(peer, message)
            case wire.Append():
                verdict = self._streams.judge(peer, message.stream, message.seq)
                self._count(verdict)
                if verdict is Verdict.ACCEPT:
                    self._queue(intake.appended(message, size, self._clock()))
                else:
                    self._answer(peer, message, verdict)
            case wire.Skip():
                verdict = self._streams.judge(peer, message.stream, message.seq, may_jump=True)
                if verdict is Verdict.ACCEPT:
                    self._queue(intake.skipped(message, self._clock()))
                else:
                    self._answer(peer, message, verdict)

    def _pass_on(self, peer: bytes, request: wire.Read | wire.Sql) -> None:
        match request:
            case wire.Read() if self._reads.qsize() < READS_WAITING:
                self._reads.put((peer, request))
            case wire.Read():
                self._send(Reply(peer, reader.failed(request, "too many reads are waiting, ask again later")))
            case wire.Sql() if self._queries.qsize() < QUERIES_WAITING:
                self._queries.put((peer, request))
            case wire.Sql():
                self._send(Reply(peer, query.refused(request, "too many queries are waiting, ask again later")))

    def _greet(self, peer: bytes, hello: wire.Hello) -> None:
        if hello.version != wire.VERSION:
            detail = f"version is {hello.version}, expected {wire.VERSION}"
            self._refuse(peer, hello.stream, 0, "version", detail)
            return
        try:
            intake.check_stream(hello.stream)
        except wire.Invalid as error:
            self._refuse(peer, hello.stream, 0, "invalid", str(error))
            return
        for reply in self._streams.hello(peer, hello.stream):
            self._send(reply)

    def _count(self, verdict: Verdict) -> None:
        result = {Verdict.ACCEPT: "accepted", Verdict.DUPLICATE: "duplicate", Verdict.UNDER_WAY: "duplicate"}
        self._counters.appends[result.get(verdict, "refused")] += 1

    def _queue(self, item: intake.Item) -> None:
        self._streams.accept(item.stream, item.seq)
        self._queued_bytes += item.size
        self._counters.queue_rows += item.entry.rows
        if item.refusal:
            # Sent with the commit: a producer that forgot the message before that would leave a gap behind.
            self._counters.refused["invalid"] += 1
        self._items.put(item)

    def _answer(self, peer: bytes, message: wire.Append | wire.Skip, verdict: Verdict) -> None:
        match verdict:
            case Verdict.DUPLICATE:
                self._send(self._streams.ack(peer, message.stream))
            case Verdict.CREDIT:
                self._counters.refused["credit"] += 1
            case Verdict.GAP:
                detail = f"seq is {message.seq}, expected {self._streams.expected(message.stream)}"
                self._refuse(peer, message.stream, message.seq, "gap", detail)
            case Verdict.UNKNOWN:
                detail = f"stream {message.stream[:140]!r} was not opened on this connection, expected hello first"
                self._refuse(peer, message.stream, message.seq, "unknown-stream", detail)

    def _refuse(self, peer: bytes, stream: str, seq: int, reason: wire.Reason, detail: str) -> None:
        self._counters.refused[reason] += 1
        self._send(Reply(peer, wire.Refuse(stream[:128], seq, reason, detail)))

    def _send(self, reply: Reply) -> None:
        # A ROUTER drops what its peer does not take. Clients ask again, so nothing is lost but time.
        self._router.send_multipart([reply.peer, wire.encode(reply.message)], zmq.NOBLOCK)

    def _complain(self, reason: str) -> None:
        self._ignored += 1
        now = self._clock()
        if now - self._complained_at >= _COMPLAINT_SECONDS:
            _log.warning("ignored %d messages that are not of the log protocol, the last one %s", self._ignored, reason)
            self._complained_at = now
            self._ignored = 0
