"""What was learned of a workload is read when a job of it begins, once, and for all jobs of a cycle together."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from barograph_agent.protocol.wire import Result
from barograph_alerts.main import TABLES
from barograph_alerts.processor import WAIT_SECONDS, Scorer
from barograph_alerts.recall import RETRY_SECONDS, Recall
from barograph_collector.client.log_reader import LogUnavailable
from barograph_modeler.pace.pace import Pace
from helpers.answers import answered, arrow
from helpers.jobs import Simulation, part, scores_of
from helpers.trials import history

NOW = 1e6


class Log:
    """What was learned, as rows; counts queries, and those that were sent. trouble: why it does not answer."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {"paces": [], "bands": []}
        self.queries = self.sent = self.head = 0
        self.is_away = False
        offsets = dict.fromkeys(TABLES, 0)
        self.source = SimpleNamespace(
            endpoint="tcp://a:1", name="log", trouble="", follower=SimpleNamespace(offsets=offsets)
        )

    def put(self, written: Mapping[str, Mapping[str, Any]], workload: str) -> dict[str, dict[str, Any]]:
        """Add rows of a modeler; the same with their offsets."""
        found = {}
        for table in self.rows.keys() & written.keys():
            count = len(written[table]["workload"])
            columns = {**written[table], "workload": [workload] * count}
            columns["log_offset"] = np.arange(self.head + 1, self.head + 1 + count)
            self.head += count
            self.rows[table] += [
                dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
            ]
            found[table] = columns
        return found

    def query(self, text: str, limit: int = 1000, seconds: float = 10.0) -> Result:
        self.queries += 1
        if self.is_away:
            raise LogUnavailable("away")
        found = answered(text, {table: arrow(table, rows) for table, rows in self.rows.items() if table in text})
        self.sent += found.rows * (" AS bytes " not in text)
        return found

    def close(self) -> None:
        pass


class Daemon:
    """A scorer, and what reads for it."""

    def __init__(self, log: Log) -> None:
        self.now, self.log = NOW, log
        self.scorer = Scorer()
        self.recall = Recall(self.scorer, lambda: log, lambda: self.now)  # type: ignore[arg-type,return-value]
        self.recall.begin(log.source)  # type: ignore[arg-type]

    def cycle(self, seconds: float = 0.5) -> list[dict[str, Any]]:
        """One cycle of the daemon; the rows of `scores`."""
        self.now += seconds
        self.recall.poll(threading.Lock())
        return [dict(output.columns) for output in scores_of(self.scorer.step(self.now))]

    def read(self, job: dict[str, Any], *tables: str) -> None:
        for table in tables or job:
            self.scorer.observe(table, job[table], self.now)


def test_jobs_that_begin_together_need_four_queries_and_those_of_the_same_work_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, decoded, real = Log(), list[str](), Pace.from_row
    simulation = Simulation()
    written = history(simulation, 2)
    for number in range(2000):
        log.put(written, f"lab/app{number}@2x1")

    def from_row(row: Mapping[str, Any]) -> Pace:
        decoded.append(row["workload"])
        return real(row)

    monkeypatch.setattr(Pace, "from_row", from_row)
    daemon = Daemon(log)
    daemon.cycle()
    assert log.queries == 0
    job = simulation.job()
    for number in range(1000):
        daemon.read({"jobs": job["jobs"] | {"job": [f"lab/{number}"], "workload": [f"lab/app{number}@2x1"]}})
    for _ in range(3):
        daemon.cycle()
    assert (log.queries, log.sent) == (4, 1000 * sum(len(written[table]["workload"]) for table in log.rows))
    assert not decoded, "until there are intervals to judge"
    daemon.read({"blocks": job["blocks"] | {"job": ["lab/7"] * simulation.intervals}})
    daemon.read({"runs": job["runs"] | {"job": ["lab/7"]}})
    (final,) = daemon.cycle()
    assert (final["basis"], decoded) == ("history", ["lab/app7@2x1"])
    daemon.read({"jobs": job["jobs"] | {"job": ["lab/again"], "workload": ["lab/app7@2x1"]}})
    daemon.cycle()
    daemon.cycle()
    assert log.queries == 4


def test_a_job_waits_for_what_was_learned_and_then_is_judged_by_it() -> None:
    log, simulation = Log(), Simulation()
    log.put(history(simulation), simulation.workload)
    daemon = Daemon(log)
    job = simulation.job(slow_from=0, factor=1.5)
    daemon.read(job)
    assert not scores_of(daemon.scorer.step(daemon.now))
    assert not daemon.scorer.idle
    (final,) = daemon.cycle()
    assert (final["state"], final["basis"]) == ("slow", "history")
    assert daemon.scorer.idle


def test_a_job_that_has_waited_too_long_is_judged_by_itself_and_anew_once_it_is_known() -> None:
    log, simulation = Log(), Simulation()
    log.put(history(simulation), simulation.workload)
    daemon, job = Daemon(log), simulation.job(slow_from=0, factor=1.5)
    log.is_away = True
    daemon.read(job, "jobs")
    daemon.read({"blocks": part(job["blocks"], 0, 4000)})
    assert not daemon.cycle()
    assert not daemon.cycle(WAIT_SECONDS)
    assert {row["basis"] for row in daemon.cycle(1.0)} <= {"own"}
    assert daemon.scorer.jobs[job["jobs"]["job"][0]].has_no_pace
    asked = log.queries
    daemon.cycle(0.1)
    assert log.queries == asked, "it is not asked again at once"
    log.is_away = False
    (slow,) = daemon.cycle(RETRY_SECONDS)
    assert (slow["state"], slow["basis"], slow["final"]) == ("slow", "history", 0)


def test_of_two_rows_the_later_one_counts_whichever_comes_first() -> None:
    log, simulation = Log(), Simulation()
    written, workload = history(simulation), simulation.workload
    older = log.put(written, workload)
    newer = log.put({"paces": {**written["paces"], "runs": [7]}}, workload)
    daemon = Daemon(log)
    references = daemon.scorer._references
    daemon.scorer.observe("paces", newer["paces"], NOW)
    assert not references._learned, "no job has this workload"
    daemon.read(simulation.job(), "jobs")
    for _ in range(2):
        daemon.cycle()
    daemon.scorer.observe("paces", older["paces"], NOW)
    pace = references.pace(workload)
    assert pace is not None
    assert pace.runs == 7
    (last,) = log.put({"paces": {**written["paces"], "runs": [8]}}, workload).values()
    daemon.scorer.observe("paces", last, NOW)
    pace = references.pace(workload)
    assert pace is not None
    assert pace.runs == 8
