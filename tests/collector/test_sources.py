"""Several collectors are followed as one log, and each gets what is written about its jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq

from barograph_agent.deliver.shards import shard_of
from barograph_collector.client.log_reader import LogReader, LogUnavailable, ReadRefused, Round
from barograph_collector.daemon.places import JobPlaces, PlacedWriter
from barograph_collector.daemon.quarantine import Quarantine
from barograph_collector.daemon.runner import Output, Runner
from barograph_collector.daemon.service import CannotStart, Exit
from barograph_collector.daemon.sources import OF_NO_JOB, START_SECONDS, FollowedCollector, Sources, SourcesExporter
from barograph_collector.server import Collector
from helpers.log import DEADLINE_SECONDS, Producer, collector_on, wait_until

A, B = "tcp://a:1", "tcp://b:1"


class FakeLog:
    """A collector with some rows of `blocks`, or one that does not answer."""

    def __init__(self, endpoint: str, *rounds: list[str]) -> None:
        self.endpoint = endpoint
        self.name = endpoint
        self.rounds = list(rounds)
        self.error: Exception | None = None
        self.offset = 0
        self.registered = self.asked = 0
        self.over = 0
        """Reads whose time ends without a row."""
        self.waiting = False
        self.connections = 1

    def close(self) -> None:
        self.connections = 0

    def identity(self) -> str:
        self.asked += 1
        return self.name

    def follow(self, offsets: Mapping[str, int], limit: int, seconds: float) -> Round | None:
        assert seconds > 0, "a read that does not wait blocks where there is no answer"
        if self.error is not None:
            raise self.error
        if max(offsets.values()) > self.offset:
            return max(offsets.values()), {}  # it was asked whether it answers
        if self.over:
            self.over -= 1
            return self.offset, {}
        if not self.rounds:
            self.waiting = True
            return None
        jobs = self.rounds.pop(0)
        first, self.offset = self.offset + 1, self.offset + len(jobs)
        return self.offset, {"blocks": {"job": jobs, "offset": np.arange(first, self.offset + 1)}}

    def register(self, poller: zmq.Poller) -> None:
        self.registered += 1


class Prepared:
    """Sources, the calls of `prepare`, and a clock."""

    def __init__(self, *logs: FakeLog) -> None:
        self.now = 0.0
        self.calls: list[list[str]] = []
        self.places = JobPlaces([log.endpoint for log in logs])
        self.sources = Sources(logs, ["paces", "blocks"], self.places, lambda: self.now)  # type: ignore[arg-type]

    def step(self) -> list[list[str]]:
        """One cycle; the jobs of each round."""
        self.sources.prepare(lambda ready: self.calls.append([source.endpoint for source in ready]))
        return [list(columns["job"]) for round_ in self.sources.poll() for _, columns in round_]


@pytest.mark.parametrize("logs", [[FakeLog(A)], [FakeLog(A), FakeLog(B)]], ids=["one", "two"])
def test_a_refusal_of_what_a_daemon_reads_at_its_start_does_not_end_it(
    logs: list[FakeLog], caplog: pytest.LogCaptureFixture
) -> None:
    prepared = Prepared(*logs)

    def refused(ready: Sequence[FollowedCollector]) -> None:
        raise ReadRefused("role is agent, expected one that may read")

    prepared.sources.prepare(refused)
    assert prepared.sources.delivered == {}
    assert {source.trouble for source in prepared.sources.all} == {"role is agent, expected one that may read"}
    lines = [record.getMessage() for record in caplog.records]
    others = ", the other collectors are followed meanwhile" if len(logs) > 1 else ""
    assert lines == [f"role is agent, expected one that may read; retrying{others}"] * len(logs)
    prepared.sources.prepare(lambda ready: prepared.calls.append([source.endpoint for source in ready]))
    assert prepared.calls == [[log.endpoint for log in logs]]
    assert list(prepared.sources.delivered) == [log.name for log in logs]
    assert not any(source.trouble for source in prepared.sources.all)


def test_rounds_of_all_collectors_come_in_turn_and_one_without_an_answer_holds_up_none() -> None:
    first, second = FakeLog(A, ["a1"], ["a2"], ["a3"]), FakeLog(B, ["b1"])
    prepared = Prepared(first, second)
    assert prepared.step() == [["a1"], ["b1"], ["a2"], ["a3"]]
    first.rounds, second.error = [["a4"]], LogUnavailable("away")
    assert prepared.step() == [["a4"]]
    second.error, second.rounds = ReadRefused("not now"), []
    assert prepared.step() == []
    second.error, second.rounds = None, [["b2"], ["b3"]]
    assert prepared.step() == [["b2"], ["b3"]]
    assert prepared.sources.delivered == {A: {"paces": 0, "blocks": 4}, B: {"blocks": 3}}


def test_a_read_whose_time_is_over_is_followed_by_another_one_at_once() -> None:
    log = FakeLog(A, ["a1"])
    prepared = Prepared(log)
    assert prepared.step() == [["a1"]]
    for _ in range(3):
        log.over, log.waiting = 1, False
        assert prepared.step() == []
        assert log.waiting, "nothing would wake the daemon when a row comes"
    log.rounds = [["a2"]]
    assert prepared.step() == [["a2"]]


def test_it_begins_with_all_that_answer_soon_and_the_first_must_be_among_them() -> None:
    first, second, third = (FakeLog(endpoint, [endpoint]) for endpoint in (A, B, "tcp://c:1"))
    first.error = third.error = LogUnavailable("away")
    prepared = Prepared(first, second, third)
    assert prepared.step() == []
    prepared.now = START_SECONDS
    assert prepared.step() == []
    prepared.sources.register(zmq.Poller())
    assert (first.registered, second.registered) == (1, 0), "late answers of the second would not let it wait"
    first.error = None
    assert prepared.step() == [[A], [B]]
    assert prepared.step() == []
    third.error = None
    assert prepared.step() == [["tcp://c:1"]]
    assert prepared.calls == [[A, B], ["tcp://c:1"]]


def test_a_collector_that_goes_away_while_it_is_prepared_for_is_asked_again() -> None:
    first, second = FakeLog(A, ["a1"]), FakeLog(B, ["b1"])
    prepared = Prepared(first, second)

    def fails(ready: object) -> None:
        raise LogUnavailable("away")

    with pytest.raises(LogUnavailable):
        prepared.sources.prepare(fails)
    assert prepared.sources.delivered == {}
    assert prepared.step() == [["a1"], ["b1"]]


def test_a_collector_that_comes_back_with_another_log_is_read_anew_and_with_the_first_one_where_that_ended() -> None:
    """Whether it was missed, or was away for so short that only its connection is another one."""
    first, second = FakeLog(A), FakeLog(B, ["old1", "old2"])
    prepared = Prepared(first, second)
    assert prepared.step() == [["old1", "old2"]]
    second.connections, second.name, second.offset, second.rounds = 2, "new", 0, [["new1"]]
    assert prepared.step() == [["new1"]]
    assert prepared.calls == [[A, B], [B]]
    assert prepared.sources.delivered == {A: {"paces": 0, "blocks": 0}, B: {"blocks": 2}, "new": {"blocks": 1}}
    assert (second.connections, second.asked) == (2, 2), "one that is checked is asked for its name no more"
    second.error = LogUnavailable("away")
    assert prepared.step() == []
    second.error, second.name, second.offset, second.rounds = None, B, 2, [["old3"]]
    assert prepared.step() == [["old3"]]
    assert prepared.calls == [[A, B], [B]], "this process has what the first log had"
    assert prepared.sources.delivered == {A: {"paces": 0, "blocks": 0}, B: {"blocks": 3}, "new": {"blocks": 1}}


def test_a_log_that_is_replaced_while_it_is_prepared_for_is_asked_for_its_name_again() -> None:
    """What comes then would be taken for rows of the former one."""
    first, second = FakeLog(A), FakeLog(B)
    prepared = Prepared(first, second)

    def replaced(ready: object) -> None:
        second.connections, second.name, second.rounds = 2, "new", [["new1"]]

    prepared.sources.prepare(replaced)
    assert prepared.step() == [["new1"]]
    assert prepared.calls == [[B]]
    assert prepared.sources.delivered == {A: {"paces": 0, "blocks": 0}, B: {"blocks": 0}, "new": {"blocks": 1}}


class OnlyLog(FakeLog):
    """The only collector, whose reads need not wait."""

    def follow(self, offsets: Mapping[str, int], limit: int, seconds: float) -> Round | None:
        return super().follow(offsets, limit, max(seconds, 1.0))


@pytest.mark.parametrize("is_missed", [True, False])
def test_the_only_collector_is_read_anew_if_it_comes_back_with_another_log(is_missed: bool) -> None:
    """Its state was wiped. It would be read from the offsets of the former log on, which it has not."""
    log = OnlyLog(A, ["old1", "old2"])
    prepared = Prepared(log)
    assert prepared.step() == [["old1", "old2"]]
    if is_missed:
        log.error = LogUnavailable("away")
    else:
        log.connections = 2
    for _ in range(2):
        with pytest.raises(LogUnavailable, match="away" if is_missed else "was started again"):
            list(prepared.sources.poll())
    log.error, log.name, log.offset, log.rounds = None, "new", 0, [["new1"]]
    assert prepared.step() == [["new1"]]
    assert prepared.calls == [[A], [A]]
    assert prepared.sources.delivered == {A: {"paces": 0, "blocks": 2}, "new": {"paces": 0, "blocks": 1}}


def test_two_addresses_of_one_collector_end_the_daemon() -> None:
    first, second = FakeLog(A), FakeLog(B)
    second.name = A
    with pytest.raises(CannotStart) as error:
        Prepared(first, second).step()
    assert str(error.value) == f"{A} and {B} are one collector, expected one address of each"
    assert error.value.status == Exit.USAGE


def test_what_is_about_no_job_is_read_and_written_at_the_first_collector() -> None:
    assert {"bands", "paces", "models", "suspects", "work_edits"} == OF_NO_JOB
    sources = Prepared(FakeLog(A), FakeLog(B)).sources
    assert [list(source.follower.offsets) for source in sources.all] == [["paces", "blocks"], ["blocks"]]


def test_a_job_is_where_its_agents_write_also_if_its_name_says_otherwise() -> None:
    places = JobPlaces([A, B])
    job = next(f"lab/{number}.0.0" for number in range(9) if shard_of(f"lab/{number}.0.0", [A, B]) == A)
    assert places.of(job) == A
    places.note(B, "scores", {"job": [job]})
    assert places.of(job) == A, "daemons write where they take a job to be"
    places.note(B, "blocks", {"job": [job]})
    assert places.of(job) == B
    places.note(A, "blocks", {"job": [job]})
    assert places.of(job) == A


def test_rows_are_parted_by_job() -> None:
    jobs = [f"lab/{number}.0.0" for number in range(8)]
    writer = PlacedWriter(JobPlaces([A, B]), "test/1")
    with closing_at_once(writer):
        parts = list(writer._parted("scores", 8, {"job": jobs, "score": np.arange(8.0), "cause": "none", "final": 1}))
        assert sorted(job for _, _, columns in parts for job in columns["job"]) == jobs
        for collector, rows, columns in parts:
            assert {shard_of(job, [A, B]) for job in columns["job"]} == {collector}
            assert columns["score"].tolist() == [float(jobs.index(job)) for job in columns["job"]]
            assert (rows, columns["cause"], columns["final"]) == (len(columns["job"]), "none", 1)
        assert [part[:2] for part in writer._parted("paces", 2, {"workload": ["w", "v"]})] == [(A, 2)]
        assert [part[:2] for part in writer._parted("scores", 3, {"job": jobs[0]})] == [(shard_of(jobs[0], [A, B]), 3)]


def closing_at_once(writer: PlacedWriter) -> Any:
    class Closing:
        def close(self) -> None:
            writer.close(0.0)

    return closing(Closing())


class Judge:
    """Writes a final score for each job that has rows of `runs`."""

    idle = True

    def __init__(self) -> None:
        self.quarantine = Quarantine()
        self._due: list[str] = []

    def observe(self, table: str, columns: Mapping[str, Any], now: float) -> None:
        self._due += columns["job"]

    def step(self, now: float) -> list[Output]:
        due, self._due = self._due, []
        values = {"workload": "lab/app", "state": "healthy", "score": 0.0, "slowdown": 1.0, "onset_at": 0.0,
                  "alarmed_at": 0.0, "windows": 0, "final": 1, "sentence": "healthy", "cause": "none", "members": "[]",
                  "evidence": "{}", "basis": "history", "recovered_at": 0.0, "hosts": "[]", "at": now}  # fmt: skip
        pace = {"workload": "lab/app", "runs": 1, "windows": 1, "window_seconds": 1.0, "spread": 0.0, "means": "{}",
                "residuals": "[]", "fitted_at": now, "progress": "", "limits": ""}  # fmt: skip
        return [Output("scores", len(due), {**values, "job": due}), Output("paces", 1, pace)] if due else []


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[list[Collector]]:
    with collector_on(tmp_path / "a.duckdb") as one, collector_on(tmp_path / "b.duckdb") as other:
        yield [one, other]


def test_verdicts_return_to_the_log_of_their_job_and_all_metrics_tell_who_answers(pair: list[Collector]) -> None:
    endpoints = [one.endpoint for one in pair]
    jobs = [f"lab/{number}.0.0" for number in range(20)]
    by_log = {one: [job for job in jobs if shard_of(job, endpoints) == one] for one in endpoints}
    places = JobPlaces(endpoints)
    sources = Sources([LogReader(one, DEADLINE_SECONDS) for one in endpoints], ["runs"], places, lambda: 0.0)
    writer = PlacedWriter(places, "judge/1")
    runner = Runner(Judge(), sources, writer, clock=lambda: 7.0)
    exporter = SourcesExporter("judge", sources, writer)
    for endpoint, own in by_log.items():
        with Producer(endpoint, "lab/x") as producer:
            producer.hello()
            producer.append(1, "runs", len(own), {"job": own, "ended_at": 1.0, "runtime_seconds": 1.0, "exit_status": 0,
                                                  "intervals": 1, "dropped": 0, "imported": 0})  # fmt: skip
            producer.receive_ack(1)

    def judged() -> bool:
        sources.prepare(lambda ready: None)
        runner.step()
        return writer.idle and all(sources.delivered[source.name]["runs"] for source in sources.all)

    with closing(sources), closing_at_once(writer):
        wait_until(lambda: len(sources.delivered) == 2 or sources.prepare(lambda ready: None), "both answer")
        wait_until(judged, "all rows are judged")
        for endpoint, own in by_log.items():
            with LogReader(endpoint, DEADLINE_SECONDS) as reader:
                found = [job for page in reader.read_all("scores") for job in page.columns["job"]]
                assert sorted(found) == sorted(own)
                assert bool(reader.read("paces", 0).rows) == (endpoint == endpoints[0])
        up, waiting = exporter.collect()
        assert {sample.labels["collector"]: sample.value for sample in up.samples} == dict.fromkeys(endpoints, 1.0)
        assert [sample.value for sample in waiting.samples] == [0.0, 0.0]
        sources.all[1].fail(LogUnavailable("away"))
        up, _ = exporter.collect()
        assert [sample.value for sample in up.samples] == [1.0, 0.0]


def test_a_log_keeps_its_name(pair: list[Collector]) -> None:
    names = set()
    for one in pair:
        with LogReader(one.endpoint, DEADLINE_SECONDS) as reader:
            names |= {reader.identity(), reader.identity()}
    assert len(names) == 2


def test_a_source_that_is_away_is_named_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    source = Prepared(FakeLog(A), FakeLog(B)).sources.all[1]
    assert isinstance(source, FollowedCollector)
    with caplog.at_level("INFO"):
        for _ in range(3):
            source.fail(LogUnavailable("no answer"))
        source.succeed()
        source.succeed()
    assert caplog.messages == [
        "no answer; retrying, the other collectors are followed meanwhile",
        f"the collector at {B} is back",
    ]
