"""Handshake failures of a client's connection, from ZeroMQ's socket monitor."""

from __future__ import annotations

import contextlib
import math
import struct
from typing import Final

import zmq

from barograph_agent.system.clock import CLOCK

_EVENT: Final = struct.Struct("=hi")
"""The first frame of a monitor's message. zmq.utils.monitor imports asyncio, a third of the start of a sidecar."""
_TROUBLES: Final[dict[int, str]] = {
    zmq.EVENT_HANDSHAKE_SUCCEEDED: "",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "the collector rejects this key (BAROGRAPH_KEY)",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "of collector and client only one uses keys (BAROGRAPH_KEY)",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "the collector is not the one of this key file (BAROGRAPH_KEY)",
}


class Handshakes:
    """Monitors one socket, from before it connects. Used in the socket's thread only."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.trouble = ""
        """The last failure, for display; empty after a success."""
        self.is_permanent = False
        """Whether the last failure would recur with the same keys."""
        self._socket = socket
        # The connection of a client without a key may be closed before the client receives the reason.
        keyless = {zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: _TROUBLES[zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL]}
        self._troubles = _TROUBLES if socket.mechanism == zmq.CURVE else _TROUBLES | keyless
        self._monitor = socket.get_monitor_socket(sum(_TROUBLES))
        self.connections = 0
        """How often a connection was established, as far as events were read."""

    def gave_up(self) -> bool:
        """Read the monitor's events. True if ZeroMQ does not reconnect by itself: after a key was rejected."""
        given_up = False
        while self._monitor.poll(0):
            event, _ = _EVENT.unpack(self._monitor.recv_multipart()[0])
            self.connections += event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self.trouble = self._troubles.get(event, self.trouble)
            self.is_permanent = event in (zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
            given_up = event == zmq.EVENT_HANDSHAKE_FAILED_AUTH
        return given_up

    def send(self, frame: bytes, seconds: float) -> bool:
        """Send, waiting until the socket accepts a message; False after `seconds` or a permanent failure.

        After a key was rejected the socket accepts no message, and a blocking send would never return.
        """
        deadline = CLOCK.monotonic() + seconds
        while True:
            with contextlib.suppress(zmq.Again):
                self._socket.send(frame, zmq.NOBLOCK)
                return True
            if not self.wait(deadline - CLOCK.monotonic(), zmq.POLLOUT):
                return False

    def wait(self, seconds: float, event: int = zmq.POLLIN) -> bool:
        """Wait for an incoming message, or for `event`; False after `seconds` or a permanent failure."""
        deadline = CLOCK.monotonic() + seconds
        poller = zmq.Poller()
        poller.register(self._socket, event)
        poller.register(self._monitor, zmq.POLLIN)
        while not self.is_permanent:
            ready = dict(poller.poll(max(math.ceil(1000 * (deadline - CLOCK.monotonic())), 0)))
            if self._socket in ready or not ready:
                return self._socket in ready
            self.gave_up()
        return False

    def register(self, poller: zmq.Poller) -> None:
        """Let a poller wait for messages and events."""
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)

    def close(self) -> None:
        """Stop monitoring. To be called before the socket is closed."""
        self._socket.disable_monitor()
        self._monitor.close(0)
