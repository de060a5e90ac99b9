"""A restart reads as much of the log as the scorer keeps, however long the log is, and judges what was open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from barograph_agent.protocol.wire import Result
from barograph_alerts import restore as restoring
from barograph_alerts.job.references import References
from barograph_alerts.main import TABLES
from barograph_alerts.processor import Scorer
from barograph_alerts.restore import Restore
from barograph_collector.client.follow import Follower
from barograph_collector.client.log_reader import RowBatch
from barograph_collector.daemon.places import JobPlaces
from barograph_collector.daemon.sources import FollowedCollector
from helpers.jobs import Simulation, verdict

NOW = 1e9


class MemoryLog:
    """Rows by table; counts those that are read."""

    def __init__(self, endpoint: str = "tcp://a:1") -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {table: [] for table in (*TABLES, "scores")}
        self.offset = 0
        self.endpoint = endpoint
        self.read_rows = 0
        self.days_ago: int | None = None
        """First offset of the day that is long ago."""

    def put(self, table: str, columns: dict[str, Any]) -> None:
        for values in zip(*columns.values(), strict=True):
            self.offset += 1
            self.rows[table].append({**dict(zip(columns, values, strict=True)), "offset": self.offset})

    def read(self, table: str, after: int, limit: int) -> RowBatch:
        """The first of the last -after rows, of which the offset is asked."""
        first = self.rows[table][after:][:limit]
        return RowBatch({}, len(first), first[0]["offset"] if first else 0)

    def read_latest(self, table: str, rows: int) -> Iterator[RowBatch]:
        for row in self.rows[table][-rows:]:
            self.read_rows += 1
            columns = {name: np.array([value]) if name == "offset" else [value] for name, value in row.items()}
            yield RowBatch(columns, 1, row["offset"])

    def query(self, text: str) -> Result:
        table = pa.table({"first": [self.days_ago]})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return Result(1, sink.getvalue().to_pybytes(), 1, more=False)

    def read_all(self, table: str, after: int) -> Iterator[RowBatch]:
        behind = sum(row["offset"] > after for row in self.rows[table])
        return self.read_latest(table, behind) if behind else iter(())


def job(log: MemoryLog, simulation: Simulation, *, ended: bool) -> str:
    made = simulation.job()
    log.put("jobs", made["jobs"])
    log.put("blocks", made["blocks"])
    log.put("runs", made["runs"])
    if ended:
        log.put("scores", verdict(made, 0.0))
    return made["jobs"]["job"][0]


def test_of_judged_jobs_only_as_many_rows_are_processed_as_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "JOBS", 1)
    log, simulation = MemoryLog(), Simulation()
    running = job(log, simulation, ended=False)
    judged = [job(log, simulation, ended=True) for _ in range(5)]
    seen: list[str] = []
    real = Scorer.observe

    def observe(self: Scorer, table: str, columns: Mapping[str, Any], now: float) -> None:
        seen.extend(columns["job"] if table == "jobs" else [])
        real(self, table, columns, now)

    monkeypatch.setattr(Scorer, "observe", observe)
    scorer, _ = restored(log)
    assert seen == [running, *judged[-2:]]
    assert set(scorer.jobs) == {running}
    assert all(map(scorer.is_judged, judged))


def test_of_more_workloads_than_are_kept_no_pace_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "MAX_WORKLOADS", 2)
    latest = restoring.LatestRows(["workload", "class_id"])
    for number, workload in enumerate("abcabd"):
        latest.add({"workload": [workload], "class_id": np.array([number % 2])}, [True])
    assert [(row["workload"], row["class_id"].tolist()) for row in latest.rows()] == [(["b"], [0]), (["d"], [1])]


def restored(log: MemoryLog) -> tuple[Scorer, FollowedCollector]:
    scorer, source = Scorer(), source_of(log)
    Restore(scorer)([source], NOW)
    return scorer, source


def begins(source: FollowedCollector, table: str) -> tuple[int, int]:
    """After which offsets older rows of open jobs, and new rows, are read of a table."""
    (backfill,) = source.backfills
    return backfill.follower.offsets[table], source.follower.offsets[table]


def source_of(log: MemoryLog, collectors: Sequence[str] = ("tcp://a:1",)) -> FollowedCollector:
    return FollowedCollector(log, Follower(log, TABLES), JobPlaces(collectors))  # type: ignore[arg-type]


def test_jobs_without_a_verdict_are_watched_again_from_their_begin() -> None:
    log, simulation = MemoryLog(), Simulation(intervals=2)
    for _ in range(3):
        job(log, simulation, ended=True)
    before = log.offset
    opened = job(log, simulation, ended=False)
    job(log, simulation, ended=True)
    scorer, source = restored(log)
    assert list(scorer.jobs) == [opened]
    assert begins(source, "blocks") == (before + 1, log.rows["blocks"][-1]["offset"])
    assert source.backfills[0].jobs == {opened}
    assert source.follower.offsets["jobs"] == log.rows["jobs"][-1]["offset"]
    assert not scorer.jobs[opened].ended, "its end comes after its blocks"


def test_a_long_log_is_read_from_its_latest_rows_on_and_older_jobs_are_not_judged_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, simulation = MemoryLog(), Simulation(intervals=2)
    for _ in range(100):
        job(log, simulation, ended=True)
    opened = job(log, simulation, ended=False)
    monkeypatch.setattr(restoring, "MAX_ROWS", 10)
    monkeypatch.setattr(restoring, "LATEST", dict.fromkeys(restoring.LATEST, 10))
    monkeypatch.setattr(restoring, "MAX_SCORES", 5)
    scorer, source = restored(log)
    assert log.read_rows == 1 + 5 + 10 + 10  # the last of `blocks`, scores, jobs, runs
    assert list(scorer.jobs) == [opened]
    assert not scorer.step(NOW)
    assert begins(source, "runs") == (scorer.jobs[opened].offset, log.rows["blocks"][-1]["offset"])


def test_a_job_that_began_long_ago_and_has_no_end_is_given_up_and_blocks_since_then_are_not_read() -> None:
    log, simulation = MemoryLog(), Simulation(intervals=2)
    lost = job(log, simulation, ended=False)
    log.days_ago = log.offset
    opened = job(log, simulation, ended=False)
    scorer, source = restored(log)
    assert list(scorer.jobs) == [opened]
    assert begins(source, "blocks")[0] == scorer.jobs[opened].offset
    (score,) = scorer.step(NOW)
    assert (score.columns["job"], score.columns["final"]) == (lost, 1)
    assert score.columns["sentence"] == "unknown: it began long ago and has no end"


def test_of_several_logs_each_is_read_from_its_own_first_open_job_on() -> None:
    """The second log is longer: an offset of one says nothing about the other."""
    simulation, collectors = Simulation(intervals=2), ("tcp://a:1", "tcp://b:1")
    first, second = (MemoryLog(endpoint) for endpoint in collectors)
    for _ in range(5):
        job(second, simulation, ended=True)
    open_in_second = job(second, simulation, ended=False)
    open_in_first = job(first, simulation, ended=False)
    judged_elsewhere = simulation.job()
    second.put("jobs", judged_elsewhere["jobs"])
    first.put("scores", verdict(judged_elsewhere, 0.0))
    second.days_ago = 3
    scorer, sources = Scorer(), [source_of(log, collectors) for log in (first, second)]
    Restore(scorer)(sources, NOW)
    assert set(scorer.jobs) == {open_in_first, open_in_second}
    assert [begins(source, "blocks")[0] for source in sources] == [1, 26]
    assert not scorer.step(NOW)


def test_a_log_that_is_read_later_gives_up_none_of_the_jobs_of_the_first() -> None:
    simulation, collectors = Simulation(intervals=2), ("tcp://a:1", "tcp://b:1")
    first, second = (MemoryLog(endpoint) for endpoint in collectors)
    opened = job(first, simulation, ended=False)
    lost = job(second, simulation, ended=False)
    second.days_ago = 10**6
    scorer = Scorer()
    restore = Restore(scorer)
    for log in (first, second):
        restore([source_of(log, collectors)], NOW)
    assert list(scorer.jobs) == [opened]
    assert [score.columns["job"] for score in scorer.step(NOW)] == [lost]


def test_the_longest_usual_interval_follows_the_latest_bands_and_not_the_fit_of_a_tail() -> None:
    references = References()
    for class_id, method, upper in (
        (1, "empirical", 9.0),
        (2, "empirical", 2.0),
        (2, "gev", 1e9),
        (2, "bootstrap", 1e9),
        (1, "empirical", 1.0),
    ):
        limits = {f"{name}_seconds": [upper] for name in ("lower", "expected", "upper")}
        row = {"workload": ["w"], "class_id": [class_id], "kind": ["interval"], "method": [method], "samples": [9]}
        references.read("bands", {**row, **limits})
    assert references.longest_seconds("w") == 2.0
