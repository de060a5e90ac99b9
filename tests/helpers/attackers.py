"""Producers that mean no good, or know no better. Each goes on until it is told to stop."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import msgspec
import zmq

from barograph_agent.deliver import credential
from barograph_agent.deliver.keys import ClientKey
from barograph_agent.protocol import wire
from helpers.hostile_wire import INVALID_APPENDS, NOT_OF_THE_PROTOCOL, mutations
from helpers.log import blocks

Attack = Callable[[str, Callable[[], bool]], None]


@contextmanager
def dealer(endpoint: str, key: ClientKey | None = None) -> Iterator[zmq.Socket[bytes]]:
    """A socket that waits for nothing."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as bare:
        if key is not None:
            key.apply(bare)
        bare.setsockopt(zmq.LINGER, 0)
        bare.setsockopt(zmq.SNDTIMEO, 100)
        bare.connect(endpoint)
        yield bare


def send(bare: zmq.Socket[bytes], *frames: bytes) -> bool:
    """Send, unless the collector has not made room for a while; returns whether it was sent."""
    try:
        bare.send_multipart(frames)
    except zmq.Again:
        return False
    return True


def mutate(endpoint: str, stopped: Callable[[], bool]) -> None:
    """Messages with bytes changed, and everything else that has ever surprised a layer."""
    with dealer(endpoint) as bare:
        bare.send(wire.encode(wire.Hello("hostile")))
        for number, frame in enumerate(mutations(seed=2, count=2**40)):
            if stopped():
                return
            send(bare, frame)
            if number % 1000 == 0:
                for frames in NOT_OF_THE_PROTOCOL.values():
                    send(bare, *frames)


def ignore_answers(endpoint: str, stopped: Callable[[], bool]) -> None:
    """Appends without an end and without regard to credit; no answer is read after the welcome."""
    rows = blocks(100)
    with dealer(endpoint) as bare:
        bare.setsockopt(zmq.RCVHWM, 1)
        bare.send(wire.encode(wire.Hello("deaf")))
        bare.recv()
        # What comes again or out of order takes no credit.
        seq = 1
        while not stopped():
            seq += send(bare, wire.encode(wire.append("deaf", seq, "blocks", 100, rows)))


def refused(endpoint: str, stopped: Callable[[], bool]) -> None:
    """Appends that are refused in words, one after the other."""
    contents = itertools.cycle(content for content, _ in INVALID_APPENDS.values())
    with dealer(endpoint) as bare:
        bare.send(wire.encode(wire.Hello("wrong")))
        bare.recv()  # welcome: what comes before it is no stream of anybody's
        for seq, content in enumerate(contents, 1):
            if stopped():
                return
            send(bare, wire.encode(wire.Append("wrong", seq, **content)))


def oversize(endpoint: str, stopped: Callable[[], bool]) -> None:
    """Appends beyond what is taken, and frames beyond what is read."""
    sites = {"job": "lab/1.0.0", "class_id": 1, "from_site": ["x" * 65536] * 140, "to_site": "", "operation": "o"}
    too_large = wire.encode(wire.Append("large", 1, "sites", 140, sites))
    while not stopped():
        with dealer(endpoint) as bare:
            bare.send(wire.encode(wire.Hello("large")))
            for frame in (too_large, too_large, bytes(wire.MAX_BYTES + 1)):
                # An answer says that what came before has arrived: what a socket still has is lost with it.
                if bare.poll(1000):
                    bare.recv()
                send(bare, frame)
            bare.poll(100)


def half_open(endpoint: str, stopped: Callable[[], bool], connections: int = 10_000) -> None:
    """Connections on which nothing is ever said; one that the collector closes is made again."""
    address = urlsplit(endpoint)
    held: dict[int, socket.socket] = {}
    with select.epoll() as closed:
        while not stopped():
            for descriptor, _ in closed.poll(0.0 if len(held) < connections else 0.1):
                held.pop(descriptor).close()
            if len(held) < connections:
                with contextlib.suppress(OSError):
                    fresh = socket.create_connection((address.hostname or "", address.port or 0), 1.0)
                    held[fresh.fileno()] = fresh
                    closed.register(fresh, select.EPOLLRDHUP)
    for connection in held.values():
        connection.close()


@dataclass(frozen=True)
class Access:
    """What a user of the machine has who means no good: the key of all agents, and a token of a job of his own."""

    key: ClientKey
    token: credential.Token

    @property
    def job(self) -> str:
        """A step of that job."""
        return f"{self.token.job}.0.0"

    def proof(self, stream: str) -> str:
        """A good credential for one hello of a stream."""
        proof = credential.prove(self.token, stream, time.time(), secrets.token_hex(16))
        return "token:" + msgspec.json.encode(proof).decode()


def forge(endpoint: str, stopped: Callable[[], bool], access: Access) -> None:
    """Rows of other users' jobs over a stream of one's own, and hellos for streams of theirs."""
    stream, other = f"{access.job}/n1", "lab/1.0.0"
    with dealer(endpoint, access.key) as bare:
        bare.send(wire.encode(wire.Hello(stream, credential=access.proof(stream))))
        bare.recv()
        for seq in itertools.count(1):
            if stopped():
                return
            send(bare, wire.encode(wire.append(stream, seq, "blocks", 10, blocks(10, job=other))))
            send(bare, wire.encode(wire.Hello(f"{other}/n1", credential=access.proof(f"{other}/n1"))))


def replay(endpoint: str, stopped: Callable[[], bool], access: Access) -> None:
    """One hello with a good credential, over and over."""
    stream = f"{access.job}/n1"
    hello = wire.encode(wire.Hello(stream, credential=access.proof(stream)))
    with dealer(endpoint, access.key) as bare:
        while not stopped():
            send(bare, hello)


ATTACKS: Final[dict[str, Attack]] = {
    "mutated messages": mutate,
    "acks never read": ignore_answers,
    "refused appends": refused,
    "oversized frames": oversize,
    "half-open connections": half_open,
}

ATTACKS_WITH_A_KEY: Final[dict[str, Callable[[str, Callable[[], bool], Access], None]]] = {
    "forged jobs": forge,
    "replayed credentials": replay,
}


@contextmanager
def under(attack: Attack, endpoint: str) -> Iterator[None]:
    """Run an attack in a thread beside what is done within."""
    over = threading.Event()
    thread = threading.Thread(target=attack, args=(endpoint, over.is_set))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
