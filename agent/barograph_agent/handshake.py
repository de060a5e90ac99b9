"""Why a client's connection does not come about, as ZeroMQ's monitor of its socket tells."""

from __future__ import annotations

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
    """Watches one socket that is not connected yet. Belongs to the socket's thread."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.trouble = ""
        """In words, what went wrong last; empty while all is well."""
        self._socket = socket
        self._monitor = socket.get_monitor_socket(_WATCHED)

    def gave_up(self) -> bool:
        """Take note of what happened; True where ZeroMQ will not try again by itself: after a key was turned down."""
        given_up = False
        while self._monitor.poll(0):
            event = parse_monitor_message(self._monitor.recv_multipart())["event"]
            self.trouble = _TROUBLES.get(event, self.trouble)
            given_up = event == zmq.EVENT_HANDSHAKE_FAILED_AUTH
        return given_up

    def close(self) -> None:
        """Stop watching; before the socket closes."""
        self._socket.disable_monitor()
        self._monitor.close(0)
