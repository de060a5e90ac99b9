"""The producer's end of the log protocol: delivers an outbox to the collector in order and exactly once.

A link sends hello until it is welcomed, sends messages as far as credit allows and removes those acknowledged. Without
an answer in time it sends hello again and resends what the collector lacks: either side may be restarted at any time.
No call blocks.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec
import zmq

from barograph_agent.deliver.credential import CredentialError
from barograph_agent.deliver.handshake import Handshakes
from barograph_agent.deliver.keys import ClientKey
from barograph_agent.deliver.outbox import Outbox
from barograph_agent.protocol import wire

SILENCE_SECONDS: Final = 2.0
"""The collector counts as away when an answer is overdue for this long."""
BACKOFF_LIMIT_SECONDS: Final = 5.0
_AFTER_SILENCE: Final = 4
"""Attempt number of a hello after a timeout: a busy collector gets the next one only after a while."""
_UNNUMBERED: Final = 0
"""The number in the welcome of a collector that is older than numbers."""
_READABLE: Final = int(zmq.POLLIN)  # operators of the enum take a microsecond each


def backoff(attempt: int, rng: random.Random) -> float:
    """Seconds until hello number `attempt` (0, 1, ...): 0.1 doubling to the limit, with up to half of it as jitter."""
    return min(0.1 * 2.0 ** min(attempt, 16), BACKOFF_LIMIT_SECONDS) * (1.0 + 0.5 * rng.random())


def pump(links: Collection[Link], timeout: float) -> None:
    """Pump several links, waiting at most `timeout` seconds until one of them has something to receive."""
    if not links:
        # A poller without sockets does not wait.
        time.sleep(timeout)
        return
    poller = zmq.Poller()
    for link in links:
        link.register(poller)
    poller.poll(int(timeout * 1000))
    for link in links:
        link.pump()


class Link:
    """One stream to one collector. Not thread-safe; call `pump` often."""

    def __init__(
        self,
        endpoint: str,
        stream: str,
        outbox: Outbox[Any],
        *,
        key: ClientKey | None = None,
        credential: Callable[[str], str] | None = None,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        seed: int | None = None,
    ) -> None:
        """`credential` makes one for a stream, a new one for each hello; it may raise CredentialError."""
        self.stream = stream
        self.outbox = outbox
        self.acked_rows = 0
        self._skips: list[tuple[int, int]] = []
        """Skips sent and not acknowledged: number, and all rows that the outbox had dropped up to it."""
        self.dropped_rows: Counter[str] = Counter()
        self.refusals: list[wire.Refuse] = []
        self._trouble = ""
        self._clock = clock
        self._rng = random.Random(seed)
        self._credential = credential
        self._endpoint = endpoint
        self._socket = (context or zmq.Context.instance()).socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        # Messages must not queue for an absent collector: they would arrive after a resend, out of order.
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 100)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        self._handshakes: Handshakes | None = None
        if key is not None:
            key.apply(self._socket)
            self._handshakes = Handshakes(self._socket)
        self._socket.connect(endpoint)
        self._welcomed = False
        self._attempt = 0
        self._number = 1
        """Number of this attempt to open the stream; repeated hellos have the same."""
        self._hello_at = clock()
        self._received_at = float("-inf")
        self._acked = 0
        self._sent = 0
        self._credit = 0
        self._rows_by_request: dict[int, wire.Rows] = {}
        self._request = 0

    @property
    def connected(self) -> bool:
        """True while this stream is welcomed and the collector answers."""
        return self._welcomed

    @property
    def trouble(self) -> str:
        """Why this link is not admitted, for people; empty while that is unknown, or once it is."""
        # ZeroMQ's monitor may report the successful handshake after the welcome has come.
        if self._welcomed:
            return ""
        return self._trouble or (self._handshakes.trouble if self._handshakes else "")

    @property
    def idle(self) -> bool:
        """True once everything in the outbox is acknowledged."""
        return self._welcomed and self._acked >= self.outbox.last_seq

    @property
    def acked(self) -> int:
        """The highest acknowledged number: 0 before the first welcome."""
        return self._acked

    def pump(self, timeout: float = 0.0) -> None:
        """Send and receive what is possible, waiting at most `timeout` seconds for a message."""
        self._send_pending()
        if timeout > 0:
            self._socket.poll(int(timeout * 1000))
        # Until nothing is left to receive: the socket's descriptor is edge-triggered.
        while self._can_receive():
            self._on_message(self._socket.recv(zmq.NOBLOCK))
            self._send_pending()

    def register(self, poller: zmq.Poller) -> None:
        """Let a poller wait until `pump` has something to receive."""
        poller.register(self._socket, zmq.POLLIN)

    def fileno(self) -> int:
        """A descriptor that becomes readable when `pump` has something to receive, edge-triggered as ZeroMQ's are."""
        return self._socket.fileno()

    def wait_idle(self, seconds: float) -> bool:
        """Pump until everything is acknowledged or the time is over; True for the former."""
        deadline = self._clock() + seconds
        while not self.idle and (left := deadline - self._clock()) > 0:
            self.pump(min(left, 0.05))
        return self.idle

    def read(self, table: str, after: int, limit: int, job: str, seconds: float) -> wire.Rows | None:
        """One read over the same connection; None without an answer in time."""
        self._request += 1
        deadline = self._clock() + seconds
        if not self._send(wire.Read(self._request, table, after, limit, job)):
            return None
        while self._request not in self._rows_by_request and (left := deadline - self._clock()) > 0:
            self.pump(min(left, 0.05))
        return self._rows_by_request.pop(self._request, None)

    def close(self) -> None:
        """Close the connection; the outbox keeps what is not acknowledged."""
        if self._handshakes is not None:
            self._handshakes.close()
        self._socket.close()

    def _send_pending(self) -> None:
        now = self._clock()
        if self._is_silent(now):
            self._reset_session()
            self._hello_at = now
            self._attempt = _AFTER_SILENCE
        if not self._welcomed:
            self._send_hello(now)
            return
        if self._sent == self._acked:
            self._received_at = now
        if self._sent < (last := self.outbox.first_seq - 1):
            rows, reason = self._dropped_rows()
            if not self._send(wire.Skip(self.stream, last, rows - self._reported_rows, reason)):
                return
            self._sent = last
            self._skips.append((last, rows))
        while self._sent < self.outbox.last_seq and self._sent - self._acked < self._credit:
            if not self._send_frame(self.outbox.get(self._sent + 1)):
                return
            self._sent += 1

    def _is_silent(self, now: float) -> bool:
        """Whether an answer is overdue, and none waits to be received: this process may have been suspended."""
        overdue = self._welcomed and self._sent > self._acked and now - self._received_at > SILENCE_SECONDS
        return overdue and not self._can_receive()

    def _can_receive(self) -> bool:
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & _READABLE)

    def _reset_session(self) -> None:
        """Open the stream anew: what the collector has is unknown, and answers to earlier hellos are ignored."""
        self._welcomed = False
        self._number += 1

    def _dropped_rows(self) -> tuple[int, str]:
        """Rows dropped since the last acknowledgement beyond them, and why."""
        if (lost := self.outbox.dropped) is None:
            # Acknowledged once, by a collector that has lost its database since.
            self._skips.clear()
            return 0, "forgotten"
        if lost.rows < self._reported_rows:
            self._skips.clear()
        return lost.rows, lost.reason

    @property
    def _reported_rows(self) -> int:
        """Dropped rows that are in skips already sent."""
        return self._skips[-1][1] if self._skips else 0

    def _send_hello(self, now: float) -> None:
        if now < self._hello_at:
            return
        if self._handshakes is not None and self._handshakes.gave_up():
            self._socket.disconnect(self._endpoint)
            self._socket.connect(self._endpoint)
            self._back_off(now)
        elif self._socket.poll(0, zmq.POLLOUT):
            # The next attempt waits for this hello only if it was sent: without a connection each pump tries again.
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
            case wire.Welcome() if self._welcomed or message.number not in (self._number, _UNNUMBERED):
                # The answer to a repeated or an earlier hello. Messages sent since are under way.
                self._credit = message.credit
                self._advance(message.acked)
            case wire.Welcome():
                self._welcomed = True
                self._trouble = ""
                self._attempt = 0
                self._credit = message.credit
                self._advance(message.acked)
                self._acked = self._sent = message.acked
                # A skip beyond that may be lost.
                self._skips = [skip for skip in self._skips if skip[0] <= message.acked]
            case wire.Refuse():
                self._on_refuse(message)
            case wire.Rows():
                self._rows_by_request = {message.request: message}

    def _advance(self, seq: int) -> None:
        if seq <= self._acked:
            return
        dropped = self.outbox.dropped
        if dropped is not None and self._acked < dropped.seq <= seq:
            self.dropped_rows[dropped.reason] += dropped.rows
        self.acked_rows += self.outbox.ack(seq)
        self._acked = seq
        self._sent = max(self._sent, seq)

    def _on_refuse(self, message: wire.Refuse) -> None:
        self.refusals = [*self.refusals[-9:], message]
        if message.reason in wire.CONSUMED:
            if self.outbox.first_seq <= message.seq <= self.outbox.last_seq:
                rows = self.outbox.rows_in(message.seq)
                self.dropped_rows["refused"] += rows
                self.acked_rows -= rows
        elif self._welcomed:
            # The collector was restarted, or a message was lost.
            self._reset_session()
            self._back_off(self._clock())
        elif message.seq == 0:
            self._trouble = message.detail

    def _send(self, message: wire.FromClient) -> bool:
        return self._send_frame(wire.encode(message))

    def _send_frame(self, frame: bytes) -> bool:
        try:
            self._socket.send(frame, zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True
