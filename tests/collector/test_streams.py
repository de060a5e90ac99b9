"""What the collector makes of a message, given how far its stream has come."""

from __future__ import annotations

from barograph_agent.wire import Ack, Refuse, Welcome
from barograph_collector.streams import CREDIT, Reply, Streams, Verdict

PEER, OTHER = b"peer", b"other"


def greeted(acked: int = 0) -> Streams:
    streams = Streams.recovered({"s": acked} if acked else {})
    assert streams.hello(PEER, "s") == [Reply(PEER, Welcome("s", acked, CREDIT))]
    return streams


def test_a_message_is_taken_once_whatever_order_and_number_of_copies_it_comes_in() -> None:
    streams = greeted(acked=7)
    assert streams.judge(PEER, "s", 7) is Verdict.DUPLICATE
    assert streams.judge(PEER, "s", 0) is Verdict.DUPLICATE
    assert streams.judge(PEER, "s", 9) is Verdict.GAP
    assert streams.judge(PEER, "s", 8) is Verdict.ACCEPT
    streams.accept("s", 8)
    assert streams.judge(PEER, "s", 8) is Verdict.UNDER_WAY
    assert streams.committed([("s", 8, None)]) == [Reply(PEER, Ack("s", 8, CREDIT))]
    assert streams.judge(PEER, "s", 8) is Verdict.DUPLICATE


def test_credit_bounds_what_is_under_way_and_comes_back_with_the_commit() -> None:
    streams = greeted()
    for seq in range(1, CREDIT + 1):
        assert streams.judge(PEER, "s", seq) is Verdict.ACCEPT
        streams.accept("s", seq)
    assert streams.judge(PEER, "s", CREDIT + 1) is Verdict.CREDIT
    streams.committed([("s", 1, None)])
    assert streams.judge(PEER, "s", CREDIT + 1) is Verdict.ACCEPT


def test_a_refusal_comes_before_the_acknowledgement_that_lets_the_producer_forget() -> None:
    streams = greeted()
    refusal = Refuse("s", 1, "invalid", "no")
    for seq in (1, 2):
        streams.accept("s", seq)
    answers = streams.committed([("s", 1, refusal), ("s", 2, None)])
    assert answers == [Reply(PEER, refusal), Reply(PEER, Ack("s", 2, CREDIT))]


def test_a_skip_may_jump_an_append_may_not() -> None:
    streams = greeted()
    assert streams.judge(PEER, "s", 1000, may_jump=True) is Verdict.ACCEPT
    assert streams.judge(PEER, "s", 1000) is Verdict.GAP
    assert streams.judge(PEER, "s", 2**63, may_jump=True) is Verdict.GAP
    streams.accept("s", 1000)
    assert streams.judge(PEER, "s", 1001) is Verdict.ACCEPT


def test_a_stream_belongs_to_the_connection_that_greeted_last() -> None:
    streams = Streams.recovered({"s": 3})
    assert streams.judge(PEER, "s", 4) is Verdict.UNKNOWN
    streams.hello(PEER, "s")
    streams.hello(OTHER, "s")
    assert streams.judge(PEER, "s", 4) is Verdict.UNKNOWN
    assert streams.judge(OTHER, "s", 4) is Verdict.ACCEPT
    assert streams.judge(OTHER, "t", 1) is Verdict.UNKNOWN


def test_the_welcome_waits_for_what_an_earlier_connection_has_under_way() -> None:
    streams = greeted()
    streams.accept("s", 1)
    streams.accept("s", 2)
    assert streams.hello(OTHER, "s") == []
    assert streams.committed([("s", 1, None)]) == []
    assert streams.committed([("s", 2, None)]) == [Reply(OTHER, Welcome("s", 2, CREDIT))]
