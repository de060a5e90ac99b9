"""Connections, and waiting for several of them."""

from __future__ import annotations

import math
import select
from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

from barograph_agent.system.clock import CLOCK

if TYPE_CHECKING:
    import zmq

    from barograph_agent.system.connection import Connection, SocketKey


class Source(Protocol):
    """What can be waited for, such as a Connection."""

    def register(self, poller: zmq.Poller) -> None:
        """Let a poller wait for it."""
        ...


class Descriptor:
    """A descriptor that can be waited for, such as the end of a pipe."""

    def __init__(self, number: int) -> None:
        self._number = number

    def register(self, poller: zmq.Poller) -> None:
        """Let a poller wait for it."""
        poller.register(self._number, select.POLLIN)

    def is_readable(self) -> bool:
        """Whether there is something to read, or the other end is closed."""
        return bool(select.select([self._number], [], [], 0)[0])


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
            source.register(poller)
        poller.poll(math.ceil(seconds * 1000))
