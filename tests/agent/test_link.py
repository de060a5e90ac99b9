"""The link against a scripted collector, on a simulated clock."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph_agent.deliver.link import BACKOFF_LIMIT_SECONDS, SILENCE_SECONDS, Link, pump
from barograph_agent.deliver.outbox import Memory, Outbox
from barograph_agent.deliver.spool import Spool
from barograph_agent.protocol import wire
from helpers.clocks import system_at
from helpers.log import wait_until
from helpers.up import free_ports

FIRST_BACKOFF = 0.15
"""Upper bound on the wait before the second hello, in seconds."""


class Clock:
    """Simulated seconds; each reading adds `tick`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.tick = 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


class Script:
    """The collector's end: a ROUTER socket in this thread."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        self.socket = context.socket(zmq.ROUTER)
        self.socket.bind(endpoint)
        self.peer = b""

    def received(self) -> list[wire.FromClient]:
        """The messages received since the last call."""
        messages = []
        while self.socket.poll(0):
            self.peer, frame = self.socket.recv_multipart()
            messages.append(wire.decode_from_client(frame))
        return messages

    def send(self, *messages: wire.FromCollector | bytes) -> None:
        """Send messages to the link."""
        for message in messages:
            self.socket.send_multipart([self.peer, message if isinstance(message, bytes) else wire.encode(message)])


class Pair:
    """A link with an outbox in memory, and its scripted collector."""

    def __init__(self, cap_messages: int = 1000) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.script = Script(self.context, "inproc://collector")
        self.clock = Clock()
        self.outbox: Outbox[Any] = Memory(cap_messages=cap_messages)
        self.link = Link("inproc://collector", "s", self.outbox, system=system_at(self.clock, self.context))

    def spool(self, folder: Path) -> Spool:
        """Replace the outbox by a spool in files."""
        self.link.close()
        self.outbox = spool = Spool(folder / "spool")
        self.link = Link("inproc://collector", "s", spool, system=system_at(self.clock, self.context))
        return spool

    def put(self, *rows: int) -> None:
        for count in rows:
            values = {"source": "s", "kind": "k", "rows": 0, "detail": "", "time": 0.0}
            message = wire.append("s", self.outbox.next_seq, "events", count, values)
            self.outbox.put(count, wire.encode(message))

    def pump(self, seconds: float = 0.0) -> list[wire.FromClient]:
        """Advance the clock and pump; returns the messages that the collector received."""
        self.clock.now += seconds
        self.link.pump()
        return self.script.received()

    def pump_seqs(self, seconds: float = 0.0) -> list[int]:
        messages = self.pump(seconds)
        assert all(isinstance(message, wire.Append) for message in messages), messages
        return [message.seq for message in messages]

    def answer(self, *messages: wire.FromCollector | bytes) -> list[wire.FromClient]:
        self.script.send(*messages)
        return self.pump()

    def open(self, acked: int = 0, credit: int = 64) -> list[int]:
        """Hello and welcome; returns the numbers of the messages sent thereafter."""
        assert self.pump() == [hello(1)]
        return [message.seq for message in self.answer(welcome(1, acked, credit))]

    def close(self) -> None:
        self.link.close()
        self.script.socket.close()
        self.context.term()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def hello(number: int) -> wire.Hello:
    return wire.Hello("s", number=number)


def welcome(number: int, acked: int, credit: int = 64) -> wire.Welcome:
    return wire.Welcome("s", acked, credit, number=number)


def ack(seq: int, credit: int = 64) -> wire.Ack:
    return wire.Ack("s", seq, credit)


def refuse(seq: int, reason: wire.Reason, detail: str = "because") -> wire.Refuse:
    return wire.Refuse("s", seq, reason, detail)


def test_hello_precedes_the_messages_that_the_collector_lacks(pair: Pair) -> None:
    pair.put(1, 2, 3)
    assert not pair.link.connected
    assert pair.open(acked=1) == [2, 3]
    assert pair.link.connected
    assert (pair.link.acked, pair.link.acked_rows, pair.link.idle, pair.outbox.first_seq) == (1, 1, False, 2)
    assert pair.answer(ack(3)) == []
    assert (pair.link.acked, pair.link.acked_rows, pair.link.idle, pair.outbox.first_seq) == (3, 6, True, 4)
    pair.put(4)
    assert not pair.link.idle
    assert pair.pump_seqs() == [4]


def test_pump_of_several_links_and_of_none_waits(pair: Pair) -> None:
    other = Pair()
    pump([pair.link, other.link], 0.0)
    assert pair.script.received() == other.script.received() == [hello(1)]
    for one in (pair, other):
        one.script.send(welcome(1, 0))
    links = [pair.link, other.link]
    wait_until(lambda: pump(links, 60.0) or all(link.connected for link in links), "both are welcome")
    other.close()
    began = time.monotonic()
    pump([], 0.05)
    assert time.monotonic() - began >= 0.05


def test_messages_in_flight_never_exceed_the_credit(pair: Pair) -> None:
    pair.put(*[1] * 10)
    assert pair.open(credit=3) == [1, 2, 3]
    assert pair.pump() == []
    assert [m.seq for m in pair.answer(ack(1, credit=3))] == [4]
    assert [m.seq for m in pair.answer(ack(2, credit=5))] == [5, 6, 7]
    assert pair.answer(ack(3, credit=0)) == []
    assert [m.seq for m in pair.answer(ack(7, credit=1))] == [8]


def test_after_a_timeout_hello_is_repeated_and_unacknowledged_messages_resent(pair: Pair) -> None:
    pair.put(1, 1, 1)
    assert pair.open() == [1, 2, 3]
    assert pair.pump(SILENCE_SECONDS) == []
    assert pair.link.connected
    assert pair.pump(0.01) == [hello(2)]
    assert not pair.link.connected
    assert pair.pump(1.5) == []  # an overloaded collector receives one hello
    assert pair.pump(1.0) == [hello(2)]
    assert [m.seq for m in pair.answer(welcome(2, 1))] == [2, 3]
    # Any answer resets the timeout.
    pair.clock.now += SILENCE_SECONDS
    assert pair.answer(ack(2)) == []
    assert pair.pump(SILENCE_SECONDS) == []


def test_a_welcome_to_an_earlier_hello_acknowledges_without_a_resend(pair: Pair) -> None:
    pair.put(1, 1)
    assert pair.pump() == [hello(1)]
    assert pair.pump(FIRST_BACKOFF) == [hello(1)]
    assert [m.seq for m in pair.answer(welcome(1, 0))] == [1, 2]
    assert pair.pump(SILENCE_SECONDS + 0.01) == [hello(2)]
    assert pair.answer(welcome(1, 0)) == []
    assert pair.answer(welcome(1, 1)) == []
    assert pair.link.acked == 1
    assert not pair.link.connected
    assert [m.seq for m in pair.answer(welcome(2, 1))] == [2]


def test_an_answer_received_during_a_suspension_prevents_the_timeout(pair: Pair) -> None:
    pair.put(1, 1)
    assert pair.open() == [1, 2]
    pair.script.send(ack(1))
    assert pair.pump(10 * SILENCE_SECONDS) == []
    assert pair.link.connected


def test_nothing_is_sent_twice_for_any_latency(pair: Pair) -> None:
    collector = Ledger(pair)
    there: deque[tuple[float, wire.FromClient]] = deque()
    back: deque[tuple[float, wire.FromCollector]] = deque()
    sent: list[int] = []
    for _ in range(600):
        pair.put(1)
        for message in pair.pump(1.0):
            there.append((pair.clock.now + 8.0, message))
            sent += [message.seq] if isinstance(message, wire.Append) else []
        while there and there[0][0] <= pair.clock.now:
            back += [(pair.clock.now + 8.0, answer) for answer in collector.answers(there.popleft()[1])]
        while back and back[0][0] <= pair.clock.now:
            pair.script.send(back.popleft()[1])
    assert sent == list(range(1, len(sent) + 1))
    assert len(collector.stored) > 100


def test_there_is_no_timeout_without_unacknowledged_messages(pair: Pair) -> None:
    pair.put(1)
    assert pair.open() == [1]
    pair.answer(ack(1))
    assert pair.pump(3600) == []
    pair.put(1)
    assert pair.pump_seqs() == [2]
    assert pair.pump(SILENCE_SECONDS) == []


@pytest.mark.parametrize("reason", ["gap", "unknown-stream"])
def test_any_number_of_refusals_causes_one_hello(pair: Pair, reason: str) -> None:
    pair.put(*[1] * 50)
    assert len(pair.open()) == 50
    assert pair.answer(*(refuse(seq, reason) for seq in range(3, 51))) == []
    assert not pair.link.connected
    assert pair.pump(FIRST_BACKOFF) == [hello(2)]
    assert [m.seq for m in pair.answer(welcome(2, 2))] == list(range(3, 51))
    assert pair.link.dropped_rows.total() == 0
    assert pair.link.refusals == []


def test_a_message_refused_as_invalid_is_dropped_and_counted(pair: Pair) -> None:
    pair.put(5, 7, 9)
    assert pair.open() == [1, 2, 3]
    assert pair.answer(refuse(2, "invalid", "column 'x' is bad"), ack(3)) == []
    assert pair.link.connected
    assert pair.link.idle
    assert dict(pair.link.dropped_rows) == {"refused": 7}
    assert pair.link.acked_rows == 14
    assert [refusal.detail for refusal in pair.link.refusals] == ["column 'x' is bad"]
    pair.answer(refuse(2, "invalid"))  # a message that was removed
    assert dict(pair.link.dropped_rows) == {"refused": 7}


def test_a_collector_that_lost_its_log_gets_a_skip_and_the_remaining_messages(pair: Pair) -> None:
    pair.put(1, 2, 3, 4)
    pair.open()
    pair.answer(ack(3))
    assert pair.pump(SILENCE_SECONDS + 0.01) == [hello(2)]
    skip, rest = pair.answer(welcome(2, 0))
    assert skip == wire.Skip("s", 3, 6, "forgotten")
    assert isinstance(rest, wire.Append)
    assert rest.seq == 4
    pair.answer(ack(4))
    assert pair.link.idle
    # Sent = acknowledged + dropped with a reason.
    assert (pair.link.acked_rows, dict(pair.link.dropped_rows)) == (4, {"forgotten": 6})


def test_a_collector_restored_from_a_backup_gets_a_skip_with_the_rows_acknowledged_since(pair: Pair) -> None:
    pair.put(1, 2, 4, 8)
    pair.open()
    pair.answer(ack(1), refuse(2, "invalid"), refuse(2, "invalid"), ack(2), ack(3))
    assert pair.pump(SILENCE_SECONDS + 0.01) == [hello(2)]
    assert pair.answer(welcome(2, 1))[0] == wire.Skip("s", 3, 4, "forgotten")
    # The skip is lost, and the next collector has an empty log.
    assert pair.pump(SILENCE_SECONDS + 0.01) == [hello(3)]
    skip, rest = pair.answer(welcome(3, 0))
    assert skip == wire.Skip("s", 3, 5, "forgotten")
    assert isinstance(rest, wire.Append)
    pair.answer(ack(4))
    assert pair.link.idle
    assert (pair.link.acked_rows, dict(pair.link.dropped_rows)) == (8, {"refused": 2, "forgotten": 5})


def test_a_spool_that_has_lost_its_end_reuses_no_numbers_and_says_so(tmp_path: Path) -> None:
    pair = Pair()
    spool = pair.spool(tmp_path)
    pair.put(1, 1)
    spool.commit(b"")
    assert pair.pump() == [hello(1)]
    assert pair.answer(welcome(1, 3)) == []
    pair.put(2, 4, 8)  # up to number 5
    spool.commit(b"")
    assert pair.pump(BACKOFF_LIMIT_SECONDS * 2) == []
    assert pair.link.trouble == (
        "the collector has 3 messages of stream s, this outbox had 2, expected at least as many: its disk has lost what"
        " it had confirmed"
    )
    assert (spool.rows, pair.link.acked_rows) == (16, 0)
    spool.close()
    pair.close()


def test_rows_lost_with_the_log_and_rows_dropped_since_are_reported_apart() -> None:
    pair = Pair(cap_messages=2)
    pair.put(1, 2)
    pair.open()
    pair.answer(ack(2))
    pair.put(4)
    pair.pump()
    assert pair.pump(SILENCE_SECONDS + 0.01) == [hello(2)]
    pair.put(8, 16)  # drops the third message
    first, second, *rest = pair.answer(welcome(2, 0))
    assert first == wire.Skip("s", 2, 3, "forgotten")
    assert second == wire.Skip("s", 3, 4, "memory-cap", after=2)
    assert [message.seq for message in rest] == [4, 5]
    pair.answer(ack(5))
    assert pair.link.idle
    assert (pair.link.acked_rows, dict(pair.link.dropped_rows)) == (24, {"forgotten": 3, "memory-cap": 4})
    pair.close()


def test_messages_dropped_by_the_outbox_are_skipped_with_rows_and_reason() -> None:
    pair = Pair(cap_messages=3)
    pair.put(1, 2, 4, 8, 16)
    assert pair.outbox.first_seq == 3
    pair.pump()
    skip, *rest = pair.answer(welcome(1, 0, credit=2))
    assert skip == wire.Skip("s", 2, 3, "memory-cap", after=0)
    assert rest == []  # the skip uses part of the credit
    assert pair.link.dropped_rows.total() == 0  # not acknowledged yet
    (third, fourth) = pair.answer(ack(2, credit=2))
    assert (third.seq, fourth.seq) == (3, 4)
    assert dict(pair.link.dropped_rows) == {"memory-cap": 3}
    pair.answer(ack(4))
    pair.answer(ack(5))
    assert pair.link.idle
    assert dict(pair.link.dropped_rows) == {"memory-cap": 3}
    assert pair.link.acked_rows == 28
    assert pair.outbox.dropped is None
    pair.close()


def test_a_collector_of_another_version_receives_only_hellos(pair: Pair) -> None:
    pair.put(1)
    assert pair.pump() == [hello(1)]
    hellos = 0
    for _ in range(1000):
        received = pair.answer(refuse(0, "version")) + pair.pump(0.1)
        assert set(received) <= {hello(1)}
        hellos += len(received)
    # 100 s: the waits are 0.1 s doubling up to the limit, plus up to 50 % jitter.
    assert 100 / (1.5 * BACKOFF_LIMIT_SECONDS) < hellos < 8 + 100 / BACKOFF_LIMIT_SECONDS


def test_invalid_messages_are_ignored(pair: Pair) -> None:
    pair.put(1)
    pair.open()
    pair.answer(b"", b"\xc1", b"garbage", wire.encode(hello(1)), ack(1))
    assert pair.link.idle


def test_hello_is_sent_at_once_after_a_late_connection() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    port = free_ports(1)
    clock = Clock()
    link = Link(f"tcp://127.0.0.1:{port}", "s", Memory(), system=system_at(clock, context))
    for _ in range(100):
        clock.now += 1
        link.pump()
    router = context.socket(zmq.ROUTER)
    router.bind(f"tcp://127.0.0.1:{port}")
    # From here on the clock is stopped.
    wait_until(lambda: link.pump(0.02) or router.poll(0), "there is a hello")
    assert wire.decode_from_client(router.recv_multipart(zmq.NOBLOCK)[1]) == hello(1)
    link.close()
    router.close()
    context.term()


def test_a_read_uses_the_same_connection_and_has_a_timeout(pair: Pair) -> None:
    pair.clock.tick = 0.1
    assert pair.link.read("scores", -1, 1, "j", 0.5, 0.25) is None
    requests = [message for message in pair.script.received() if isinstance(message, wire.Read)]
    assert requests == [wire.Read(1, "scores", -1, 1, "j", seconds=0.25)]
    late, answer = (wire.Rows(number, "scores", 0, {}, 7) for number in (1, 2))
    pair.script.send(late, answer)
    assert pair.link.read("scores", -1, 1, "j", 0.5) == answer
    assert pair.link.wait_idle(0.5) is False


def test_wait_idle_returns_as_soon_as_everything_is_acknowledged(pair: Pair) -> None:
    pair.put(1)
    pair.open()
    pair.script.send(ack(1))
    assert pair.link.wait_idle(1e9)


class Ledger:
    """A collector that implements the protocol, with simulated message loss and restarts."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.stored: list[int] = []
        self.is_open = False

    def serve(self, lossy: Callable[[], bool]) -> None:
        for message in self.pair.script.received():
            if lossy():
                continue
            for answer in self.answers(message):
                if not lossy():
                    self.pair.script.send(answer)

    def answers(self, message: wire.FromClient) -> list[wire.FromCollector]:
        acked = len(self.stored)
        if isinstance(message, wire.Hello):
            self.is_open = True
            return [welcome(message.number, acked, 4)]
        assert isinstance(message, wire.Append)
        if not self.is_open:
            return [refuse(message.seq, "unknown-stream")]
        if message.seq > acked + 1:
            return [refuse(message.seq, "gap")]
        if message.seq == acked + 1:
            self.stored.append(message.seq)
        return [ack(len(self.stored), 4)]


@settings(max_examples=100, deadline=None)
@given(
    steps=st.lists(st.sampled_from(["put", "pump", "serve", "lose", "restart", "wait"]), max_size=80),
    seed=st.integers(0, 2**32),
)
def test_everything_arrives_once_and_in_order_despite_losses_and_restarts(steps: list[str], seed: int) -> None:
    pair = Pair()
    ledger = Ledger(pair)
    rng = random.Random(seed)
    try:
        for step in steps:
            if step == "put":
                pair.put(1)
            elif step == "restart":
                ledger.is_open = False
            elif step == "wait":
                pair.clock.now += rng.choice([0.1, 1.0, 10.0])
            elif step == "pump":
                pair.link.pump()
            else:
                ledger.serve(lambda lossy=step == "lose": lossy and rng.random() < 0.5)
        for _ in range(200):
            pair.clock.now += 0.3
            pair.link.pump()
            ledger.serve(lambda: False)
            if pair.link.idle:
                break
        assert pair.link.idle
        assert ledger.stored == list(range(1, pair.outbox.next_seq))
        assert pair.link.acked_rows == len(ledger.stored)
    finally:
        pair.close()
