"""The producer's end of the log: delivers an outbox to the collector, in order, exactly once, and never blocks.

A link says hello until it is welcomed, sends what credit allows, forgets what is acknowledged, and after a silence
says hello again and resends from what the collector has. So it does not matter who is restarted when.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

import msgspec
import zmq

from barograph_agent.deliver.credential import CredentialError
from barograph_agent.deliver.handshake import Handshakes
from barograph_agent.deliver.keys import ClientKey
from barograph_agent.deliver.outbox import Outbox
from barograph_agent.protocol import wire

SILENCE_SECONDS: Final = 2.0
"""Without an answer for this long while one is due, the collector counts as away."""
BACKOFF_LIMIT_SECONDS: Final = 5.0
_AFTER_SILENCE: Final = 4
"""The attempt that a hello after a silence counts as: a collector that is busy needs no second one soon."""
_UNNUMBERED: Final = 0
"""In the welcome of a collector that does not know of numbers."""
_READABLE: Final = int(zmq.POLLIN)  # of its enum's operators each costs a microsecond


def backoff(attempt: int, rng: random.Random) -> float:
    """Seconds until hello number `attempt` (0, 1, ...): 0.1 doubling to the limit, with up to half of it as jitter."""
    return min(0.1 * 2.0 ** min(attempt, 16), BACKOFF_LIMIT_SECONDS) * (1.0 + 0.5 * rng.random())


def pump(links: Collection[Link], timeout: float) -> None:
    """Pump several links, waiting at most `timeout` seconds until one of them has something to receive."""
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
        outbox: Outbox,
        *,
        key: ClientKey | None = None,
        credential: Callable[[str], str] | None = None,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        seed: int | None = None,
    ) -> None:
        """`credential` makes one for a stream, for each hello anew; it may raise CredentialError."""
        self.stream = stream
        self.outbox = outbox
        self.acked_rows = 0
        self._skips: list[tuple[int, int]] = []
        """Number and rows, all since the outbox began to give up, of skips sent."""
        self.dropped_rows: Counter[str] = Counter()
        self.refusals: list[wire.Refuse] = []
        self._trouble = ""
        self._clock = clock
        self._rng = random.Random(seed)
        self._credential = credential
        self._endpoint = endpoint
        self._socket = (context or zmq.Context.instance()).socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        # Nothing may queue towards a collector that is not there: it would arrive after a resend, out of order.
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
        """How often this stream was to be opened: hellos that are only repeated have the same."""
        self._hello_at = clock()
        self._heard_at = float("-inf")
        self._acked = 0
        self._sent = 0
        self._credit = 0
        self._rows_by_request: dict[int, wire.Rows] = {}
        self._request = 0

    @property
    def connected(self) -> bool:
        """True while the collector has welcomed this stream and answers."""
        return self._welcomed

    @property
    def trouble(self) -> str:
        """In words, why this link has not been let in; empty while that is not known, or not so."""
        # ZeroMQ's monitor may tell of the handshake that went well after the welcome has come.
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
        """Send and receive whatever can be, waiting at most `timeout` seconds for something to arrive."""
        self._speak()
        if timeout > 0:
            self._socket.poll(int(timeout * 1000))
        # Ends only when nothing is left to hear: the socket's descriptor tells of a message once.
        while self._has_mail():
            self._hear(self._socket.recv(zmq.NOBLOCK))
            self._speak()

    def register(self, poller: zmq.Poller) -> None:
        """Let a poller wait until `pump` has something to receive."""
        poller.register(self._socket, zmq.POLLIN)

    def fileno(self) -> int:
        """A descriptor that becomes readable when `pump` has something to hear, edge-triggered as ZeroMQ's are."""
        return self._socket.fileno()

    def wait_idle(self, seconds: float) -> bool:
        """Pump until everything is acknowledged or the time is over; says which."""
        deadline = self._clock() + seconds
        while not self.idle and (left := deadline - self._clock()) > 0:
            self.pump(min(left, 0.05))
        return self.idle

    def read(self, table: str, after: int, limit: int, job: str, seconds: float) -> wire.Rows | None:
        """One read over the same connection; None where no answer came in time."""
        self._request += 1
        deadline = self._clock() + seconds
        if not self._send(wire.Read(self._request, table, after, limit, job)):
            return None
        while self._request not in self._rows_by_request and (left := deadline - self._clock()) > 0:
            self.pump(min(left, 0.05))
        return self._rows_by_request.pop(self._request, None)

    def close(self) -> None:
        """Drop the connection; the outbox keeps what was not acknowledged."""
        if self._handshakes is not None:
            self._handshakes.close()
        self._socket.close()

    def _speak(self) -> None:
        now = self._clock()
        if self._is_silent(now):
            self._doubt()
            self._hello_at = now
            self._attempt = _AFTER_SILENCE
        if not self._welcomed:
            self._knock(now)
            return
        if self._sent == self._acked:
            self._heard_at = now
        if self._sent < (gone := self.outbox.first_seq - 1):
            rows, reason = self._given_up()
            if not self._send(wire.Skip(self.stream, gone, rows - self._told, reason)):
                return
            self._sent = gone
            self._skips.append((gone, rows))
        while self._sent < self.outbox.last_seq and self._sent - self._acked < self._credit:
            if not self._send_frame(self.outbox.get(self._sent + 1)):
                return
            self._sent += 1

    def _is_silent(self, now: float) -> bool:
        """Whether an answer is overdue. One that has come while this process had no turn is only not heard yet."""
        overdue = self._welcomed and self._sent > self._acked and now - self._heard_at > SILENCE_SECONDS
        return overdue and not self._has_mail()

    def _has_mail(self) -> bool:
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & _READABLE)

    def _doubt(self) -> None:
        """Where the collector stands is not known any more, and what was said before now is no answer to that."""
        self._welcomed = False
        self._number += 1

    def _given_up(self) -> tuple[int, str]:
        """Rows given up since the last acknowledgement beyond them, and why."""
        if (lost := self.outbox.dropped) is None:
            # Acknowledged by a collector that has lost its database since.
            self._skips.clear()
            return 0, "forgotten"
        if lost.rows < self._told:
            self._skips.clear()
        return lost.rows, lost.reason

    @property
    def _told(self) -> int:
        """Of the rows given up, those that skips under way or taken have told of."""
        return self._skips[-1][1] if self._skips else 0

    def _knock(self, now: float) -> None:
        if now < self._hello_at:
            return
        if self._handshakes is not None and self._handshakes.gave_up():
            self._socket.disconnect(self._endpoint)
            self._socket.connect(self._endpoint)
            self._back_off(now)
        elif self._socket.poll(0, zmq.POLLOUT):
            # Only a hello that went out is waited for: while nobody is connected, each pump is a new chance.
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

    def _hear(self, frame: bytes) -> None:
        try:
            message = wire.decode_from_collector(frame)
        except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError, TypeError):
            return
        self._heard_at = self._clock()
        match message:
            case wire.Ack():
                self._credit = message.credit
                self._advance(message.seq)
            case wire.Welcome() if self._welcomed or message.number not in (self._number, _UNNUMBERED):
                # The answer to a hello said twice, or long ago. What was sent since is on its way.
                self._credit = message.credit
                self._advance(message.acked)
            case wire.Welcome():
                self._welcomed = True
                self._trouble = ""
                self._attempt = 0
                self._credit = message.credit
                self._advance(message.acked)
                self._acked = self._sent = message.acked
                # A skip beyond that may be lost on the way.
                self._skips = [skip for skip in self._skips if skip[0] <= message.acked]
            case wire.Refuse():
                self._refused(message)
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

    def _refused(self, message: wire.Refuse) -> None:
        self.refusals = [*self.refusals[-9:], message]
        if message.reason in wire.CONSUMED:
            if self.outbox.first_seq <= message.seq <= self.outbox.last_seq:
                rows = self.outbox.rows_in(message.seq)
                self.dropped_rows["refused"] += rows
                self.acked_rows -= rows
        elif self._welcomed:
            # The collector was restarted, or something was lost on the way.
            self._doubt()
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
