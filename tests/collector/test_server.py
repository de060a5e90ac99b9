"""The two verbs over real sockets."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import pytest

from barograph_agent.protocol import wire
from barograph_agent.system.disk import Disk
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused
from barograph_collector.daemon.service import CannotListen
from barograph_collector.ingest.streams import Streams
from barograph_collector.net import receiver
from barograph_collector.server import Collector
from barograph_collector.storage.database import Database
from barograph_collector.storage.journal import Journal
from barograph_collector.storage.store import Store
from helpers.hostile_wire import INVALID_APPENDS, NOT_OF_THE_PROTOCOL, NOT_ZEROMQ
from helpers.log import DEADLINE_SECONDS, Producer, blocks, collector_on, wait_until
from helpers.up import free_ports


@pytest.fixture
def producer(collector: Collector) -> Iterator[Producer]:
    with Producer(collector.endpoint) as connected:
        assert connected.hello() == wire.Welcome("producer", 0, 64)
        yield connected


@pytest.fixture
def reader(collector: Collector) -> Iterator[LogReader]:
    with LogReader(collector.endpoint, timeout=DEADLINE_SECONDS) as connected:
        yield connected


def stored(reader: LogReader, table: str, column: str) -> list[object]:
    return [value for batch in reader.read_all(table) for value in batch.columns[column]]


def test_streams_that_memory_has_forgotten_come_back_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "Streams", partial(Streams, 2))
    with collector_on(tmp_path / "log.duckdb") as collector, ExitStack() as held:
        producers = [held.enter_context(Producer(collector.endpoint, f"s{number}")) for number in range(8)]
        for seq in range(1, 4):
            for number, producer in enumerate(producers):
                assert producer.hello().acked == seq - 1
                producer.append(seq, "blocks", 5, blocks(5, first=5 * seq, job=f"lab/{number}.0.0"))
                producer.receive_ack(seq)
        reader = held.enter_context(LogReader(collector.endpoint, timeout=DEADLINE_SECONDS))
        assert len(stored(reader, "blocks", "first_index")) == 8 * 15
        assert not collector.counters.queue_rows
        for other in range(4):
            held.enter_context(Producer(collector.endpoint, f"other{other}")).hello()
        assert collector.counters.streams < len(producers)
        producers[0].append(3, "blocks", 5, blocks(5, first=15, job="lab/0.0.0"))
        assert producers[0].receive(wire.Refuse).reason == "unknown-stream"
        assert producers[0].hello().acked == 3
        producers[0].append(3, "blocks", 5, blocks(5, first=15, job="lab/0.0.0"))
        producers[0].receive_ack(3)
        pages = reader.read_all("blocks", job="lab/0.0.0")
        assert [index for page in pages for index in page.columns["first_index"]] == list(range(5, 20))


def test_a_hello_that_fails_is_refused_and_the_next_one_is_answered(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks, failures = Database.marks, [ZeroDivisionError("a defect")]

    def failing(database: Database, streams: Collection[str]) -> dict[str, int]:
        if failures:
            raise failures.pop()
        return marks(database, streams)

    monkeypatch.setattr(Database, "marks", failing)
    with Producer(collector.endpoint) as producer:
        producer.send(wire.Hello("producer"))
        assert producer.receive(wire.Refuse).reason == "unavailable"
        assert producer.hello().acked == 0


def test_every_row_is_stored_exactly_once_however_often_and_in_what_order_it_is_sent(
    producer: Producer, reader: LogReader
) -> None:
    rng = random.Random(1)
    acked, last = 0, 200
    while acked < last:
        window = [seq for seq in range(max(acked - 5, 1), min(acked + 40, last) + 1) for _ in range(rng.randint(1, 2))]
        for place in range(len(window) - 1):
            if rng.random() < 0.1:
                window[place], window[place + 1] = window[place + 1], window[place]
        for seq in window:
            producer.append(seq, "blocks", 3, blocks(3, first=3 * seq))
        producer.send(wire.Hello(producer.stream))
        while True:
            message = wire.decode_from_collector(producer.socket.recv())
            if isinstance(message, wire.Welcome):
                break
            assert isinstance(message, wire.Ack) or message.reason == "gap"
        assert message.acked >= acked
        acked = message.acked
    assert stored(reader, "blocks", "first_index") == list(range(3, 3 * (last + 1)))


def test_a_gap_is_refused_and_what_follows_after_the_resend_is_taken(producer: Producer, reader: LogReader) -> None:
    producer.append(2, "blocks", 1, blocks(1))
    assert producer.receive(wire.Refuse) == wire.Refuse("producer", 2, "gap", "seq is 2, expected 1")
    producer.append(1, "blocks", 1, blocks(1))
    producer.receive_ack(1)
    assert stored(reader, "blocks", "first_index") == [0]


def test_an_append_without_a_hello_on_this_connection_is_refused(collector: Collector, producer: Producer) -> None:
    with Producer(collector.endpoint) as second:
        second.append(1, "blocks", 1, blocks(1))
        assert second.receive(wire.Refuse) == wire.Refuse(
            "producer", 1, "unknown-stream", "stream 'producer' was not opened on this connection, expected hello first"
        )
        assert second.hello().acked == 0
        producer.append(1, "blocks", 1, blocks(1))
        assert producer.receive(wire.Refuse).reason == "unknown-stream"


def test_another_version_and_a_stream_without_a_name_are_refused(collector: Collector) -> None:
    with Producer(collector.endpoint) as stranger:
        stranger.send(wire.Hello("s", version=2))
        assert stranger.receive(wire.Refuse) == wire.Refuse("s", 0, "version", "version is 2, expected 1")
        stranger.send(wire.Hello("../s"))
        detail = "stream is '../s x', expected an identifier of 1-128 characters from A-Z a-z 0-9 _ . : @ / + -"
        stranger.receive(wire.Welcome)
        stranger.send(wire.Hello("../s x"))
        assert stranger.receive(wire.Refuse) == wire.Refuse("../s x", 0, "invalid", detail)


@pytest.mark.parametrize(("reason", "detail"), [("spool-cap", "spool-cap"), ("x" * 60_000, "other")])
def test_a_skip_advances_the_stream_and_is_on_record(
    producer: Producer, reader: LogReader, reason: str, detail: str
) -> None:
    producer.send(wire.Skip("producer", 41, 1234, reason))
    producer.receive_ack(41)
    producer.append(42, "blocks", 1, blocks(1))
    producer.receive_ack(42)
    (events,) = reader.read_all("events")
    found = {name: list(events.columns[name]) for name in ("source", "kind", "rows", "detail")}
    assert found == {"source": ["producer"], "kind": ["dropped"], "rows": [1234], "detail": [detail]}


def test_an_invalid_append_is_refused_in_words_recorded_and_used_up(producer: Producer, reader: LogReader) -> None:
    for seq, (content, words) in enumerate(INVALID_APPENDS.values(), start=1):
        producer.send(wire.Append("producer", seq, **content))
        assert producer.receive(wire.Refuse) == wire.Refuse("producer", seq, "invalid", words[:500])
        producer.receive_ack(seq)
    assert stored(reader, "events", "detail") == [words[:500] for _, words in INVALID_APPENDS.values()]
    assert stored(reader, "blocks", "first_index") == stored(reader, "sites", "class_id") == []


def test_garbage_costs_nobody_but_its_sender(collector: Collector, producer: Producer, reader: LogReader) -> None:
    address = urlsplit(collector.endpoint)
    for text in NOT_ZEROMQ.values():
        with socket.create_connection((address.hostname, address.port)) as stranger:
            stranger.sendall(text)
    with Producer(collector.endpoint, "stranger") as stranger:
        for frames in NOT_OF_THE_PROTOCOL.values():
            stranger.socket.send_multipart(frames)
        assert stranger.hello().acked == 0  # so all of it has been handled, and none of it was answered
        stranger.socket.send(bytes(wire.MAX_BYTES + 1))
    multipart = sum(len(frames) > 1 for frames in NOT_OF_THE_PROTOCOL.values())
    assert collector.counters.rejected["multipart"] == multipart
    assert collector.counters.rejected["undecodable"] == len(NOT_OF_THE_PROTOCOL) - multipart
    producer.append(1, "blocks", 5, blocks(5))
    producer.receive_ack(1)
    assert stored(reader, "blocks", "first_index") == [0, 1, 2, 3, 4]


def test_a_producer_that_ignores_its_credit_is_bounded_and_loses_nothing(
    collector: Collector, producer: Producer, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What the journal has not is not acknowledged, and gives no credit back.
    may_append = threading.Event()
    append = Journal.append
    monkeypatch.setattr(Journal, "append", lambda *arguments: may_append.wait(DEADLINE_SECONDS) and append(*arguments))
    for seq in range(1, 101):
        producer.append(seq, "blocks", 10, blocks(10, first=10 * seq))
    wait_until(lambda: sum(collector.counters.rejected.values()) == 36, "messages 65 to 100 are refused")
    assert collector.counters.queue_rows == 640
    may_append.set()
    while not isinstance(message := wire.decode_from_collector(producer.socket.recv()), wire.Ack) or message.seq < 64:
        pass
    for seq in range(65, 101):
        producer.append(seq, "blocks", 10, blocks(10, first=10 * seq))
    producer.receive_ack(100)
    assert stored(reader, "blocks", "first_index") == list(range(10, 1010))
    assert collector.counters.queue_rows == 0


def test_a_commit_that_fails_before_or_after_it_is_done_is_made_good_from_the_journal(
    collector: Collector, producer: Producer, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Store.commit
    outcomes = iter(["before", "after", "not"] * 4)

    def fail(*arguments: object) -> int:
        outcome = next(outcomes)
        if outcome == "before":
            raise duckdb.IOException("no space left")
        head = commit(*arguments)  # type: ignore[arg-type]
        if outcome == "after":
            raise duckdb.FatalException("the database has been invalidated")
        return head

    monkeypatch.setattr(Store, "commit", fail)
    for seq in range(1, 5):
        producer.append(seq, "blocks", 3, blocks(3, first=3 * seq))
        producer.receive_ack(seq)
        assert stored(reader, "blocks", "first_index") == list(range(3, 3 * seq + 3))
    assert collector.counters.reopens["done"] > 0


def test_while_the_disk_is_short_nothing_is_taken_reads_go_on_and_afterwards_so_does_the_producer(
    collector: Collector, producer: Producer, reader: LogReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other programs write to the same disk.
    monkeypatch.setattr(Disk, "free_bytes", lambda *_: 10**9)
    producer.append(1, "blocks", 3, blocks(3))
    producer.receive_ack(1)
    collector.space.reserve = 2**62
    producer.append(2, "blocks", 3, blocks(3, first=3))
    refusal = producer.receive(wire.Refuse)
    assert (refusal.seq, refusal.reason) == (2, "disk-full")
    assert refusal.detail.startswith(f"the disk of the log is full: {collector.store.path.parent} has ")
    assert refusal.detail.endswith("; no row is taken, and producers keep theirs until there is room")
    assert stored(reader, "blocks", "first_index") == [0, 1, 2]
    producer.send(wire.Hello(producer.stream))
    assert producer.receive(wire.Refuse) == wire.Refuse(producer.stream, 0, "disk-full", refusal.detail)
    assert reader.intake_trouble() == refusal.detail
    collector.space.reserve = 0
    assert reader.intake_trouble() == ""
    assert producer.hello().acked == 1
    producer.append(2, "blocks", 3, blocks(3, first=3))
    producer.receive_ack(2)
    assert stored(reader, "blocks", "first_index") == [0, 1, 2, 3, 4, 5]


def test_a_read_that_makes_no_sense_is_answered_in_words(reader: LogReader) -> None:
    words = {
        ("nothing", 0, 1, ""): f"unknown table 'nothing', expected one of {', '.join(wire.TABLES)}",
        ("blocks", 0, 0, ""): "limit is 0, expected 1 to 65536",
        ("blocks", 2**63, 1, ""): f"after is {2**63}, expected {-(2**62)} to {2**62}",
        ("events", 0, 1, "a"): "table 'events' has no column 'job', expected no job but got 'a'",
        ("blocks", 0, 1, "' OR true"): (
            'job is "\' OR true", expected an identifier of 1-128 characters from A-Z a-z 0-9 _ . : @ / + -'
        ),
    }
    for (table, after, limit, job), expected in words.items():
        with pytest.raises(ReadRefused) as refusal:
            reader.read(table, after, limit, job)
        assert str(refusal.value) == expected


def test_a_reader_says_who_did_not_answer_and_goes_on_when_the_collector_is_back(tmp_path: Path) -> None:
    endpoint = f"tcp://127.0.0.1:{free_ports(1)}"
    with collector_on(tmp_path / "log.duckdb", endpoint), Producer(endpoint) as producer:
        producer.hello()
        producer.append(1, "blocks", 2, blocks(2))
        producer.receive_ack(1)
    with LogReader(endpoint, timeout=0.2) as reader:
        with pytest.raises(LogUnavailable) as silence:
            reader.read("blocks", 0)
        assert str(silence.value) == (
            f"no answer from the collector at {endpoint} within 0.2 s;"
            " check that `barograph up` or `barograph collector` runs there"
        )
        reader.timeout = DEADLINE_SECONDS
        with collector_on(tmp_path / "log.duckdb", endpoint):
            assert reader.read("blocks", 0).columns["first_index"].tolist() == [0, 1]


def test_a_port_that_is_taken_is_named(collector: Collector, tmp_path: Path) -> None:
    with Store(tmp_path / "second.duckdb") as store, pytest.raises(CannotListen) as refusal:
        Collector(store, collector.endpoint).start()
    assert str(refusal.value) == (
        f"cannot listen on {collector.endpoint}: Address already in use (addr={collector.endpoint!r});"
        " stop what listens there or choose another address"
    )
