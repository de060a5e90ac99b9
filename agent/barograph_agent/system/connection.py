"""A client's connection to the collector: a ZeroMQ DEALER."""

from __future__ import annotations

import contextlib
from typing import Final, Protocol

import zmq

from barograph_agent.system.handshake import Handshakes

_READABLE: Final = int(zmq.POLLIN)  # operators of the enum take a microsecond each


class SocketKey(Protocol):
    """A key that is applied to a socket before it connects, such as `keys.ClientKey`."""

    def apply(self, socket: zmq.Socket[bytes]) -> None:
        """Enable CURVE on a socket."""
        ...


class Connection:
    """Connects, and connects again, until it is closed. For one thread."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        key: SocketKey | None,
        *,
        reads: bool,
        limit_bytes: int,
    ) -> None:
        """See Network.connect."""
        self._endpoint = endpoint
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IPV6, "[" in endpoint)
        self._socket.setsockopt(zmq.MAXMSGSIZE, limit_bytes)
        if not reads:
            self._socket.setsockopt(zmq.IMMEDIATE, 1)
            self._socket.setsockopt(zmq.RECONNECT_IVL, 100)
            self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 2000)
        if key is not None:
            key.apply(self._socket)
        # Each monitor is one more socket: of thousands of links without keys none needs it.
        self._handshakes = Handshakes(self._socket) if reads or key is not None else None
        self._reads = reads
        self._socket.connect(endpoint)

    @property
    def trouble(self) -> str:
        """The last failure of a handshake, for display; empty after a success."""
        return self._handshakes.trouble if self._handshakes is not None else ""

    @property
    def count(self) -> int:
        """How often it was established, as far as `wait` has read events."""
        return self._handshakes.connections if self._handshakes is not None else 0

    def gave_up(self) -> bool:
        """Whether ZeroMQ does not reconnect by itself: after a key was rejected."""
        return self._handshakes is not None and self._handshakes.gave_up()

    def restart(self) -> None:
        """Connect again after `gave_up`."""
        self._socket.disconnect(self._endpoint)
        self._socket.connect(self._endpoint)

    def can_send(self) -> bool:
        """Whether a message would be accepted."""
        return bool(self._socket.poll(0, zmq.POLLOUT))

    def can_receive(self) -> bool:
        """Whether a message has arrived."""
        return bool(int(self._socket.getsockopt(zmq.EVENTS)) & _READABLE)

    def send(self, frame: bytes, seconds: float = 0.0) -> bool:
        """Send, waiting at most so long until a message is accepted; False if none is."""
        if seconds and self._handshakes is not None:
            return self._handshakes.send(frame, seconds)
        with contextlib.suppress(zmq.Again):
            self._socket.send(frame, zmq.NOBLOCK)
            return True
        return False

    def receive(self) -> bytes:
        """The next message; only after `can_receive` or `wait` said that there is one."""
        return self._socket.recv(zmq.NOBLOCK)

    def wait(self, seconds: float) -> bool:
        """Wait for a message; False after `seconds`, or a failure that would recur with the same keys."""
        if self._handshakes is not None and self._reads:
            return self._handshakes.wait(seconds)
        return bool(self._socket.poll(int(1000 * seconds)))

    def register(self, poller: zmq.Poller) -> None:
        """Let a poller wait for messages and, where it is for reading, for events."""
        if self._handshakes is not None and self._reads:
            self._handshakes.register(poller)
        else:
            poller.register(self._socket, zmq.POLLIN)

    def fileno(self) -> int:
        """A descriptor that becomes readable when a message arrives; edge-triggered, as ZeroMQ's are."""
        return self._socket.fileno()

    def close(self) -> None:
        """Disconnect. What is not sent is lost."""
        if self._handshakes is not None:
            self._handshakes.close()
        self._socket.close()
