"""The producer's end of the log protocol: delivers an outbox to the collector in order and exactly once.

A link sends hello until it receives a welcome, then sends messages within the granted credit and removes acknowledged
ones from the outbox. If an answer is overdue it sends hello again and resends what the collector lacks: either side may
restart at any time. Every row sent is counted once, in `acked_rows` or by reason in `dropped_rows`.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec
import zmq

from barograph_agent.deliver.credential import CredentialError
from barograph_agent.deliver.keys import ClientKey
from barograph_agent.deliver.outbox import Dropped, Outbox
from barograph_agent.protocol import wire
from barograph_agent.system.system import SYSTEM, System

SILENCE_SECONDS: Final = 2.0
"""Timeout of an answer, after which the link sends hello again."""
BACKOFF_LIMIT_SECONDS: Final = 5.0
_AFTER_SILENCE: Final = 4
"""Attempt number of the first hello after a timeout: an overloaded collector receives the next one only later."""
_ACKS: Final = 1024
"""Acknowledgements remembered, to count the rows that a collector restored from a backup has lost."""


def backoff(attempt: int, rng: random.Random) -> float:
    """Seconds until hello number `attempt` (0, 1, ...): 0.1 doubling up to the limit, plus up to 50 % jitter."""
    return min(0.1 * 2.0 ** min(attempt, 16), BACKOFF_LIMIT_SECONDS) * (1.0 + 0.5 * rng.random())


def pump(links: Collection[Link], timeout: float, system: System = SYSTEM) -> None:
    """Pump several links after waiting at most `timeout` seconds for a message to any of them."""
    system.network.wait(links, timeout)
    for link in links:
        link.pump()


class Link:
    """One stream to one collector. Not thread-safe. `pump` must be called often and does not block."""

    def __init__(
        self,
        endpoint: str,
        stream: str,
        outbox: Outbox[Any],
        *,
        key: ClientKey | None = None,
        credential: Callable[[str], str] | None = None,
        system: System = SYSTEM,
    ) -> None:
        """`credential`: creates a credential for a stream, once per hello; may raise CredentialError."""
        self.stream = stream
        self.outbox = outbox
        self.acked_rows = 0
        """Rows that the collector has acknowledged and still has."""
        self.dropped_rows: Counter[str] = Counter()
        """Rows dropped by the outbox, refused by the collector or lost with its log, by reason."""
        self.refusals: list[wire.Refuse] = []
        """The last ten that have cost rows. From all others, such as those of a restart, the link recovers."""
        self._acks: deque[tuple[int, int]] = deque(maxlen=_ACKS)
        """Acknowledged numbers, each with `acked_rows` at that time."""
        self._forgotten: Dropped | None = None
        """Rows lost with the collector's log, until the skip that reports them is acknowledged."""
        self._trouble = self._reason = ""
        self._clock = system.clock.monotonic
        self._rng = system.random
        self._credential = credential
        self._connection = system.network.connect(endpoint, key)
        self.connected = False
        """True while the stream is open and the collector answers in time."""
        self._is_behind = False
        """Whether the outbox has lost its end, so that nothing of it can be delivered."""
        self._attempt = 0
        self._number = 1
        """Number of the attempt to open the stream; repeated hellos carry the same."""
        self._hello_at = self._clock()
        self._received_at = float("-inf")
        self.acked = 0
        """The highest acknowledged number; 0 before the first welcome."""
        self._sent = 0
        self._credit = 0
        self._rows_by_request: dict[int, wire.Rows] = {}
        self._request = 0

    @property
    def trouble(self) -> str:
        """Why the stream is not open, for display; empty if the reason is unknown or the stream is open."""
        # ZeroMQ's monitor may report the successful handshake after the welcome was received.
        if self.connected:
            return ""
        return self._trouble or self._connection.trouble

    @property
    def is_withheld(self) -> bool:
        """Whether the collector takes no rows of anybody. `trouble` is what it sent."""
        return not self.connected and self._reason in wire.WITHHELD

    @property
    def idle(self) -> bool:
        """True once everything in the outbox is acknowledged."""
        return self.connected and self.acked >= self.outbox.last_seq

    def pump(self, timeout: float = 0.0) -> None:
        """Send and receive all pending messages, waiting at most `timeout` seconds for one."""
        self._send_pending()
        if timeout > 0:
            self._connection.wait(timeout)
        # Until the queue is empty: the socket's descriptor is edge-triggered.
        while self._connection.can_receive():
            self._on_message(self._connection.receive())
            self._send_pending()

    def register(self, poller: zmq.Poller) -> None:
        """Register the socket with a poller, for incoming messages."""
        self._connection.register(poller)

    def fileno(self) -> int:
        """A descriptor that becomes readable when a message arrives; edge-triggered, as ZeroMQ's are."""
        return self._connection.fileno()

    def wait_idle(self, seconds: float) -> bool:
        """Pump until everything is acknowledged; False if `seconds` pass first."""
        deadline = self._clock() + seconds
        while not self.idle and (left := deadline - self._clock()) > 0:
            self.pump(min(left, 0.05))
        return self.idle

    def read(self, table: str, after: int, limit: int, job: str, seconds: float, wait: float = 0.0) -> wire.Rows | None:
        """Read from the log over the same connection; None without an answer in `seconds`. wait: see `wire.Read`."""
        self._request += 1
        deadline = self._clock() + seconds
        if not self._send(wire.Read(self._request, table, after, limit, job, seconds=wait)):
            return None
        while self._request not in self._rows_by_request and (left := deadline - self._clock()) > 0:
            self.pump(min(left, 0.05))
        return self._rows_by_request.pop(self._request, None)

    def close(self) -> None:
        """Close the connection; the outbox keeps unacknowledged messages."""
        self._connection.close()

    def _send_pending(self) -> None:
        now = self._clock()
        if self._is_silent(now):
            self._reset_session()
            self._hello_at = now
            self._attempt = _AFTER_SILENCE
        if not self.connected:
            self._send_hello(now)
            return
        if self._sent == self.acked:
            self._received_at = now
        if self._forgotten and self._sent < self._forgotten.seq:
            if not self._send(wire.Skip(self.stream, *self._forgotten)):
                return
            self._sent = self._forgotten.seq
        if self._sent < self.outbox.first_seq - 1:
            # Of the messages under way some may be among the dropped ones: their acknowledgements say which.
            if self._sent > max(self.acked, self._forgotten.seq if self._forgotten else 0):
                return
            if not self._send_skip():
                return
        while self._sent < self.outbox.last_seq and self._sent - self.acked < self._credit:
            if not self._send_frame(self.outbox.get(self._sent + 1)):
                return
            self._sent += 1

    def _is_silent(self, now: float) -> bool:
        """Whether an answer is overdue."""
        overdue = self.connected and self._sent > self.acked and now - self._received_at > SILENCE_SECONDS
        # After this process was suspended the answer may be in the receive queue.
        return overdue and not self._connection.can_receive()

    def _reset_session(self) -> None:
        """Reopen the stream: the collector's position is unknown, and answers to earlier hellos are ignored."""
        self.connected = False
        self._number += 1

    def _send_skip(self) -> bool:
        """Report the dropped messages."""
        last = self.outbox.first_seq - 1
        # Nothing dropped: acknowledged to an earlier process by a log that is gone; the number of rows is unknown.
        _, rows, reason = self.outbox.report_dropped() or Dropped(last, 0, "forgotten")
        if not self._send(wire.Skip(self.stream, last, rows, reason, self._sent)):
            return False
        self._sent = last
        return True

    def _send_hello(self, now: float) -> None:
        if now < self._hello_at or self._is_behind:
            return
        if self._connection.gave_up():
            self._connection.restart()
            self._back_off(now)
        elif self._connection.can_send():
            # Without a connection there is no back-off: the first pump after connecting sends hello.
            try:
                credential = self._credential(self.stream) if self._credential else ""
            except CredentialError as error:
                self._trouble = str(error)
            else:
                self._send(wire.Hello(self.stream, credential=credential, number=self._number))
            self._back_off(now)

    def _back_off(self, now: float) -> None:
        self._hello_at = now + backoff(self._attempt, self._rng)
        self._attempt += 1

    def _on_message(self, frame: bytes) -> None:
        try:
            message = wire.decode_from_collector(frame)
        except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, TypeError):
            return
        self._received_at = self._clock()
        match message:
            case wire.Ack():
                self._credit = message.credit
                self._advance(message.seq)
            case wire.Welcome() if self.connected or message.number != self._number:
                # The answer to a repeated or an earlier hello. Messages sent since then are in flight.
                self._credit = message.credit
                self._advance(message.acked)
            case wire.Welcome():
                if message.acked > self.outbox.last_seq and not self.acked:
                    # Its messages would be taken for repeated ones, later ones too.
                    self._is_behind = True
                    self._trouble = (
                        f"the collector has {message.acked} messages of stream {self.stream}, this outbox had"
                        f" {self.outbox.last_seq}, expected at least as many: its disk has lost what it had confirmed"
                    )
                    return
                self.connected = True
                self._trouble = self._reason = ""
                self._attempt = 0
                self._credit = message.credit
                if message.acked < self.acked:
                    self._count_forgotten(message.acked)
                self._advance(message.acked)
                self.acked = self._sent = message.acked
            case wire.Refuse():
                self._on_refuse(message)
            case wire.Rows():
                self._rows_by_request = {message.request: message}

    def _advance(self, seq: int) -> None:
        if seq <= self.acked:
            return
        if self._forgotten and self._forgotten.seq <= seq:
            self._forgotten = None
        before = self.outbox.dropped
        acked = self.outbox.ack(seq)
        self.acked_rows += acked.stored
        if before is not None and acked.dropped:
            self.dropped_rows[before.reason] += acked.dropped
        self._acks.append((seq, self.acked_rows))
        self.acked = seq
        self._sent = max(self._sent, seq)

    def _count_forgotten(self, acked: int) -> None:
        """Count rows acknowledged beyond number `acked` as dropped: the collector has lost them with its log."""
        while self._acks and self._acks[-1][0] > acked:
            self._acks.pop()
        rows = self.acked_rows - (self._acks[-1][1] if self._acks else 0)
        self.acked_rows -= rows
        self.dropped_rows["forgotten"] += rows
        before = self._forgotten or Dropped(0, 0, "")
        self._forgotten = Dropped(max(before.seq, self.acked), before.rows + rows, "forgotten")

    def _on_refuse(self, message: wire.Refuse) -> None:
        if message.reason in wire.CONSUMED:
            self.refusals = [*self.refusals[-9:], message]
            self.dropped_rows["refused"] += self.outbox.discount(message.seq)
        elif self.connected:
            # The collector restarted, or a message was lost.
            self._reset_session()
            self._back_off(self._clock())
        elif message.seq == 0:
            self._trouble, self._reason = message.detail, message.reason

    def _send(self, message: wire.FromClient) -> bool:
        return self._send_frame(wire.encode(message))

    def _send_frame(self, frame: bytes) -> bool:
        return self._connection.send(frame)
