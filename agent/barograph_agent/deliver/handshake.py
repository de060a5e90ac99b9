"""Why a client's connection is not established, from ZeroMQ's monitor of its socket."""

from __future__ import annotations

import contextlib
import math
import time
from typing import Final

import zmq
from zmq.utils.monitor import parse_monitor_message

_WATCHED: Final = (
    zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
)
_TROUBLES: Final[dict[int, str]] = {
    zmq.EVENT_HANDSHAKE_SUCCEEDED: "",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "the collector does not let this key in (BAROGRAPH_KEY)",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "of collector and client only one uses keys (BAROGRAPH_KEY)",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "the collector is not the one of this key file (BAROGRAPH_KEY)",
}


class Handshakes:
    """Watches one socket that is not connected yet. Used in the socket's thread only."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.trouble = ""
        """The last failure, for people; empty after a success."""
        self.is_hopeless = False
        """True after a failure that another attempt with the same keys would repeat."""
        self._socket = socket
        # The connection of a client without a key may be closed before the client has read why.
        keyless = {zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: _TROUBLES[zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL]}
        self._troubles = _TROUBLES if socket.mechanism == zmq.CURVE else _TROUBLES | keyless
        self._monitor = socket.get_monitor_socket(_WATCHED)
        self.connections = 0
        """How often a connection was established, as far as events were read."""

    def gave_up(self) -> bool:
        """Read the monitor's events. True where ZeroMQ does not connect again by itself: after a key was rejected."""
        given_up = False
        while self._monitor.poll(0):
            event = parse_monitor_message(self._monitor.recv_multipart())["event"]
            self.connections += event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self.trouble = self._troubles.get(event, self.trouble)
            self.is_hopeless = event in (zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
            given_up = event == zmq.EVENT_HANDSHAKE_FAILED_AUTH
        return given_up

    def send(self, frame: bytes, seconds: float) -> bool:
        """Send, waiting for room in the socket; False when the time is over, or waiting is hopeless.

        After a key was rejected a socket has no room for a message, and a blocking send would never return.
        """
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(zmq.Again):
                self._socket.send(frame, zmq.NOBLOCK)
                return True
            if not self._wait(zmq.POLLOUT, deadline - time.monotonic()):
                return False

    def wait(self, seconds: float) -> bool:
        """Wait until the socket has something to receive; False when the time is over, or waiting is hopeless."""
        return self._wait(zmq.POLLIN, seconds)

    def close(self) -> None:
        """Stop watching; before the socket closes."""
        self._socket.disable_monitor()
        self._monitor.close(0)

    def _wait(self, event: int, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        poller = zmq.Poller()
        poller.register(self._socket, event)
        poller.register(self._monitor, zmq.POLLIN)
        while not self.is_hopeless:
            ready = dict(poller.poll(max(math.ceil(1000 * (deadline - time.monotonic())), 0)))
            if self._socket in ready or not ready:
                return self._socket in ready
            self.gave_up()
        return False

    def register(self, poller: zmq.Poller) -> None:
        """Let a poller wait for messages and events."""
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
