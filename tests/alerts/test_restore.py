"""A restart reads as much of the log as the scorer keeps, however long the log is, and judges what was open."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from barograph_agent.protocol.wire import Result
from barograph_alerts import restore as restoring
from barograph_alerts.job.references import References
from barograph_alerts.main import TABLES
from barograph_alerts.processor import Scorer
from barograph_alerts.recall import Recall
from barograph_alerts.restore import Restore
from barograph_collector.client.log_reader import RowBatch
from barograph_collector.daemon.source import LogSource
from barograph_modeler.learning.rows import accepted_output
from helpers.answers import answered, arrow
from helpers.jobs import Simulation, scores_of, verdict

NOW = 1e9


class MemoryLog:
    """Rows by table; counts those that are read.

    days: the number of each, its first offset, and whether it is in the lake. note: which of these cannot be read.
    """

    def __init__(self, endpoint: str = "tcp://a:1") -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {table: [] for table in (*TABLES, "scores")}
        self.offset = 0
        self.endpoint = endpoint
        self.rows_read: Counter[str] = Counter()
        """By table, but where only the names of jobs are read."""
        self.queries = 0
        self.days: list[tuple[int, int, bool]] = []
        self.note = ""

    def put(self, table: str, columns: dict[str, Any]) -> None:
        for values in zip(*columns.values(), strict=True):
            self.offset += 1
            self.rows[table].append({**dict(zip(columns, values, strict=True)), "log_offset": self.offset})

    def read(self, table: str, after: int, limit: int) -> RowBatch:
        """The first of the last -after rows, of which the offset is asked."""
        first = self.rows[table][after:][:limit]
        return RowBatch({}, len(first), first[0]["log_offset"] if first else 0)

    def read_latest(self, table: str, rows: int) -> Iterator[RowBatch]:
        for row in self.rows[table][-rows:]:
            self.rows_read[table] += 1
            columns = {name: np.array([value]) if name == "log_offset" else [value] for name, value in row.items()}
            yield RowBatch(columns, 1, row["log_offset"])

    def query(self, text: str, limit: int = 1000, seconds: float = 10.0) -> Result:
        self.queries += 1
        tables = {table: arrow(table, rows) for table, rows in self.rows.items() if table in text and rows}
        columns = list(zip(*self.days, strict=True))
        if columns:
            tables["partitions"] = pa.table(dict(zip(("day", "first_offset", "archived"), columns, strict=True)))
        found = answered(text, tables)
        table = next((name for name in self.rows if f'FROM "{name}" WHERE log_offset BETWEEN' in text), "")
        if table and not text.startswith('SELECT "log_offset", "job" FROM') and " AS bytes " not in text:
            self.rows_read[table] += found.rows
        return msgspec.structs.replace(found, note=self.note if "scores" in text else "")

    def read_all(self, table: str, after: int) -> Iterator[RowBatch]:
        behind = sum(row["log_offset"] > after for row in self.rows[table])
        return self.read_latest(table, behind) if behind else iter(())


def job(log: MemoryLog, simulation: Simulation, *, ended: bool, runs: bool = True) -> str:
    """A job in a log; its name. ended: whether it has its verdict. runs: whether its end was read."""
    made = simulation.job()
    log.put("jobs", made["jobs"])
    log.put("blocks", made["blocks"])
    if runs:
        log.put("runs", made["runs"])
    if ended:
        log.put("scores", verdict(made, 0.0))
    return made["jobs"]["job"][0]


def test_what_is_read_does_not_grow_with_the_number_of_judged_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "JOBS", 2)
    monkeypatch.setattr(restoring, "MAX_VERDICTS", 3)
    monkeypatch.setattr(restoring, "LATEST", dict.fromkeys(restoring.LATEST, 2))
    read, queries = [], []
    for judged in (6, 60):
        log, simulation = MemoryLog(), Simulation(intervals=2)
        running = job(log, simulation, ended=False)
        for _ in range(judged):
            log.put("events", {"source": ["lab/1"], "kind": ["gap"], "detail": [""], "time": [0.0]})
            job(log, simulation, ended=True)
        scorer, _ = restored(log)
        assert set(scorer.jobs) == {running}
        blocks = log.rows["blocks"][-1]["log_offset"]
        late = {name: [value] for name, value in log.rows["blocks"][-1].items()} | {"log_offset": [blocks]}
        scorer.observe("blocks", late, NOW)
        assert set(scorer.jobs) == {running}, "late rows of judged jobs are theirs"
        read.append(log.rows_read)
        queries.append(log.queries)
    assert [+rows for rows in read] == [{"blocks": 1, "scores": 3, "jobs": 3, "runs": 2}] * 2
    assert queries[0] == queries[1]


def test_verdicts_that_blame_nodes_are_read_however_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "MAX_VERDICTS", 1)
    log, simulation = MemoryLog(), Simulation(intervals=2)
    job(log, simulation, ended=False)
    for cause in ("straggler", "none", "straggler", "none", "none"):
        made = simulation.job()
        log.put("jobs", made["jobs"])
        hosts = {"cause": [cause], "members": ['["n2"]'], "hosts": ['["n1", "n2", "n3"]']}
        log.put("scores", verdict(made, 2.0) | hosts)
    scorer, _ = restored(log)
    assert log.rows_read["scores"] == 3
    assert [(host, record.jobs) for host, record, _ in scorer.nodes.ranking(1)] == [("n2", 2)]


def test_jobs_from_before_the_first_day_are_not_watched_as_their_verdicts_were_dropped() -> None:
    log, simulation = MemoryLog(), Simulation(intervals=2)
    job(log, simulation, ended=False)
    log.days = [(10, log.offset + 1, False)]
    opened = job(log, simulation, ended=False)
    scorer, _ = restored(log)
    assert list(scorer.jobs) == [opened]
    assert not scorer.step(NOW)


def test_while_days_in_the_lake_cannot_be_read_only_jobs_of_days_in_the_database_are_watched() -> None:
    log, simulation = MemoryLog(), Simulation(intervals=2)
    earlier = job(log, simulation, ended=False)
    log.days = [(10, 1, True), (11, log.offset + 1, False)]
    opened = job(log, simulation, ended=False)
    assert set(restored(log)[0].jobs) == {earlier, opened}
    log.note = "day 1970-01-11 could not be read"
    assert set(restored(log)[0].jobs) == {opened}


@pytest.mark.parametrize("accepted", [False, True])
def test_an_open_job_is_compared_with_the_pace_there_was_when_it_began_unless_slow_runs_were_accepted_since(
    accepted: bool,
) -> None:
    log, simulation = MemoryLog(), Simulation(intervals=2)
    other = {"means": ["{}"], "residuals": ["[]"], "limits": ["{}"], "window_seconds": [1.0]}

    def put_pace(runs: int) -> None:
        log.put("paces", {"workload": [simulation.workload], "runs": [runs], "fitted_at": [simulation.now]} | other)
        simulation.now += 1.0

    first = job(log, simulation, ended=False)
    for runs in (1, 2):
        put_pace(runs)
    second = job(log, simulation, ended=False)
    if accepted:
        closed = accepted_output(simulation.workload, [1.0], [2.0], simulation.now)
        row = {name: [value] for name, value in closed.columns.items()}
        # Of another workload it has no effect.
        for source in (simulation.workload, "another")[::-1]:
            log.put("events", row | {"source": [source]})
    for runs in (3, 4):
        put_pace(runs)
    third = job(log, simulation, ended=False)
    job(log, simulation, ended=True)
    scorer, source = restored(log)
    recall = Recall(scorer, lambda: log, lambda: NOW)  # type: ignore[arg-type,return-value]
    recall.begin(source)
    scorer.step(NOW)
    recall.poll(threading.Lock())
    paces = [scorer._new_monitor(scorer.jobs[name]).evidence.pace for name in (first, second, third)]
    assert [pace and pace.runs for pace in paces] == [4, 4 if accepted else 2, 4]
    scorer.jobs[second].assign("another", "like")
    assert scorer._new_monitor(scorer.jobs[second]).evidence.pace is None


@pytest.mark.quarantine
def test_a_malformed_pace_is_reported_once_and_its_job_is_judged_without_it() -> None:
    scorer, simulation = Scorer(), Simulation()
    row = {"workload": [simulation.workload], "runs": [1], "windows": [1], "window_seconds": [1.0], "spread": [0.1],
           "means": ["?"], "residuals": ["[]"], "progress": [""], "limits": [""]}  # fmt: skip
    scorer.observe("paces", row, NOW)
    for _ in range(2):
        for table, columns in simulation.job().items():
            scorer.observe(table, columns, NOW)
        assert [output.columns["state"] for output in scores_of(scorer.step(NOW))] != ["unknown"]
    assert scorer.quarantine.failures == {"paces": 1}
    assert len(scorer.quarantine) == 0


def restored(log: MemoryLog) -> tuple[Scorer, LogSource]:
    scorer, source = Scorer(), LogSource(log, TABLES)  # type: ignore[arg-type]
    Restore(scorer)(source, NOW)
    return scorer, source


def begins(source: LogSource, table: str) -> tuple[int, int]:
    """After which offsets older rows of open jobs, and new rows, are read of a table."""
    (backfill,) = source.backfills
    return backfill.follower.offsets[table], source.follower.offsets[table]


def test_jobs_without_a_verdict_are_watched_again_from_their_begin() -> None:
    log, simulation = MemoryLog(), Simulation(intervals=2)
    for _ in range(3):
        job(log, simulation, ended=True)
    before = log.offset
    opened = job(log, simulation, ended=False)
    job(log, simulation, ended=True)
    scorer, source = restored(log)
    assert list(scorer.jobs) == [opened]
    assert begins(source, "blocks") == (before + 1, log.rows["blocks"][-1]["log_offset"])
    assert source.backfills[0].jobs == {opened}
    assert source.follower.offsets["jobs"] == log.rows["jobs"][-1]["log_offset"]
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
    monkeypatch.setattr(restoring, "JOBS", 5)
    scorer, source = restored(log)
    assert +log.rows_read == {"blocks": 1, "scores": 9, "jobs": 5, "runs": 10}
    assert list(scorer.jobs) == [opened]
    assert not scorer.step(NOW)
    assert begins(source, "runs") == (scorer.jobs[opened].offset, log.rows["blocks"][-1]["log_offset"])


def test_a_job_that_began_long_ago_and_has_no_end_is_given_up_and_blocks_since_then_are_not_read() -> None:
    log, simulation = MemoryLog(), Simulation(intervals=2)
    lost = job(log, simulation, ended=False, runs=False)
    log.days = [(0, 1, False), (1, log.offset, False), (31, log.offset + 1, False)]
    opened = job(log, simulation, ended=False)
    scorer, source = restored(log)
    assert list(scorer.jobs) == [opened]
    assert begins(source, "blocks")[0] == scorer.jobs[opened].offset
    (score,) = scorer.step(NOW)
    assert (score.columns["job"], score.columns["final"]) == (lost, 1)
    assert score.columns["sentence"] == "unknown: it began long ago and has no end"


@pytest.mark.parametrize("latest", [20_000, 2])
def test_jobs_that_ended_long_ago_have_had_verdicts_that_the_lake_has_no_more(
    monkeypatch: pytest.MonkeyPatch, latest: int
) -> None:
    monkeypatch.setattr(restoring, "JOBS", latest)
    log, simulation = MemoryLog(), Simulation(intervals=2)
    for _ in range(5):
        job(log, simulation, ended=False)
    lost = job(log, simulation, ended=False, runs=False)
    log.days = [(0, 1, True), (1, log.offset, True), (31, log.offset + 1, False)]
    opened = job(log, simulation, ended=False)
    scorer, _ = restored(log)
    assert log.rows_read["jobs"] == min(latest, 7)
    assert [score.columns["job"] for score in scorer.step(NOW)] == [lost]
    assert list(scorer.jobs) == [opened]


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
