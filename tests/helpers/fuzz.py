"""Mutated inputs for the ring reader and the wire decoders: what they may do is refuse, and nothing else.

Every input follows from a seed and its number.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from pathlib import Path
from typing import Any

import msgspec

from barograph_agent.deliver.link import Link
from barograph_agent.deliver.outbox import Memory
from barograph_agent.protocol import wire
from barograph_agent.reduce.ring_set import Progress, RingSet
from barograph_agent.ring.reader import HEADER_BYTES
from barograph_agent.system.network import Network
from barograph_agent.system.system import SYSTEM
from barograph_collector.storage import messages as intake
from helpers.hostile_wire import INVALID_APPENDS, NOT_OF_THE_PROTOCOL
from helpers.log import blocks
from helpers.rings import FakeShim

INTERESTING = [0, 1, 0x7F, 0x80, 0xFF, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """The data with one to four changes: bits, bytes, whole integers, pieces left out, doubled or cut off."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not out:
            break
        # Half of the changes are near the beginning, where what decides the rest is.
        at = rng.randrange(min(len(out), 512)) if rng.random() < 0.5 else rng.randrange(len(out))
        match rng.randrange(7):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at] = rng.randrange(256)
            case 2 | 3:
                width = rng.choice([1, 2, 4, 8])
                order = rng.choice(["little", "big"])
                value = (rng.choice(INTERESTING) & (2 ** (8 * width) - 1)).to_bytes(width, order)  # type: ignore[arg-type]
                at -= at % width if rng.random() < 0.7 else 0
                out[at : at + width] = value[: len(out) - at]
            case 4:
                del out[at : at + rng.randint(1, 16)]
            case 5:
                out[at:at] = out[at : at + rng.randint(1, 64)]
            case 6:
                del out[at : len(out) if rng.random() < 0.2 else at + 1]
    return bytes(out)


def alter(frame: bytes, rng: random.Random) -> bytes:
    """The message with one value, or one column, taken away or made another."""
    try:
        message = msgspec.msgpack.decode(frame)
        place = message["columns"] if "columns" in message and rng.random() < 0.6 else message
        key = rng.choice(list(place))
    except (msgspec.DecodeError, ValueError, TypeError, RecursionError, IndexError, AttributeError):
        return mutate(frame, rng)
    old = place.pop(key)
    others = [None, True, "", "x" * 200, b"", [], {}, 0.5, -1, *INTERESTING, [old], str(old)]
    if isinstance(old, bytes | str):
        others += [old[:-1], old * 2]
    if rng.random() < 0.9:
        place[key] = rng.choice(others)
    return msgspec.msgpack.encode(message)


def rings(folder: Path, count: int, seed: int) -> Counter[str]:
    """Reads so many worlds of two rings, of which one is mutated; how many were refused, and how many read."""
    rng, found = random.Random(seed), Counter[str]()
    shims = []
    for rank in range(2):
        shim = FakeShim(folder / f"rank-{rank}.ring")
        shim.set(rank=rank)
        for site in range(3):
            shim.site(16 * site + 1, 0x999)
        for number in range(40 + 20 * rank):
            shim.put(number * 10**8, number % 3 + 1)
        shims.append(shim)
    good = [shim.path.read_bytes() for shim in shims]
    files = [shim.path.open("r+b", buffering=0) for shim in shims]
    for _ in range(count):
        victim = rng.randrange(2)
        worlds = RingSet(folder, Progress())
        if is_open := rng.random() < 0.5:  # a program may write over its ring at any time
            worlds.find()
        written = files[victim].write(mutate(good[victim], rng))
        files[victim].truncate(max(written, HEADER_BYTES) if is_open else written)
        worlds.find()
        for rows in worlds.read(final=True):
            assert 0 < rows.length <= 4096
            found[rows.table] += rows.length
        worlds.counted()
        worlds.release()
        worlds.close()
        for file, data in zip(files, good, strict=True):  # the other's tail has moved
            file.seek(0)
            file.write(data)
            file.seek(0)
        found["refused" if worlds.unreadable else "read"] += 1
    for file in files:
        file.close()
    return found


def frames() -> tuple[list[bytes], list[bytes]]:
    """Good and hostile messages to start from: from clients, and from collectors."""
    columns = wire.pack(blocks(3), wire.TABLES["blocks"].columns)
    sites = {"job": "lab/1.0.0", "class_id": [1, 2], "from_site": ["a", "b"], "to_site": "c", "operation": "d"}
    clients = [
        wire.encode(wire.Hello("lab/1.0.0/abc")),
        wire.encode(wire.append("s", 7, "blocks", 3, blocks(3))),
        wire.encode(wire.append("s", 8, "sites", 2, sites)),
        wire.encode(wire.Skip("s", 9, 100, "spool-cap")),
        wire.encode(wire.Read(1, "blocks", 5, 100, "job")),
    ]
    invalid = [message for message, _ in INVALID_APPENDS.values() if _small(message)]
    clients += [wire.encode(wire.Append("s", 1, **message)) for message in invalid]
    clients += [frame for frame, *more in NOT_OF_THE_PROTOCOL.values() if not more and len(frame) < 5000]
    collectors = [
        wire.encode(wire.Welcome("s", 3, 64)),
        wire.encode(wire.Ack("s", 4, 64)),
        wire.encode(wire.Refuse("s", 4, "gap", "seq is 4, expected 3")),
        wire.encode(wire.Rows(1, "blocks", 3, {"log_offset": bytes(24), **columns}, 17)),
    ]
    return clients, collectors


def _small(message: dict[str, object]) -> bool:
    try:
        return len(msgspec.msgpack.encode(message)) < 5000
    except OverflowError:
        return False


class FakeConnection:
    """A connection of which a test writes what arrives; everything sent is swallowed."""

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.trouble = ""

    def can_receive(self) -> bool:
        """Whether a frame has arrived."""
        return bool(self.frames)

    def receive(self) -> bytes:
        """The next one."""
        return self.frames.popleft()

    def gave_up(self) -> bool:
        """Never."""
        return False

    def can_send(self) -> bool:
        """There is always room."""
        return True

    def send(self, frame: bytes, seconds: float = 0.0) -> bool:
        """Swallowed."""
        return True


class FakeNetwork(Network):
    """Connects everything to one connection."""

    def __init__(self) -> None:
        self.connection = FakeConnection()

    def connect(self, *arguments: Any, **named: Any) -> Any:
        """The connection."""
        return self.connection


def messages(count: int, seed: int) -> Counter[str]:
    """Decodes and checks so many mutated messages of each direction; what became of them."""
    rng, found = random.Random(seed), Counter[str]()
    clients, collectors = frames()
    for _ in range(count):
        frame = rng.choice([mutate, alter])(rng.choice(clients), rng)
        try:
            message = intake.decode([frame])
        except intake.Undecodable:
            found["undecodable"] += 1
            continue
        try:
            if not isinstance(message, wire.Read | wire.Sql):
                intake.check_stream(message.stream)  # as the receiver does before anything else
        except wire.Invalid:
            found["refused"] += 1
            continue
        match message:
            case wire.Append():
                item = intake.appended(message, frame, 0.0)
                found["refused" if item.refusal else "accepted"] += 1
                assert item.rows <= wire.MAX_ROWS
            case wire.Skip():
                intake.skipped(message, 0.0)
                found["accepted"] += 1
            case _:
                found["accepted"] += 1
    for number in range(count):
        if number % 100 == 0:
            link, connection = _link()
        connection.frames.append(rng.choice([mutate, alter])(rng.choice(collectors), rng))
        link.pump()
        found["heard"] += 1
    return found


def _link() -> tuple[Link, FakeConnection]:
    outbox = Memory()
    for _ in range(5):
        outbox.put(1, b"x")
    network = FakeNetwork()
    return Link(
        "tcp://127.0.0.1:1", "s", outbox, system=SYSTEM._replace(network=network, random=random.Random(1))
    ), network.connection
