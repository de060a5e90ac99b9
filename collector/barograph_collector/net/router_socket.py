"""The collector's ROUTER socket: where it listens, who may connect, and which connections did not come about."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Final

import zmq
from zmq.auth.thread import ThreadAuthenticator

from barograph_agent.protocol import wire
from barograph_collector.auth.keys import Keyring
from barograph_collector.daemon.service import CannotListen
from barograph_collector.ingest.streams import CREDIT

HANDSHAKE_MS: Final = 10_000
"""A connection that has not said by then what a client says is closed: half-open ones cost a descriptor each."""
_BACKLOG: Final = 1024  # connections not accepted yet: a large job starts everywhere at once
_LINGER_MS: Final = 250
_ZERO_COPY_RECV: Final = 10  # zmq.h; pyzmq has no name for it
_MORE: Final = zmq.NOBLOCK | zmq.SNDMORE
_AT_ONCE: Final = 256  # failures taken before messages get their turn again
_DOMAIN: Final = "barograph"
_FAILURES: Final[dict[int, str]] = {
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL): "handshake",
    int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL): "handshake",
    int(zmq.EVENT_HANDSHAKE_FAILED_AUTH): "key",
}


class RouterSocket:
    """Open from construction to `close`. Made by one thread and then used by another, never by two at once."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str, keyring: Keyring | None) -> None:
        """With a keyring only CURVE clients that it knows are let in. Raises CannotListen.

        `endpoint` becomes the one bound to, with the port that was chosen for port 0.
        """
        self._keyring = keyring
        self._authenticator: Any = None
        with contextlib.suppress(zmq.ZMQError):  # a ZeroMQ that has no such option
            # Where nothing is copied a message of 400 bytes that waits holds the 8 kB it was read into.
            context.set(_ZERO_COPY_RECV, 0)
        self.socket = context.socket(zmq.ROUTER)
        self._set_limits(self.socket, endpoint)
        if keyring is not None:
            self._authenticator = ThreadAuthenticator(context)
            self._authenticator.configure_curve_callback(_DOMAIN, self)
            self._authenticator.start()
            self.socket.curve_server = True
            self.socket.curve_secretkey = keyring.collector.secret.encode()
            self.socket.zap_domain = _DOMAIN.encode()
        self.monitor = _monitor(context, self.socket)
        try:
            self.socket.bind(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise CannotListen(endpoint, str(error)) from None
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def callback(self, domain: str, public: bytes) -> bool:
        """Whether a client with this key may connect; asked by the authenticator's thread."""
        return self._keyring is not None and self._keyring.get(public.decode()) is not None

    def receive(self) -> tuple[bytes, str, list[bytes]]:
        """The next message: its peer, the peer's public key ("" where there are no keys), and its frames.

        Raises zmq.Again where there is none.
        """
        if self._keyring is None:
            peer, *frames = self.socket.recv_multipart(zmq.NOBLOCK)
            return peer, "", frames
        first, *rest = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
        # ZeroMQ itself says whose key the connection came with; nothing in the message could.
        return first.bytes, str(first.get("User-Id")), [frame.bytes for frame in rest]

    def send(self, peer: bytes, message: wire.FromCollector) -> None:
        """Send, or drop what the peer does not take: clients ask again, so nothing is lost but time."""
        self.socket.send(peer, _MORE)
        self.socket.send(wire.encode(message), zmq.NOBLOCK)

    def failures(self) -> list[str]:
        """Why connections did not come about since the last call, as `counters.REASONS`."""
        found: list[str] = []
        while len(found) < _AT_ONCE:
            try:
                event, _ = self.monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            found.append(_FAILURES[int.from_bytes(event[:2], sys.byteorder)])
        return found

    def close(self) -> None:
        """Send what is under way, for a moment, and close."""
        self.socket.monitor(None, 0)
        self.monitor.close(0)
        self.socket.close()
        if self._authenticator is not None:
            self._authenticator.stop()

    def _set_limits(self, router: zmq.Socket[bytes], endpoint: str) -> None:
        router.setsockopt(zmq.LINGER, _LINGER_MS)
        router.setsockopt(zmq.IPV6, "[" in endpoint)
        router.setsockopt(zmq.MAXMSGSIZE, wire.MAX_BYTES)
        router.setsockopt(zmq.RCVHWM, CREDIT)
        router.setsockopt(zmq.SNDHWM, 2 * CREDIT)
        router.setsockopt(zmq.BACKLOG, _BACKLOG)
        router.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)


def _monitor(context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes]) -> zmq.Socket[bytes]:
    """A socket that hears of failed handshakes. Without a bound: ZeroMQ's own thread would wait where it is full."""
    address = f"inproc://door-{id(socket)}"
    socket.monitor(address, sum(_FAILURES))
    monitor = context.socket(zmq.PAIR)
    monitor.setsockopt(zmq.RCVHWM, 0)
    monitor.connect(address)
    return monitor
