"""The receive thread: checks messages, queues the rows of accepted ones, and sends all answers."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from typing import Final

import zmq

from barograph_agent.protocol import wire
from barograph_collector.auth.authorization import Authorization, Refused
from barograph_collector.auth.rate_limit import TokenBuckets
from barograph_collector.ingest.counters import Counters
from barograph_collector.ingest.intake import Intake
from barograph_collector.ingest.streams import StreamDecision, Streams
from barograph_collector.net import final_scores
from barograph_collector.net.requests import RequestRouter
from barograph_collector.net.router_socket import RouterSocket
from barograph_collector.net.wakeup_queue import WakeupQueue
from barograph_collector.storage import messages

QUEUE_BYTES: Final = 128 * 2**20
"""Limit on the memory of rows that are not committed. Beyond it nothing is received until a commit releases some."""
_AT_ONCE: Final = 256  # messages received before answers are sent
_WARNING_SECONDS: Final = 60.0
_log = logging.getLogger(__name__)


class Receiver:
    """Owns the socket and the streams. Other threads put calls of its methods into the mailbox."""

    def __init__(
        self,
        socket: RouterSocket,
        mailbox: WakeupQueue[Callable[[], object]],
        *,
        streams: Streams,
        admission: Authorization,
        router: RequestRouter,
        limiter: TokenBuckets,
        intake: Intake,
        items: queue.SimpleQueue[messages.Item | None],
        counters: Counters,
        clock: Callable[[], float],
    ) -> None:
        self._socket = socket
        self._mailbox = mailbox
        self._streams = streams
        self._admission = admission
        self._router = router
        self._limiter = limiter
        self._intake = intake
        self._items = items
        self._counters = counters
        self._clock = clock
        self._queued_bytes = 0
        self._stopping = False
        self._ended = False
        self._unanswered = 0
        self._warned_at = float("-inf")

    def run(self) -> None:
        """Work until `end`."""
        while not self._ended:
            has_room = self._queued_bytes < QUEUE_BYTES and not self._stopping
            ready = self._socket.wait(self._mailbox, self._router.seconds_to_wait(), receives=has_room)
            self._router.answer_due()
            if ready.calls:
                for call in self._mailbox.take():
                    call()
            if ready.failures:
                for reason in self._socket.failures():
                    self._counters.rejected[reason] += 1
            if ready.messages:
                self._receive()
            self._counters.streams = len(self._streams)
            self._counters.credit_taken_messages = self._streams.under_way
            self._counters.credit_exhausted = self._streams.exhausted

    def durable(self, items: list[messages.Item]) -> None:
        """Acknowledge items that are in the journal."""
        for reply in self._streams.committed((item.stream, item.seq, item.refusal) for item in items):
            self._socket.send(*reply)
        scores = [item.entry for item in items if item.entry.table == final_scores.TABLE]
        for entry in scores:
            self._router.add_scores(entry)
        if scores:
            self._router.answer_ready()

    def stored(self, items: list[messages.Item]) -> None:
        """Release the memory of items that are in the database, and answer reads that wait for their rows."""
        self._queued_bytes -= sum(item.size for item in items)
        self._counters.queue_rows -= sum(item.entry.rows for item in items)
        for item in items:
            self._streams.stored(item.stream, item.seq)
        self._router.answer_ready()

    def stop_intake(self) -> None:
        """Stop receiving. Answers are still sent."""
        self._stopping = True
        self._items.put(None)
        self._router.end()

    def end(self) -> None:
        """Let `run` return."""
        self._ended = True

    def _receive(self) -> None:
        for _ in range(_AT_ONCE):
            if self._queued_bytes >= QUEUE_BYTES:
                return
            try:
                peer, key, frames = self._socket.receive()
            except zmq.Again:
                return
            if self._limiter.is_empty(peer):
                self._counters.rejected["ignored"] += 1
                continue
            try:
                self._handle(peer, key, messages.decode(frames), frames[0])
            except messages.Undecodable as reason:
                self._reject(peer, str(reason))
            except Exception as error:
                # A defect, which one message must not turn into the end of the service.
                self._reject(peer, "failed", error)

    def _handle(self, peer: bytes, key: str, message: wire.FromClient, frame: bytes) -> None:
        match message:
            # The most frequent kind first.
            case wire.Append() | wire.Skip():
                self._handle_rows(peer, key, message, frame)
            case wire.Hello():
                self._router.route_hello(peer, key, message)
            case wire.Read() | wire.Sql():
                self._router.route_request(peer, key, message)

    def _handle_rows(self, peer: bytes, key: str, message: wire.Append | wire.Skip, frame: bytes) -> None:
        """Queue rows or refuse them. A refusal costs the connection tokens, except where no rows are taken."""
        result, charged = "refused", True
        stream, seq = message.stream, message.seq
        try:
            match self._streams.judge(peer, stream, seq, may_jump=isinstance(message, wire.Skip)):
                case StreamDecision.ACCEPT if (withheld := self._intake.withheld()) is not None:
                    self._router.refuse(peer, stream, seq, *withheld)
                    charged = False
                case StreamDecision.ACCEPT if isinstance(message, wire.Skip) and not self._follows(message):
                    raise Refused("gap", f"after is {message.after}, expected {self._streams.expected(stream) - 1}")
                case StreamDecision.ACCEPT:
                    item = self._item(key, message, frame)
                    self._queue(item)
                    result, charged = "accepted", item.refusal is not None
                case StreamDecision.UNDER_WAY:
                    result = "duplicate"
                case StreamDecision.DUPLICATE:
                    result = "duplicate"
                    self._socket.send(*self._streams.ack(peer, stream))
                case StreamDecision.CREDIT:
                    self._counters.rejected["credit"] += 1
                case StreamDecision.GAP:
                    raise Refused("gap", f"seq is {seq}, expected {self._streams.expected(stream)}")
                case StreamDecision.UNKNOWN:
                    text = f"stream {stream[:140]!r} was not opened on this connection, expected hello first"
                    raise Refused("unknown-stream", text)
        except Refused as error:
            self._router.refuse(peer, stream, seq, error.reason, str(error))
        if isinstance(message, wire.Append):
            self._counters.appends[result] += 1
        if charged:
            self._limiter.consume(peer, 1.0)

    def _follows(self, skip: wire.Skip) -> bool:
        """Whether a skip reports no message that was accepted meanwhile."""
        return skip.after in {-1, self._streams.expected(skip.stream) - 1}

    def _item(self, key: str, message: wire.Append | wire.Skip, frame: bytes) -> messages.Item:
        """What to store: the rows, or a record of their refusal. Raises Refused where neither is stored."""
        grant = self._admission.grant(key, message.stream)
        now = self._clock()
        if isinstance(message, wire.Skip):
            return messages.skipped(message, now)
        self._admission.check_rate(grant, message.stream, message.rows)
        if len(frame) > wire.MAX_APPEND_BYTES:
            detail = f"message has {len(frame)} bytes, expected at most {wire.MAX_APPEND_BYTES}"
            return messages.refused(message, "oversized", detail, now)
        # Types first: what follows handles columns.
        item = messages.appended(message, frame, now)
        if item.refusal is not None:
            return item
        try:
            corrected = grant.check(message)
            self._admission.check_kept(grant, message, len(frame))
        except Refused as error:
            return messages.refused(message, error.reason, str(error), now)
        return messages.appended(message, wire.encode(message), now) if corrected else item

    def _queue(self, item: messages.Item) -> None:
        self._streams.accept(item.stream, item.seq)
        self._queued_bytes += item.size
        self._counters.queue_rows += item.entry.rows
        if item.refusal:
            # The refusal is sent once it is durable: after an earlier one the producer could leave a gap in its stream.
            self._counters.rejected[item.refusal.reason] += 1
        self._items.put(item)

    def _reject(self, peer: bytes, reason: str, error: Exception | None = None) -> None:
        """Count a message that cannot be answered, at the cost of its sender, and log some of them."""
        self._counters.rejected[reason] += 1
        self._limiter.consume(peer, 1.0)
        self._unanswered += 1
        now = self._clock()
        if now - self._warned_at >= _WARNING_SECONDS:
            text = "ignored %d messages that are not of the log protocol, the last one %s"
            _log.warning(text, self._unanswered, reason, exc_info=error)
            self._warned_at = now
            self._unanswered = 0
