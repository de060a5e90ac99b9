"""The collector's ROUTER socket: its address, the clients that may connect, and failed handshakes."""

from __future__ import annotations

import contextlib
import errno
import math
import sys
from typing import Any, Final, NamedTuple

import zmq
from zmq.auth.thread import ThreadAuthenticator

from barograph_agent.protocol import wire
from barograph_collector.auth.keys import Keyring
from barograph_collector.daemon.service import CannotListen
from barograph_collector.ingest.streams import CREDIT
from barograph_collector.net.wakeup_queue import WakeupQueue

HANDSHAKE_MS: Final = 10_000
"""A connection whose handshake takes longer is closed: half-open ones cost a descriptor each."""
_BACKLOG: Final = 1024  # connections not accepted yet: all nodes of a large job connect at once
_LINGER_MS: Final = 250
_ZERO_COPY_RECV: Final = 10  # zmq.h; pyzmq has no name for it
_MORE: Final = zmq.NOBLOCK | zmq.SNDMORE
_AT_ONCE: Final = 256  # failures handled before messages are received
_DOMAIN: Final = "barograph"
_FAILURES: Final[dict[int, str]] = {
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL): "handshake",
    int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL): "handshake",
    int(zmq.EVENT_HANDSHAKE_FAILED_AUTH): "key",
}
_CLOSED: Final = (errno.ECONNRESET, errno.EPIPE)
"""By the other side, as the system calls had it."""


class Ready(NamedTuple):
    """What a wait has ended for."""

    calls: bool
    failures: bool
    messages: bool


class RouterSocket:
    """Open from construction to `close`. One thread at a time may use it."""

    def __init__(self, endpoint: str, keyring: Keyring | None) -> None:
        """With a keyring only CURVE clients in it may connect. Raises CannotListen.

        The attribute `endpoint` has the port that was chosen for port 0.
        """
        self._keyring = keyring
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._zap: Any = None
        self._receives: bool | None = None
        with contextlib.suppress(zmq.ZMQError):  # a ZeroMQ without this option
            # With zero copy a queued message of 400 bytes keeps the 8 kB buffer it was received into.
            self._context.set(_ZERO_COPY_RECV, 0)
        self.raw = self._context.socket(zmq.ROUTER)
        self._set_limits(self.raw, endpoint)
        if keyring is not None:
            self._zap = ThreadAuthenticator(self._context)
            self._zap.configure_curve_callback(_DOMAIN, self)
            self._zap.start()
            self.raw.curve_server = True
            self.raw.curve_secretkey = keyring.collector.secret.encode()
            self.raw.zap_domain = _DOMAIN.encode()
        self.monitor = _monitor(self._context, self.raw)
        self._poller = zmq.Poller()
        self._poller.register(self.monitor, zmq.POLLIN)
        try:
            self.raw.bind(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise CannotListen(endpoint, str(error)) from None
        self.endpoint = self.raw.getsockopt_string(zmq.LAST_ENDPOINT)

    def callback(self, domain: str, public: bytes) -> bool:
        """Whether a client with this key may connect; called by a thread of pyzmq."""
        return self._keyring is not None and self._keyring.get(public.decode()) is not None

    def wait(self, mailbox: WakeupQueue[Any], seconds: float | None, *, receives: bool) -> Ready:
        """Wait for a call in the mailbox, a failed handshake and, where it receives, a message; None for no limit."""
        if receives != self._receives:
            self._poller.register(self.raw, zmq.POLLIN if receives else 0)
            self._receives = receives
        self._poller.register(mailbox.fileno(), zmq.POLLIN)
        ready = dict(self._poller.poll(None if seconds is None else math.ceil(1000 * seconds)))
        return Ready(mailbox.fileno() in ready, self.monitor in ready, self.raw in ready)

    def receive(self) -> tuple[bytes, str, list[bytes]]:
        """The next message: its peer, the peer's public key ("" without a keyring), and its frames.

        Raises zmq.Again where there is none.
        """
        if self._keyring is None:
            peer, *frames = self.raw.recv_multipart(zmq.NOBLOCK)
            return peer, "", frames
        first, *rest = self.raw.recv_multipart(zmq.NOBLOCK, copy=False)
        # The key is a property of the connection that ZeroMQ has verified, not part of the message.
        return first.bytes, str(first.get("User-Id")), [frame.bytes for frame in rest]

    def send(self, peer: bytes, message: wire.FromCollector) -> None:
        """Send, or drop the message where the peer's queue is full: clients repeat what is not answered."""
        self.raw.send(peer, _MORE)
        self.raw.send(wire.encode(message), zmq.NOBLOCK)

    def failures(self) -> list[str]:
        """The causes of failed handshakes since the last call, as `counters.REASONS`.

        Without those of connections that were closed by the other side before: commands ask so whether anybody listens.
        """
        found: list[str] = []
        for _ in range(_AT_ONCE):
            try:
                event, _ = self.monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            number, value = (int.from_bytes(part, sys.byteorder) for part in (event[:2], event[2:6]))
            if number != zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL or value not in _CLOSED:
                found.append(_FAILURES[number])
        return found

    def close(self) -> None:
        """Close, after sending what is queued for at most _LINGER_MS."""
        self.raw.monitor(None, 0)
        self.monitor.close(0)
        self.raw.close()
        if self._zap is not None:
            self._zap.stop()
        self._context.term()

    def _set_limits(self, router: zmq.Socket[bytes], endpoint: str) -> None:
        router.setsockopt(zmq.LINGER, _LINGER_MS)
        router.setsockopt(zmq.IPV6, "[" in endpoint)
        router.setsockopt(zmq.MAXMSGSIZE, wire.MAX_BYTES)
        router.setsockopt(zmq.RCVHWM, CREDIT)
        router.setsockopt(zmq.SNDHWM, 2 * CREDIT)
        router.setsockopt(zmq.BACKLOG, _BACKLOG)
        router.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)


def _monitor(context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    """A socket that receives failed handshakes. Unbounded: a full queue would block ZeroMQ's own thread."""
    address = f"inproc://monitor-{id(socket)}"
    socket.monitor(address, sum(_FAILURES))
    monitor = context.socket(zmq.PAIR)
    monitor.setsockopt(zmq.RCVHWM, 0)
    monitor.connect(address)
    return monitor
