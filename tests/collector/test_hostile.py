"""What one client does costs that client: an honest producer beside it delivers, exactly once, and is answered."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import zmq

from barograph_agent.deliver import credential
from barograph_agent.deliver import keys as client_keys
from barograph_agent.protocol import wire
from barograph_collector.auth import authorization, keys, rate_limit
from barograph_collector.auth.authorization import EVERYTHING, Authorization
from barograph_collector.auth.rate_limit import BURST_SECONDS, TokenBuckets
from barograph_collector.client.log_reader import LogReader
from barograph_collector.net import receiver, router_socket
from barograph_collector.net.receiver import REJECTED_PER_SECOND, REQUESTS_OF_ONE
from barograph_collector.server import Collector
from barograph_collector.storage import messages
from helpers.attackers import ATTACKS, ATTACKS_WITH_A_KEY, Access, half_open, under
from helpers.log import DEADLINE_SECONDS, Producer, blocks, collector_on, wait_until

AT_ONCE = 200
"""Requests of a client that receives no answer meanwhile."""
COUNTED = {
    "mutated messages": {"undecodable", "multipart", "unknown-stream", "invalid"},
    "acks never read": {"credit"},
    "refused appends": {"invalid"},
    "oversized frames": {"oversized"},
    "half-open connections": {"handshake"},
    "forged jobs": {"forbidden", "credential"},
    "replayed credentials": {"replayed"},
}


@contextlib.contextmanager
def acknowledgements_held(collector: Collector) -> Iterator[None]:
    """Nothing becomes durable within."""
    journal, go = collector._appender.journal, threading.Event()
    real = journal.append

    def append(frames: Sequence[bytes]) -> int:
        go.wait(DEADLINE_SECONDS)
        return real(frames)

    journal.append = append  # type: ignore[method-assign]
    try:
        yield
    finally:
        go.set()
        journal.append = real  # type: ignore[method-assign]


@pytest.mark.parametrize("name", ATTACKS)
def test_an_honest_producer_delivers_exactly_once_beside(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_socket, "HANDSHAKE_MS", 200)
    with collector_on(tmp_path / "log.duckdb") as collector:
        attack = partial(half_open, connections=300) if ATTACKS[name] is half_open else ATTACKS[name]
        with under(attack, collector.endpoint), Producer(collector.endpoint, "honest") as producer:
            producer.hello()
            for seq in range(1, 51):
                producer.append(seq, "blocks", 10, blocks(10, first=10 * seq, job="honest/1.0.0"))
                producer.receive_ack(seq)
            # On a busy machine a client may be slower than the journal, and never exceed its credit.
            with acknowledgements_held(collector) if name == "acks never read" else contextlib.nullcontext():
                wait_until(lambda: refused(collector) >= COUNTED[name], f"{COUNTED[name]} are counted")
        with LogReader(collector.endpoint, DEADLINE_SECONDS) as reader:
            pages = reader.read_all("blocks", job="honest/1.0.0")
            assert [index for page in pages for index in page.columns["first_index"]] == list(range(10, 510))


@pytest.mark.parametrize("name", ATTACKS_WITH_A_KEY)
def test_an_honest_agent_delivers_exactly_once_beside(name: str, tmp_path: Path) -> None:
    keys.init(tmp_path / "keys")
    honest, hostile = (access(tmp_path / "keys", job, user) for job, user in (("lab/1", "alice"), ("lab/2", "mallory")))
    reading = client_keys.load(keys.add(tmp_path / "keys", "reader", "staff"))
    with collector_on(tmp_path / "log.duckdb", keyring=keys.Keyring(tmp_path / "keys")) as collector:
        attack = partial(ATTACKS_WITH_A_KEY[name], access=hostile)
        stream = f"{honest.job}/n0"
        with under(attack, collector.endpoint), Producer(collector.endpoint, stream, honest.key) as producer:
            producer.hello(honest.proof(stream))
            for seq in range(1, 51):
                producer.append(seq, "blocks", 10, blocks(10, first=10 * seq, job=honest.job))
                producer.receive_ack(seq)
            wait_until(lambda: refused(collector) >= COUNTED[name], f"{COUNTED[name]} are counted")
        with LogReader(collector.endpoint, DEADLINE_SECONDS, reading) as reader:
            pages = list(reader.read_all("blocks"))
            assert {job for page in pages for job in page.columns["job"]} == {honest.job}
            assert [index for page in pages for index in page.columns["first_index"]] == list(range(10, 510))


def access(directory: Path, job: str, user: str) -> Access:
    secret = bytes.fromhex(keys.load_collector(directory).token_secret)
    key = client_keys.load(keys.add(directory, "agent", user))
    return Access(key, credential.issue(secret, job, user, int(time.time()) + 3600))


def test_a_connection_that_sends_only_undecodable_messages_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "REJECTED_PER_SECOND", 1e-3)
    with (
        collector_on(tmp_path / "log.duckdb") as collector,
        Producer(collector.endpoint) as honest,
        Producer(collector.endpoint, "hostile") as hostile,
    ):
        for _ in range(100):
            hostile.socket.send(b"nonsense")
        wait_until(lambda: sum(collector.counters.rejected.values()) == 100, "all are counted")
        assert collector.counters.rejected["undecodable"] == 1
        assert collector.counters.rejected["ignored"] == 99
        assert honest.hello().acked == 0


def test_rejected_messages_cost_their_sender_by_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "REJECTED_PER_SECOND", 1.0)
    monkeypatch.setattr(rate_limit, "BURST_SECONDS", 10.0)
    with collector_on(tmp_path / "log.duckdb") as collector, Producer(collector.endpoint) as hostile:
        for _ in range(10):
            hostile.socket.send(bytes(wire.MAX_APPEND_BYTES))
        wait_until(lambda: sum(collector.counters.rejected.values()) == 10, "all are counted")
        assert collector.counters.rejected["undecodable"] == 1


@pytest.mark.parametrize("kind", ["refused", "dropped"])
def test_messages_without_rows_of_one_producer_get_few_rows_of_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(authorization, "MAX_EVENTS", 2)  # and what the limit may be overdrawn by
    monkeypatch.setattr(authorization, "SECONDS_PER_EVENT", 1e9)
    with collector_on(tmp_path / "log.duckdb") as collector, Producer(collector.endpoint) as producer:
        producer.hello()
        for seq in range(1, 21):
            if kind == "refused":
                producer.send(wire.Append("producer", seq, "blocks", 5, {}))
                assert producer.receive(wire.Refuse).reason == "invalid"
            else:
                producer.send(wire.Skip("producer", seq, 5, "spool-cap"))
            producer.receive_ack(seq)
        with LogReader(collector.endpoint, timeout=DEADLINE_SECONDS) as reader:
            (events,) = reader.read_all("events")
        assert list(events.columns["rows"]) == [5, 5, 5]
    # None of the others comes again, also after a crash.
    with collector_on(tmp_path / "log.duckdb") as collector, Producer(collector.endpoint) as producer:
        assert producer.hello().acked == 20


def test_a_row_of_events_counts_the_messages_before_it_that_got_none() -> None:
    now = [0.0]
    admission = Authorization(None, 1.0, lambda: now[0])
    limit, total = authorization.EventLimit(admission, lambda: now[0]), 0
    for seq in range(1, 1001):
        item = limit.limited(EVERYTHING, messages.skipped(wire.Skip("s", seq, seq, "spool-cap"), 0.0))
        assert messages.replayed(item.frame)[:3] == item[:3]
        total += int(item.columns["rows"]) if item.rows else 0
        now[0] += 1.0 if seq < 999 else authorization.SECONDS_PER_EVENT
    assert total == sum(range(1, 1001))


def test_skips_are_limited_as_rows_are(tmp_path: Path) -> None:
    with (
        collector_on(tmp_path / "log.duckdb", rows_per_second=1e-3) as collector,
        Producer(collector.endpoint) as producer,
    ):
        producer.hello()
        producer.send(wire.Skip("producer", 2**40, 2**62, "spool-cap"))
        producer.receive_ack(2**40)
        producer.send(wire.Skip("producer", 2**41, 2**62, "spool-cap"))
        assert producer.receive(wire.Refuse).reason == "rate"
        with LogReader(collector.endpoint, timeout=DEADLINE_SECONDS) as reader:
            (events,) = reader.read_all("events")
        assert list(events.columns["rows"]) == [messages.MAX_DROPPED]


def test_opening_many_streams_is_within_the_limit_and_refused_hellos_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "REJECTED_PER_SECOND", 1.0)
    with collector_on(tmp_path / "log.duckdb") as collector, Producer(collector.endpoint) as importer:
        for number in range(50):
            importer.send(wire.Hello(f"run{number}/import"))
        assert {importer.receive(wire.Welcome).stream for _ in range(50)} == {f"run{n}/import" for n in range(50)}
        for _ in range(500):
            importer.send(wire.Hello("no name"))
        wait_until(lambda: sum(collector.counters.rejected.values()) == 500, "all are counted")
        assert collector.counters.rejected["invalid"] > 0
        assert collector.counters.rejected["ignored"] > 0


def test_a_connection_beyond_its_budget_of_rejected_messages_is_ignored_until_it_recovers() -> None:
    now = [0.0]
    left = TokenBuckets(REJECTED_PER_SECOND, lambda: now[0])
    for _ in range(int(REJECTED_PER_SECOND * BURST_SECONDS)):
        assert not left.is_empty(b"bad")
        left.consume(b"bad", 1.0)
    assert left.is_empty(b"bad")
    assert not left.is_empty(b"good")
    now[0] += 1.0
    heard = 0
    while not left.is_empty(b"bad"):
        left.consume(b"bad", 1.0)
        heard += 1
    assert heard == REJECTED_PER_SECOND


def test_one_connection_has_few_requests_waiting_and_each_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # ZeroMQ drops answers that a client does not receive yet beyond twice the credit.
    monkeypatch.setattr(router_socket, "CREDIT", AT_ONCE)
    with collector_on(tmp_path / "log.duckdb") as collector, Producer(collector.endpoint) as client:
        for request in range(AT_ONCE):
            client.send(wire.Read(request, "blocks", 0))
        answers = [client.receive(wire.Rows) for _ in range(AT_ONCE)]
        assert sorted(answer.request for answer in answers) == list(range(AT_ONCE))
        refusals = [answer for answer in answers if answer.error]
        assert {answer.error for answer in refusals} == {
            f"{REQUESTS_OF_ONE} requests of this connection are waiting, ask again later"
        }
        assert collector.counters.rejected["rate"] == len(refusals)
        client.send(wire.Read(AT_ONCE, "blocks", 0))
        assert not client.receive(wire.Rows).error


def refused(collector: Collector) -> set[str]:
    return {reason for reason, count in collector.counters.rejected.items() if count}


def test_a_connection_that_says_nothing_is_closed_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_socket, "HANDSHAKE_MS", 200)
    with collector_on(tmp_path / "log.duckdb") as collector:
        address = urlsplit(collector.endpoint)
        silent = [socket.create_connection((address.hostname, address.port), DEADLINE_SECONDS) for _ in range(50)]
        for connection in silent:
            while connection.recv(64):  # the collector's own greeting, and then its end
                pass
            connection.close()
        wait_until(lambda: collector.counters.rejected["handshake"] == len(silent), "all are counted")


def test_an_oversized_append_is_used_up_and_an_oversized_frame_ends_its_connection(tmp_path: Path) -> None:
    sites = {"job": "lab/1.0.0", "class_id": 1, "from_site": ["x" * 65536] * 140, "to_site": "", "operation": "o"}
    with collector_on(tmp_path / "log.duckdb") as collector, Producer(collector.endpoint) as producer:
        producer.hello()
        producer.append(1, "sites", 140, sites)
        refusal = producer.receive(wire.Refuse)
        assert (refusal.seq, refusal.reason) == (1, "oversized")
        assert refusal.detail.endswith(f"bytes, expected at most {wire.MAX_APPEND_BYTES}")
        producer.receive_ack(1)
        monitor = producer.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        producer.socket.send(bytes(wire.MAX_BYTES + 1))
        assert monitor.poll(1000 * DEADLINE_SECONDS)
        producer.socket.disable_monitor()
        monitor.close()
        wait_until(lambda: bool(producer.socket.poll(0, zmq.POLLOUT)), "the client has connected again")
        producer.append(2, "blocks", 1, blocks(1))
        assert producer.receive(wire.Refuse).reason == "unknown-stream"
        assert producer.hello().acked == 1
