"""Connections, and waiting for several of them."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol, TypeAlias

from barograph_agent.system.clock import CLOCK

if TYPE_CHECKING:
    import zmq

    from barograph_agent.system.connection import Connection, SocketKey


class Pollable(Protocol):
    """What a poller can wait for, such as a Connection."""

    def register(self, poller: zmq.Poller) -> None:
        """Let a poller wait for it."""
        ...


Source: TypeAlias = Pollable | int
"""What can be waited for, or its descriptor."""


class Network:
    """The network of this node."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]] | None = None) -> None:
        """context: for connections within a process."""
        self._context = context

    def connect(
        self, endpoint: str, key: SocketKey | None = None, *, reads: bool = False, limit_bytes: int = -1
    ) -> Connection:
        """A connection to a collector, for requests (reads) or for a stream.

        Requests are queued until the first connection is established. Messages of a stream are accepted only while
        there is one: they would arrive after a resend, out of order. limit_bytes: of one message; -1 for no limit.
        Raises OSError where a descriptor is missing: what handles the errors of files handles that too.
        """
        # A launcher has no connections, and begins before this is imported.
        import zmq

        from barograph_agent.system.connection import Connection

        context = self._context or zmq.Context.instance()
        try:
            return Connection(context, endpoint, key, reads=reads, limit_bytes=limit_bytes)
        except zmq.ZMQError as error:
            raise OSError(error.errno, error.strerror) from None

    def wait(self, sources: Collection[Source], seconds: float) -> None:
        """Wait at most `seconds` until one of the sources has something to read."""
        if not sources:
            # A poller without sockets does not wait.
            CLOCK.sleep(seconds)
            return
        import zmq

        poller = zmq.Poller()
        for source in sources:
            if isinstance(source, int):
                poller.register(source, zmq.POLLIN)
            else:
                source.register(poller)
        poller.poll(math.ceil(seconds * 1000))
