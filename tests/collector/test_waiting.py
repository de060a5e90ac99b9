"""Reads that wait: answered when there are rows, when their time is over, and when the collector stops."""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
import zmq

from barograph_agent.protocol import wire
from barograph_collector.client.follow import Follower
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused
from barograph_collector.ingest import writer
from barograph_collector.net import receiver, waiting_reads
from barograph_collector.net.waiting_reads import WaitingRead, WaitingReads
from barograph_collector.server import Collector
from barograph_collector.storage.rows import Entry
from helpers.clocks import system_at
from helpers.log import DEADLINE_SECONDS, Producer, blocks, collector_on, wait_until
from helpers.up import free_ports

LONG = 50.0


def read(seconds: float = LONG, request: int = 1, **offsets: int) -> wire.Read:
    return wire.Read(request, "", 0, 10, tables=offsets or {"blocks": 0}, seconds=seconds)


class World:
    """The heads of some tables and a clock, and the reads that wait there."""

    def __init__(self) -> None:
        self.now = 0.0
        self.heads = dict.fromkeys(("blocks", "runs"), 0)
        self.reads = WaitingReads(
            lambda tables: any(self.heads.get(table, 1) > after for table, after in tables.items()), lambda: self.now
        )


def names(found: list[WaitingRead]) -> list[bytes]:
    return [one.peer for one in found]


def test_a_client_that_fills_the_list_ends_its_own_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 64
    monkeypatch.setattr(waiting_reads, "MAX_READS", most)
    reads = World().reads
    assert [reads.add(b"honest", "key of another", read()) for _ in range(2)] == [[], []]
    ended = [peer for number in range(3 * most) for peer in names(reads.add(b"%d" % number, "greedy", read()))]
    assert ended == [b"%d" % number for number in range(2 * most + 2)]
    assert names(reads.take_all())[:2] == [b"honest", b"honest"]


def waiting(collector: Collector) -> int:
    return len(collector._receiver.waits)


def test_rows_are_sent_to_all_that_wait_for_them_and_nobody_else_is_held_up(collector: Collector) -> None:
    with ExitStack() as held:
        producer, one, two, other, gone = (
            held.enter_context(Producer(collector.endpoint, name)) for name in ("p", "one", "two", "other", "gone")
        )
        producer.hello()
        one.send(read(blocks=0, runs=0))
        two.send(read())
        other.send(read(runs=0))
        gone.send(read())
        wait_until(lambda: waiting(collector) == 4, "all of them wait")
        gone.close()
        # A page of one table, over the connection of a read that waits.
        one.send(wire.Read(2, "blocks", 0))
        assert one.receive(wire.Rows) == wire.Rows(2, "blocks", 0, dict.fromkeys(wire.READ_KINDS["blocks"], b"") | {
            "job": []
        }, 0)  # fmt: skip
        producer.append(1, "blocks", 3, blocks(3))
        for follower in (one, two):
            answer = follower.receive(wire.Rows)
            assert (answer.request, answer.table, answer.rows, answer.next_offset) == (1, "", 3, 3)
            assert list(answer.columns) == ["blocks"]
            columns = wire.unpack(answer.columns["blocks"], wire.READ_KINDS["blocks"], 3)
            assert list(columns["first_index"]) == [0, 1, 2]
        assert waiting(collector) == 1
        one.send(read(blocks=1, runs=0))
        assert one.receive(wire.Rows).rows == 2


def test_without_rows_the_answer_comes_when_the_time_is_over(collector: Collector) -> None:
    with Producer(collector.endpoint) as client:
        client.send(read(0.01))
        assert client.receive(wire.Rows) == wire.Rows(1, "", 0, {}, 0)
        assert waiting(collector) == 0


def test_when_the_collector_stops_those_that_wait_are_answered(tmp_path: Path) -> None:
    with ExitStack() as held:
        client = held.enter_context(Producer(endpoint := f"tcp://127.0.0.1:{free_ports(1)}"))
        with collector_on(tmp_path / "log.duckdb", endpoint) as collector:
            client.send(read())
            wait_until(lambda: waiting(collector) == 1, "it waits")
        assert client.receive(wire.Rows) == wire.Rows(1, "", 0, {}, 0)


def test_reads_that_wait_count_as_unanswered_and_one_too_many_is_refused(collector: Collector) -> None:
    with Producer(collector.endpoint) as client, Producer(collector.endpoint, "other") as other:
        other.hello()
        for request in range(5):
            client.send(read(request=request))
        answer = client.receive(wire.Rows)
        assert (answer.request, answer.error) == (
            4,
            "4 requests of this connection are waiting, ask again later",
        )
        assert collector.counters.rejected["rate"] == 1
        other.append(1, "blocks", 1, blocks(1))
        assert [client.receive(wire.Rows).request for _ in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (read(nothing=0), f"unknown table 'nothing', expected one of {', '.join(wire.TABLES)}"),
        (read(blocks=-1), f"after of table 'blocks' is -1, expected 0 to {2**62}"),
        (read(0.0, blocks=2**63), f"after of table 'blocks' is {2**63}, expected 0 to {2**62}"),
        (wire.Read(1, "", 0, 0, tables={"blocks": 0}), f"limit is 0, expected 1 to {wire.MAX_ROWS}"),
    ],
)
def test_a_read_that_makes_no_sense_is_answered_in_words(collector: Collector, request_: wire.Read, words: str) -> None:
    with Producer(collector.endpoint) as client:
        client.send(request_)
        assert client.receive(wire.Rows).error == words


def test_a_follower_that_waits_has_the_rows_when_its_connection_is_readable(collector: Collector) -> None:
    with Producer(collector.endpoint) as producer, LogReader(collector.endpoint, DEADLINE_SECONDS) as reader:
        producer.hello()
        follower = Follower(reader, ["jobs", "blocks"])
        assert follower.read(LONG) is follower.read(LONG) is None
        for seq in (1, 2):
            producer.append(seq, "blocks", 2, blocks(2))
            rows: list[int] = []
            while not rows:
                poller = zmq.Poller()
                reader.register(poller)
                poller.poll(1000 * LONG)
                rows = [o for _, columns in follower.read(LONG) or () for o in columns["log_offset"].tolist()]
            assert rows == [2 * seq - 1, 2 * seq]
            assert follower.read(LONG) is None
        wait_until(lambda: waiting(collector) == 1, "it waits again")


def test_a_wait_that_another_request_interrupts_or_that_is_refused_begins_anew(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LogReader(collector.endpoint, DEADLINE_SECONDS) as reader:

        def is_refused() -> bool:
            try:
                return reader.follow({"blocks": 0}, 10, LONG) is not None
            except ReadRefused:
                return True

        assert reader.follow({"blocks": 0}, 10, LONG) is None
        assert reader.read("blocks", 0).rows == 0
        monkeypatch.setattr(receiver, "REQUESTS_OF_ONE", 1)
        wait_until(is_refused, "the second one is refused, for the first one still waits")
        monkeypatch.undo()
        assert reader.follow({"blocks": 0}, 10, LONG) is None
        wait_until(lambda: waiting(collector) == 2, "the third one waits")


def test_a_wait_is_sent_again_over_a_new_connection_and_given_up_when_its_answer_is_overdue() -> None:
    now = 0.0
    endpoint = f"tcp://127.0.0.1:{free_ports(1)}"
    with zmq.Context() as context, LogReader(endpoint, 2.0, system=system_at(lambda: now)) as reader:

        def wait() -> bool:
            poller = zmq.Poller()
            reader.register(poller)
            poller.poll(20)
            return reader.follow({"blocks": 0}, 10, LONG) is not None

        def is_bound(socket: zmq.Socket[bytes]) -> bool:
            with contextlib.suppress(zmq.ZMQError):
                socket.bind(endpoint)
            return bool(socket.LAST_ENDPOINT)

        numbers = []
        for _ in range(2):
            with context.socket(zmq.ROUTER) as silent:
                wait_until(lambda: is_bound(silent), "the former socket has left the address")
                wait_until(lambda: wait() or silent.poll(0), "the request arrives")
                numbers.append(wire.decode_from_client(silent.recv_multipart()[1]).request)
        assert numbers[0] < numbers[1]
        now = LONG + 1.1
        with pytest.raises(LogUnavailable, match="within 2 s"):
            wait()


def test_a_round_of_a_daemon_is_answered_while_too_many_reads_of_agents_are_queued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collector_on(tmp_path / "log.duckdb") as collector, Producer(collector.endpoint) as client:
        monkeypatch.setattr(collector._receiver.reads, "limit", 0)
        client.hello()
        client.append(1, "blocks", 1, blocks(1))
        client.receive_ack(1)
        client.send(wire.Read(1, "scores", -1, 1, "lab/1.0.0"))
        assert client.receive(wire.Rows).error == "too many of its kind are waiting, ask again later"
        client.send(read(request=2))
        assert client.receive(wire.Rows).rows == 1


def test_a_read_that_would_wait_for_no_number_of_seconds_is_refused(tmp_path: Path) -> None:
    with collector_on(tmp_path / "log.duckdb") as collector, Producer(collector.endpoint) as client:
        client.send(wire.Read(1, "", 0, 10, tables={"blocks": 0}, seconds=float("nan")))
        assert client.receive(wire.Rows).error == "seconds is nan, expected a finite number"


def test_a_request_that_raises_is_answered_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fragile(*arguments: object) -> None:
        raise RecursionError

    with collector_on(tmp_path / "log.duckdb") as collector, Producer(collector.endpoint) as client:
        monkeypatch.setattr(collector.store, "read", fragile)
        client.send(wire.Read(1, "scores", -1, 1, "lab/1.0.0"))
        assert client.receive(wire.Rows).error == "the collector failed: RecursionError"
        monkeypatch.undo()
        client.send(wire.Read(2, "scores", -1, 1, "lab/1.0.0"))
        assert client.receive(wire.Rows).error == ""


def scores(job: str, final: int) -> dict[str, object]:
    text = {"job": job, "workload": "w", "state": "healthy", "cause": "none", "members": "[]", "evidence": "{}",
            "basis": "history", "hosts": "[]", "sentence": f"verdict {final}"}  # fmt: skip
    return {name: text.get(name, 0) for name in wire.TABLES["scores"].columns} | {"final": final}


def verdict(request: int, seconds: float = LONG) -> wire.Read:
    return wire.Read(request, "scores", -1, 1, "lab/1.0.0", seconds=seconds)


def sentence(answer: wire.Rows) -> object:
    return wire.unpack(answer.columns, wire.READ_KINDS["scores"], answer.rows)["sentence"][0]


def test_the_final_score_of_a_job_is_sent_to_whom_waits_for_it_without_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "SMALL_BATCH_SECONDS", 1e6)
    with ExitStack() as held:
        collector = held.enter_context(collector_on(tmp_path / "log.duckdb"))
        alerts, agent, late = (held.enter_context(Producer(collector.endpoint, name)) for name in ("a", "b", "c"))
        alerts.hello()
        alerts.append(1, "blocks", 1, blocks(1))
        wait_until(lambda: collector.counters.rows["blocks"] == 1, "the first row after a pause is committed")
        agent.send(verdict(1))
        wait_until(lambda: waiting(collector) == 1, "it waits")
        for seq, (job, final) in enumerate([("lab/1.0.0", 0), ("lab/2.0.0", 1), ("lab/1.0.0", 1)], 2):
            assert waiting(collector) == 1
            alerts.append(seq, "scores", 1, scores(job, final))
            alerts.receive_ack(seq)
        answer = agent.receive(wire.Rows)
        assert (answer.request, answer.rows, sentence(answer), waiting(collector)) == (1, 1, "verdict 1", 0)
        late.send(verdict(2))
        assert sentence(late.receive(wire.Rows)) == "verdict 1"
        wait_until(lambda: not collector._receiver._unanswered, "nothing is unanswered")
        late.send(wire.Read(3, "scores", 0, 10, "lab/1.0.0"))
        assert late.receive(wire.Rows).rows == 2
        assert collector.counters.rows["scores"] == 0, "no score is committed"


def test_a_wait_for_a_final_score_ends_with_the_last_score(collector: Collector) -> None:
    with Producer(collector.endpoint) as client:
        client.hello()
        client.append(1, "scores", 1, scores("lab/1.0.0", 0))
        client.receive_ack(1)
        client.send(verdict(1, 0.01))
        assert sentence(client.receive(wire.Rows)) == "verdict 0"


def test_waits_for_final_scores_end_in_time_and_jobs_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    reads = WaitingReads(lambda tables: False, lambda: now)
    assert reads.must_wait(verdict(1))
    assert [reads.add(peer, "", verdict(1, seconds)) for peer, seconds in [(b"b", 1e300), (b"c", 2.0)]] == [[], []]
    assert (reads.seconds(), reads.take_due()) == (2.0, [])
    now = 2.0
    assert names(reads.take_due()) == [b"c"]
    assert reads.seconds() == waiting_reads.MAX_SECONDS - 2.0
    monkeypatch.setattr(waiting_reads, "MAX_JOBS", 5)
    for number in range(9):
        columns = wire.pack(scores(f"lab/{number}.0.0", 1), wire.TABLES["scores"].columns)  # type: ignore[arg-type]
        reads.add_final(Entry("scores", 1, columns))
    jobs = (msgspec.structs.replace(verdict(1), job=f"lab/{number}.0.0") for number in (0, 8))
    assert [reads.is_ready(read) for read in jobs] == [False, True]
