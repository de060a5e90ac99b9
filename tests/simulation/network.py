"""A network that delays, loses, repeats and reorders messages, ends connections and separates nodes."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import zmq

from barograph_agent.protocol import wire
from barograph_agent.system.network import Network
from barograph_collector.ingest.streams import CREDIT
from barograph_collector.net.router_socket import Ready
from simulation.machine import Machine, Process, Waiters

CLIENT_QUEUE = 1000
"""Messages that a client's socket holds: ZeroMQ's default."""
SERVER_QUEUE = 2 * CREDIT
RECONNECT_SECONDS = 0.1
"""Multiplied by up to 20, as ZeroMQ backs off."""


@dataclass
class Weather:
    """What happens to messages. Probabilities are of each message, times in seconds."""

    delay: float = 0.001
    loss: float = 0.0
    repeats: float = 0.0
    reorders: float = 0.0
    separated: set[str] = field(default_factory=set)
    """Nodes that reach nobody. What is sent meanwhile arrives afterwards, if the connection lasts."""


class Wire:
    """All connections of a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.weather = Weather()
        self.servers: dict[str, SimulatedRouter] = {}
        self.sessions: dict[Session, None] = {}
        self._peers = itertools.count(1)
        self._healed = Waiters(machine)

    def peer(self) -> bytes:
        """A name for one more connection."""
        return b"peer%d" % next(self._peers)

    def separates(self, one: str, other: str) -> bool:
        """Whether two nodes do not reach each other."""
        return one != other and bool({one, other} & self.weather.separated)

    def separate(self, node: str, seconds: float) -> None:
        """Separate a node from all others for so long."""
        self.weather.separated.add(node)

        def heal() -> None:
            self.weather.separated.discard(node)
            for session in list(self.sessions):
                session.flush()

        self.machine.at(seconds, heal)

    def calm(self) -> None:
        """End all that disturbs messages."""
        self.weather = Weather()
        for session in list(self.sessions):
            session.flush()

    def reset(self, node: str) -> None:
        """End the connections of a node. What is under way is lost."""
        for session in list(self.sessions):
            if session.client.node == node:
                session.end()


class Session:
    """An established connection: what is under way in both directions."""

    def __init__(self, client: SimulatedConnection, server: SimulatedRouter) -> None:
        self.client, self.server = client, server
        self.wire = client.wire
        self.peer = self.wire.peer()
        self.ended = False
        self.held: list[tuple[bool, bytes]] = []
        self.under_way = {True: 0, False: 0}
        self._last = {True: 0.0, False: 0.0}
        self.wire.sessions[self] = None

    @property
    def separated(self) -> bool:
        return self.wire.separates(self.client.node, self.server.node)

    def send(self, to_server: bool, frame: bytes) -> None:
        """Pass on a message."""
        weather, machine = self.wire.weather, self.wire.machine
        self.under_way[to_server] += 1
        if machine.random.random() < weather.loss:
            self.under_way[to_server] -= 1
            return
        if self.separated:
            self.held.append((to_server, frame))
            return
        self._carry(to_server, frame)
        if machine.random.random() < weather.repeats:
            self.under_way[to_server] += 1
            self._carry(to_server, frame)

    def flush(self) -> None:
        """Pass on what was held back."""
        if not self.separated:
            held, self.held = self.held, []
            for to_server, frame in held:
                self._carry(to_server, frame)

    def _carry(self, to_server: bool, frame: bytes) -> None:
        weather, machine = self.wire.weather, self.wire.machine
        arrives = machine.seconds + machine.random.random() * weather.delay
        if machine.random.random() >= weather.reorders:
            # In order, as TCP delivers.
            arrives = self._last[to_server] = max(arrives, self._last[to_server])

        def arrive() -> None:
            if self.ended:
                return
            if self.separated:
                self.held.append((to_server, frame))
                return
            self.under_way[to_server] -= 1
            if to_server:
                self.server.deliver(self, frame)
            else:
                self.client.deliver(frame)

        machine.at(arrives - machine.seconds, arrive)

    def end(self) -> None:
        """End it; both sides learn of it."""
        if self.ended:
            return
        self.ended = True
        self.wire.sessions.pop(self, None)
        self.server.sessions.pop(self.peer, None)
        self.client.lost(self)


class SimulatedConnection:
    """What `system.connection.Connection` offers."""

    def __init__(self, wire: Wire, process: Process, node: str, endpoint: str, *, reads: bool) -> None:
        self.wire, self.node, self.trouble, self.count = wire, node, "", 0
        self._process, self._endpoint, self._reads = process, endpoint, reads
        self._session: Session | None = None
        self._outgoing: deque[bytes] = deque()
        self._incoming: deque[bytes] = deque()
        self._closed = False
        self._attempts = 0
        self.waiters = Waiters(wire.machine)
        process.at_death.append(self.close)
        self._attempt()

    def _attempt(self) -> None:
        if self._closed or self._session is not None:
            return
        server = self.wire.servers.get(self._endpoint)
        machine = self.wire.machine
        if server is None or self.wire.separates(self.node, server.node):
            self._attempts += 1
            wait = RECONNECT_SECONDS * min(2 ** min(self._attempts, 5), 20)
            machine.at(wait * (0.5 + machine.random.random()), self._attempt)
            return
        self._attempts = 0
        self._session = session = Session(self, server)
        server.sessions[session.peer] = session
        self.count += 1
        while self._outgoing:
            session.send(True, self._outgoing.popleft())
        self.waiters.wake_all()

    def lost(self, session: Session) -> None:
        """The connection has ended."""
        if self._session is session:
            self._session = None
            machine = self.wire.machine
            machine.at(RECONNECT_SECONDS * (0.5 + machine.random.random()), self._attempt)
            self.waiters.wake_all()

    def deliver(self, frame: bytes) -> None:
        """A message has arrived."""
        if not self._closed:
            self._incoming.append(frame)
            self.waiters.wake_all()

    def gave_up(self) -> bool:
        return False

    def restart(self) -> None:
        raise AssertionError("only after gave_up")

    def can_send(self) -> bool:
        if self._session is None:
            return self._reads and len(self._outgoing) < CLIENT_QUEUE
        return self._session.under_way[True] + len(self._session.held) < CLIENT_QUEUE

    def can_receive(self) -> bool:
        return bool(self._incoming)

    @property
    def room(self) -> bool:
        """Whether the server's message would fit into the queue of this client."""
        return len(self._incoming) < CLIENT_QUEUE

    def send(self, frame: bytes, seconds: float = 0.0) -> bool:
        self._process.check()
        if not self.can_send() and not (seconds and self.waiters.wait_until(self.can_send, seconds)):
            return False
        if self._session is None:
            self._outgoing.append(frame)
        else:
            self._session.send(True, frame)
        return True

    def receive(self) -> bytes:
        self._process.check()
        return self._incoming.popleft()

    def wait(self, seconds: float) -> bool:
        return self.waiters.wait_until(self.can_receive, seconds)

    def register(self, poller: Any) -> None:
        poller.register(self, zmq.POLLIN)

    def fileno(self) -> int:
        raise AssertionError("a simulated connection has no descriptor")

    def close(self) -> None:
        self._closed = True
        if self._session is not None:
            session, self._session = self._session, None
            session.end()


class SimulatedNetwork(Network):
    """The network as one process sees it."""

    def __init__(self, wire: Wire, process: Process, node: str) -> None:
        self._wire, self._process, self._node = wire, process, node

    def connect(self, endpoint: str, key: Any = None, *, reads: bool = False, limit_bytes: int = -1) -> Any:
        self._process.check()
        return SimulatedConnection(self._wire, self._process, self._node, endpoint, reads=reads)

    def wait(self, sources: Iterable[Any], seconds: float) -> None:
        poller = _Poller()
        for source in sources:
            source.register(poller)
        self._wire.machine.wait_until(
            lambda: any(connection.can_receive() for connection in poller.connections),
            seconds,
            [connection.waiters for connection in poller.connections],
        )


class _Poller:
    def __init__(self) -> None:
        self.connections: list[SimulatedConnection] = []

    def register(self, source: Any, flags: int = 0) -> None:
        if isinstance(source, SimulatedConnection):
            self.connections.append(source)


class SimulatedMailbox:
    """What WakeupQueue offers."""

    def __init__(self, machine: Machine) -> None:
        self._items: deque[Callable[[], object]] = deque()
        self.waiters = Waiters(machine)

    def put(self, item: Callable[[], object]) -> None:
        self._items.append(item)
        self.waiters.wake_all()

    def take(self) -> list[Callable[[], object]]:
        items = list(self._items)
        self._items.clear()
        return items

    def waits(self) -> bool:
        """Whether there are calls."""
        return bool(self._items)

    def close(self) -> None:
        pass


class SimulatedRouter:
    """What RouterSocket offers."""

    def __init__(self, wire: Wire, process: Process, node: str, endpoint: str) -> None:
        self.node, self.endpoint = node, endpoint
        self.sessions: dict[bytes, Session] = {}
        self._wire, self._process = wire, process
        self._incoming: deque[tuple[bytes, bytes]] = deque()
        self.waiters = Waiters(wire.machine)
        wire.servers[endpoint] = self
        process.at_death.append(self.close)

    def deliver(self, session: Session, frame: bytes) -> None:
        """A message has arrived."""
        self._incoming.append((session.peer, frame))
        self.waiters.wake_all()

    def wait(self, mailbox: SimulatedMailbox, seconds: float | None, *, receives: bool) -> Ready:
        self._wire.machine.wait_until(
            lambda: mailbox.waits() or (receives and bool(self._incoming)), seconds, [self.waiters, mailbox.waiters]
        )
        return Ready(mailbox.waits(), False, receives and bool(self._incoming))

    def receive(self) -> tuple[bytes, str, list[bytes]]:
        self._process.check()
        if not self._incoming:
            raise zmq.Again
        peer, frame = self._incoming.popleft()
        return peer, "", [frame]

    def send(self, peer: bytes, message: wire.FromCollector) -> None:
        self._process.check()
        session = self.sessions.get(peer)
        if session is not None and session.client.room and session.under_way[False] < SERVER_QUEUE:
            session.send(False, wire.encode(message))

    def failures(self) -> list[str]:
        return []

    def close(self) -> None:
        if self._wire.servers.get(self.endpoint) is self:
            del self._wire.servers[self.endpoint]
        for session in list(self.sessions.values()):
            session.end()
