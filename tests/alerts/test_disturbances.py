"""One disturbance is one alarm: rows, scores and words of a job that is disturbed, recovers, and is disturbed again."""

from __future__ import annotations

import math

import numpy as np
import pytest

from barograph_alerts.attribution.cause import Cause
from barograph_alerts.detection.alarm import Alarm
from barograph_alerts.detection.evidence import NODES, WORKERS, Evidence
from barograph_alerts.detection.runtime_prior import RuntimeHistory
from barograph_alerts.job.rows import BASES
from barograph_alerts.job.verdict import sentence
from barograph_alerts.processor import Scorer
from barograph_modeler.pace.pace import Pace
from barograph_modeler.pace.windows import Window
from helpers.jobs import scores_of

BEGAN_AT = 1_700_000_000.0
PACE = Pace(8, 240, 1.0, 0.0, {1: 0.01}, np.linspace(-0.03, 0.03, 240))


class Run:
    """A run before the scorer: intervals of 10 ms, and silences as a sidecar reports them."""

    def __init__(self) -> None:
        self.now, self.index, self.scorer = BEGAN_AT, 0, Scorer()
        self.rows: list[dict] = []
        self.scorer.observe("jobs", {
            "log_offset": [1], "job": ["lab/1.0.0"], "workload": ["lab/app@2x1"], "app": ["app"], "user": ["u"],
            "nodes": [1], "started_at": [self.now], "cluster": ["lab"], "params": ["{}"], "ranks": [2],
            "host": ["n1"]}, self.now)  # fmt: skip

    def step(self, at: float) -> None:
        self.rows += [dict(one.columns) for one in scores_of(self.scorer.step(at))]

    def work(self, seconds: float, interval: float = 0.01, count: int = 100) -> None:
        rng = np.random.default_rng(self.index)
        for _ in range(max(1, int(seconds / (count * interval)))):
            mean = interval * float(rng.lognormal(0, 0.01))
            self.now += count * mean
            self.scorer.observe("blocks", {
                "job": ["lab/1.0.0"], "world": [0], "class_id": np.array([7], np.uint64), "first_index": [self.index],
                "count": [count], "sum_seconds": [count * mean], "max_seconds": [mean],
                "ended_at": [self.now]}, self.now)  # fmt: skip
            self.index += count
            self.step(self.now)

    def hang(self, seconds: float) -> float:
        """Seconds until it is found stalled, NaN if it is not. The interval ends after all."""
        since, before = self.now, len(self.rows)
        for at in np.arange(since + 10, since + seconds, 10.0).tolist():
            self.scorer.observe("silences", {"job": ["lab/1.0.0"], "since": [since], "time": [at]}, at)
            self.step(at)
        found = [row["alarmed_at"] - since for row in self.rows[before:] if row["state"] == "stalled"]
        self.work(0.0, seconds, count=1)
        return found[0] if found else math.nan

    def end(self) -> dict:
        ended = {"runtime_seconds": [self.now - BEGAN_AT], "exit_status": [0], "intervals": [self.index]}
        self.scorer.observe("runs", {"job": ["lab/1.0.0"], **ended}, self.now)
        self.step(self.now)
        return self.rows[-1]


def test_a_job_that_stays_slow_writes_few_rows():
    run = Run()
    run.work(120)
    run.work(1200, interval=0.02)
    assert run.rows[-1]["state"] == "slow"
    assert len(run.rows) < 20


def test_a_job_that_has_hung_is_found_when_it_hangs_again():
    run = Run()
    run.work(60)
    assert run.hang(600) < 400
    run.work(60)
    assert run.hang(3600) < 400


@pytest.mark.parametrize("factors", [(3.0, 1.3), (1.3, 3.0)])
def test_the_final_verdict_is_about_the_disturbance_that_cost_most(factors):
    run = Run()
    for factor in (1.0, factors[0], 1.0, factors[1], 1.0):
        run.work(120, 0.01 * factor, count=50)
    last, begin = run.end(), 120.0 if factors[0] == 3.0 else 360.0
    assert (last["state"], last["onset_at"] - BEGAN_AT) == ("slow", pytest.approx(begin, abs=5))
    assert last["slowdown"] == pytest.approx(3.0, rel=0.1)
    assert ", of 2 disturbances of this job)" in last["sentence"]


def test_an_alarm_scores_above_1_until_it_ends():
    evidence = Evidence(PACE)
    for i, seconds in enumerate([1.0] * 30 + [1.34] * 20 + [1.0] * 3 + [1.34] + [1.0] * 10):
        evidence.add(Window({1: 100}, {1: seconds}, BEGAN_AT + i, BEGAN_AT + i + 1))
        assert (evidence.open is not None) == (evidence.score > 1)
    assert [alarm.ended_at is not None for alarm in evidence.alarms] == [True]


def test_a_sentence_has_one_reference_and_the_day():
    evidence = Evidence(PACE)
    for i in range(30):
        evidence.add(Window({1: 100}, {1: 1.0}, BEGAN_AT + i, BEGAN_AT + i + 1))
    for basis, column in ((NODES, "own"), (WORKERS, "workers"), ("its history", "history")):
        texts = []
        for days in (0, 1):
            evidence.alarms = [Alarm("slow", basis, BEGAN_AT + 86400 * days, BEGAN_AT + 9, 1.16, 1.4)]
            texts.append(sentence(evidence, "lab/app@2x1", Cause(), runs=3, how="same"))
        assert texts[0] != texts[1]
        assert ("; compared with 8 runs of the same input" in texts[0]) == (basis == "its history")
        assert BASES[evidence.basis] == column


def test_one_hang_of_a_run_beyond_its_limits_is_one_alarm():
    run = Run()
    run.scorer.observe("bands", {
        "workload": ["lab/app@2x1"], "class_id": [0], "kind": ["runtime"], "method": ["log-t"], "samples": [3],
        "lower_seconds": [380.0], "expected_seconds": [400.0], "upper_seconds": [420.0]}, BEGAN_AT)  # fmt: skip
    run.scorer.observe("silences", {"job": ["lab/1.0.0"], "since": [BEGAN_AT], "time": [BEGAN_AT + 100]}, BEGAN_AT)
    run.now += 130
    run.work(1)
    run.hang(345)
    [alarm] = run.scorer.jobs["lab/1.0.0"].monitor.evidence.alarms
    assert alarm.kind == "stalled"


def test_of_a_job_without_its_row_little_is_held():
    scorer, count = Scorer(), 200
    for at in range(100):
        scorer.observe("blocks", {
            "job": ["lab/1.0.0"] * count, "world": np.zeros(count, np.int64), "first_index": np.arange(count),
            "class_id": np.full(count, 7, np.uint64), "count": np.ones(count, np.int64), "ended_at": np.full(count, at),
            "sum_seconds": np.full(count, 0.1), "max_seconds": np.full(count, 0.1)}, at)  # fmt: skip
    assert sum(len(blocks.class_ids) for blocks, _ in scorer.jobs["lab/1.0.0"].waiting) < 6_000


@pytest.mark.parametrize(("others", "is_significant"), [(0, True), (400, False)])
def test_a_job_is_as_significant_when_it_has_ended_as_before(others, is_significant):
    run, other = Run(), Run()
    run.work(60)
    other.work(60)
    for number in range(others):
        run.scorer.jobs.use(f"lab/{number + 2}.0.0", lambda: other.scorer.jobs["lab/1.0.0"], "u")
    while run.scorer.jobs["lab/1.0.0"].score <= 1:
        run.work(1, interval=0.012)
    assert ("lab/1.0.0" in run.scorer.discovered) == is_significant
    run.end()
    run.step(run.now + 1)
    assert ("lab/1.0.0" in run.scorer.discovered) == is_significant


@pytest.mark.parametrize(("factor", "state"), [(1.2, "slow"), (3.0, "inconclusive")])
def test_no_run_within_its_limits_is_slow_unless_what_it_lost_was_there_to_lose(factor, state):
    evidence = Evidence(PACE)
    evidence.expect_runtime(RuntimeHistory(90.0, 100.0, 111.0, 8))
    seconds = [1.0] * 60 + [factor] * (60 if factor == 1.2 else 20)
    for one, end in zip(seconds, np.cumsum(seconds), strict=True):
        evidence.add(Window({1: 100}, {1: one}, BEGAN_AT + end - one, BEGAN_AT + end))
    evidence.set_runtime(105.0, BEGAN_AT, BEGAN_AT + end, over=True)
    assert evidence.state == state
    assert (" until " in sentence(evidence, "lab/app", Cause())) == (state == "slow")
