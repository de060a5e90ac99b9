"""A client's connection to the collector: a ZeroMQ DEALER, and why its handshake failed."""

from __future__ import annotations

import contextlib
import math
import struct
from typing import Final, Protocol

import zmq

from barograph_agent.system.clock import CLOCK

_READABLE: Final = int(zmq.POLLIN)  # operators of the enum take a microsecond each
_EVENT: Final = struct.Struct("=hi")
"""The first frame of a monitor's message. zmq.utils.monitor imports asyncio, a third of the start of a sidecar."""
_TROUBLES: Final[dict[int, str]] = {
    zmq.EVENT_HANDSHAKE_SUCCEEDED: "",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "the collector rejects this key (BAROGRAPH_KEY)",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "of collector and client only one uses keys (BAROGRAPH_KEY)",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "the collector is not the one of this key file (BAROGRAPH_KEY)",
}


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
        self.trouble = ""
        """The last failure of a handshake, for display; empty after a success."""
        self.count = 0
        """How often it was established, as far as `wait` has read events."""
        self._is_permanent = False
        """Whether the last failure would recur with the same keys."""
        self._endpoint = endpoint
        self._reads = reads
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
        # The connection of a client without a key may be closed before the client receives the reason.
        keyless = {zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: _TROUBLES[zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL]}
        self._troubles = _TROUBLES | (keyless if key is None else {})
        # Each monitor is one more socket: of thousands of links without keys none needs it.
        self._monitor = self._socket.get_monitor_socket(sum(_TROUBLES)) if reads or key is not None else None
        self._socket.connect(endpoint)

    def gave_up(self) -> bool:
        """Read the events of the handshake. True if ZeroMQ does not reconnect by itself: after a key was rejected."""
        given_up = False
        while self._monitor is not None and self._monitor.poll(0):
            event, _ = _EVENT.unpack(self._monitor.recv_multipart()[0])
            self.count += event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self.trouble = self._troubles.get(event, self.trouble)
            self._is_permanent = event in (zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
            given_up = event == zmq.EVENT_HANDSHAKE_FAILED_AUTH
        return given_up

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
        """Send, waiting at most so long until a message is accepted; False if none is, or after a permanent failure.

        After a key was rejected the socket accepts no message, and a blocking send would never return.
        """
        deadline = CLOCK.monotonic() + seconds
        while True:
            with contextlib.suppress(zmq.Again):
                self._socket.send(frame, zmq.NOBLOCK)
                return True
            if not seconds or self._monitor is None or not self._wait(deadline - CLOCK.monotonic(), zmq.POLLOUT):
                return False

    def receive(self) -> bytes:
        """The next message; only after `can_receive` or `wait` said that there is one."""
        return self._socket.recv(zmq.NOBLOCK)

    def wait(self, seconds: float) -> bool:
        """Wait for a message; False after `seconds`, or a failure that would recur with the same keys."""
        return self._wait(seconds, zmq.POLLIN) if self._reads else bool(self._socket.poll(int(1000 * seconds)))

    def _wait(self, seconds: float, event: int) -> bool:
        deadline = CLOCK.monotonic() + seconds
        poller = zmq.Poller()
        poller.register(self._socket, event)
        poller.register(self._monitor, zmq.POLLIN)
        while not self._is_permanent:
            ready = dict(poller.poll(max(math.ceil(1000 * (deadline - CLOCK.monotonic())), 0)))
            if self._socket in ready or not ready:
                return self._socket in ready
            self.gave_up()
        return False

    def register(self, poller: zmq.Poller) -> None:
        """Register for messages and, where it is for reading, for events of the handshake."""
        poller.register(self._socket, zmq.POLLIN)
        if self._reads:
            poller.register(self._monitor, zmq.POLLIN)

    def fileno(self) -> int:
        """A descriptor that becomes readable when a message arrives; edge-triggered, as ZeroMQ's are."""
        return self._socket.fileno()

    def close(self) -> None:
        """Disconnect. What is not sent is lost."""
        if self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close(0)
        self._socket.close()
