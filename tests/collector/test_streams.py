"""Decisions on messages by the state of their streams."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barograph_agent.protocol.wire import Ack, Refuse, Welcome
from barograph_collector.ingest.streams import CREDIT, STREAMS_KEPT, Reply, StreamDecision, Streams

PEER, OTHER = b"peer", b"other"


def open_stream(streams: Streams, peer: bytes, name: str, stored: int = 0) -> list[Reply]:
    streams.begin_opening(peer, name)
    return streams.open(peer, name, stored, 1)


def opened(acked: int = 0, limit: int = STREAMS_KEPT) -> Streams:
    streams = Streams(limit)
    assert open_stream(streams, PEER, "s", acked) == [Reply(PEER, Welcome("s", acked, CREDIT, number=1))]
    return streams


def test_credit_limits_uncommitted_messages_and_returns_with_the_commit() -> None:
    streams = opened()
    for seq in range(1, CREDIT + 1):
        assert streams.judge(PEER, "s", seq) is StreamDecision.ACCEPT
        streams.accept("s", seq)
    assert streams.judge(PEER, "s", CREDIT + 1) is StreamDecision.CREDIT
    streams.committed([("s", 1, None)])
    assert streams.judge(PEER, "s", CREDIT + 1) is StreamDecision.ACCEPT


def test_a_refusal_is_sent_before_the_acknowledgement_of_its_message() -> None:
    streams = opened()
    refusal = Refuse("s", 1, "invalid", "no")
    for seq in (1, 2):
        streams.accept("s", seq)
    answers = streams.committed([("s", 1, refusal), ("s", 2, None)])
    assert answers == [Reply(PEER, refusal), Reply(PEER, Ack("s", 2, CREDIT))]


def test_a_skip_may_leave_a_gap_and_an_append_may_not() -> None:
    streams = opened()
    assert streams.judge(PEER, "s", 1000, may_jump=True) is StreamDecision.ACCEPT
    assert streams.judge(PEER, "s", 1000) is StreamDecision.GAP
    assert streams.judge(PEER, "s", 2**63, may_jump=True) is StreamDecision.GAP
    streams.accept("s", 1000)
    assert streams.judge(PEER, "s", 1001) is StreamDecision.ACCEPT


def test_a_stream_belongs_to_the_connection_of_the_last_hello() -> None:
    streams = opened(acked=3)
    open_stream(streams, OTHER, "s")
    assert streams.judge(PEER, "s", 4) is StreamDecision.UNKNOWN
    assert streams.judge(OTHER, "s", 4) is StreamDecision.ACCEPT
    assert streams.judge(OTHER, "t", 1) is StreamDecision.UNKNOWN


def test_a_repeated_hello_of_a_connection_is_not_opened_twice() -> None:
    streams = Streams()
    assert not streams.is_opening(PEER, "s")
    streams.begin_opening(PEER, "s")
    assert streams.is_opening(PEER, "s")
    assert not streams.is_opening(OTHER, "s")
    streams.open(PEER, "s", 0, 1)
    assert not streams.is_opening(PEER, "s")


def test_the_least_recently_used_streams_are_evicted_and_need_another_hello() -> None:
    streams = opened(acked=7, limit=100)
    for number in range(1000):
        open_stream(streams, OTHER, f"other{number}")
        if number == 500:
            open_stream(streams, PEER, "s")
    assert len(streams) == 100
    assert streams.judge(OTHER, "other999", 1) is StreamDecision.ACCEPT
    assert streams.judge(PEER, "s", 8) is StreamDecision.UNKNOWN
    assert not streams.begin_opening(PEER, "s")
    assert streams.open(PEER, "s", 7, 2) == [Reply(PEER, Welcome("s", 7, CREDIT, number=2))]


class Deliveries(RuleBasedStateMachine):
    """A producer with several connections, a network that duplicates, reorders and loses, a collector that restarts.

    `log` is what was committed, in order: it must be 1, 2, 3 ... whatever happened, and as far as any acknowledgement.
    """

    def __init__(self) -> None:
        super().__init__()
        self.streams = Streams(limit=0)
        self.stored = 0
        self.peer = 0
        self.network: list[tuple[bytes, int]] = []
        self.queue: list[int] = []
        self.log: list[int] = []
        self.acked = 0
        self.sent = 0
        self.welcomed = False

    @rule()
    def connect(self) -> None:
        self.peer += 1
        self.welcomed = False
        self.streams.begin_opening(b"%d" % self.peer, "s")
        stored = self.stored
        self.evict()
        self.receive(self.streams.open(b"%d" % self.peer, "s", stored, self.peer))

    @precondition(lambda self: self.welcomed)
    @rule(count=st.integers(1, 5), copies=st.integers(1, 2))
    def send(self, count: int, copies: int) -> None:
        for _ in range(count):
            self.sent += 1
            self.network += [(b"%d" % self.peer, self.sent)] * copies

    @precondition(lambda self: self.network)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        peer, seq = self.network.pop(data.draw(st.integers(0, min(2, len(self.network) - 1))))
        if self.streams.judge(peer, "s", seq) is StreamDecision.ACCEPT:
            self.streams.accept("s", seq)
            self.queue.append(seq)

    @precondition(lambda self: self.network)
    @rule()
    def lose(self) -> None:
        self.network.pop(0)

    @precondition(lambda self: self.queue)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, len(self.queue)))
        done, self.queue = self.queue[:count], self.queue[count:]
        self.log += done
        self.receive(self.streams.committed([("s", seq, None) for seq in done]))

    @precondition(lambda self: self.stored < len(self.log))
    @rule()
    def store(self) -> None:
        self.stored += 1
        self.streams.stored("s", self.stored)

    @rule()
    def evict(self) -> None:
        """Open other streams, so that this one is evicted where possible."""
        for number in range(3):
            open_stream(self.streams, b"other", f"other{number}")
        if "s" not in self.streams._streams:
            self.welcomed = False

    @rule()
    def restart(self) -> None:
        self.queue.clear()
        self.welcomed = False
        self.streams = Streams(limit=0)
        self.stored = len(self.log)

    def receive(self, replies: list[Reply]) -> None:
        for peer, message in replies:
            if peer != b"%d" % self.peer:
                continue
            match message:
                case Welcome():
                    self.welcomed = True
                    self.acked = max(self.acked, message.acked)
                    self.sent = message.acked
                case Ack():
                    self.acked = max(self.acked, message.seq)

    @invariant()
    def the_log_is_gapless_and_contains_all_acknowledged_messages(self) -> None:
        assert self.log == list(range(1, len(self.log) + 1))
        assert self.acked <= len(self.log)


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
