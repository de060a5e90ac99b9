"""Cold start by scaling: a size never seen is judged by what the application took at others, and says so."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from barograph_alerts.detection.alarm import ALPHA
from barograph_alerts.detection.evidence import Evidence
from barograph_alerts.detection.runtime_prior import RuntimePrior, RuntimeTest
from barograph_alerts.job.progress import Problem, ProgressHistory
from barograph_alerts.processor import Scorer
from barograph_collector.daemon.runner import Output
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.library import PredictorLibrary
from barograph_modeler.learning.learner import Learner
from barograph_modeler.processor import ModelerProcessor
from helpers.executor import Inline
from helpers.features import inline_features
from helpers.jobs import Simulation, scores_of, verdict
from helpers.scaling import Campaign
from helpers.trials import judge, prepared

NOW = 1e9
SECONDS = 20.0
"""What a job of `Simulation` takes."""


def expect_runtime(
    scorer: Scorer, job: dict, factor: float = 1.0, runs: int = 12, scales: int = 3, method: str = "scaling"
) -> None:
    limits = {"lower_seconds": 0.9, "expected_seconds": 1.0, "upper_seconds": 1.15}
    columns = {name: [factor * SECONDS * value] for name, value in limits.items()}
    rests_on = {"runs": [runs], "scales": [scales], "method": [method]}
    scorer.observe("predictions", {**columns, **rests_on, "job": job["jobs"]["job"]}, 0.0)


@pytest.mark.parametrize("factor", [0.2, 0.7, 3.0])
def test_where_there_is_a_history_a_forecast_neither_accuses_nor_excuses(factor):
    for slow, state in ((1.0, "healthy"), (2.0, "slow")):
        simulation = Simulation()
        scorer, job = prepared(simulation), simulation.job(slow_from=0, factor=slow)
        expect_runtime(scorer, job, factor=factor)
        assert judge(scorer, job)[-1]["state"] == state


def other_scales(scorer: Scorer, intervals: dict[int, int]) -> None:
    """Runs of the same problem elsewhere, which are over."""
    for ranks, count in intervals.items():
        run = Simulation(f"lab/app@{ranks}x1", ranks=ranks, intervals=20).job()
        name = [f"lab/{100 + ranks}.0.0"]
        scorer.observe("jobs", {**run["jobs"], "job": name}, 0.0)
        scorer.observe("runs", {**run["runs"], "job": name, "intervals": [count]}, 0.0)
    scorer.step(0.0)


@given(st.floats(0.2, 5), st.floats(1.01, 10))
def test_the_upper_limit_is_exceeded_by_a_healthy_run_in_a_fortieth_and_wider_ones_follow_student(expected, ratio):
    prior = RuntimePrior(expected / ratio, expected, expected * ratio, 5, 2)
    assert prior.p_value(expected) == pytest.approx(0.5)
    assert prior.p_value(expected * ratio) == pytest.approx(0.025)
    wider = student.ppf(0.995, 4) / student.ppf(0.975, 4)
    assert prior.p_value(expected * ratio**wider) == pytest.approx(0.005)


def test_the_test_alarms_exactly_where_p_falls_below_the_risk_and_never_below_the_margin():
    test = RuntimeTest(RuntimePrior(90.0, 100.0, 110.0, 5, 2), risk=0.005, margin=0.075)
    limit = 100 * 1.1 ** (student.ppf(0.995, 4) / student.ppf(0.975, 4))
    test.update(limit * 0.999)
    assert test.score < 1
    test.update(limit * 1.001)
    assert test.score > 1
    narrow = RuntimeTest(RuntimePrior(99.9, 100.0, 100.1, 5, 2), risk=0.005, margin=0.075)
    narrow.update(107.0)
    assert narrow.score == 1
    narrow.update(108.0)
    assert narrow.score > 1


def test_a_size_never_seen_that_takes_far_longer_than_predicted_alarms_while_it_runs_and_says_by_what():
    simulation = Simulation()
    job, scorer = simulation.job(slow_from=0, factor=2.0), Scorer()
    expect_runtime(scorer, job)
    scores = judge(scorer, job)
    started = job["jobs"]["started_at"][0]
    [first, *_] = [score for score in scores if score["state"] == "slow"]
    # All that was known: so much has passed. 1.66 times the distance of the upper limit is 1.26 times the median.
    assert first["alarmed_at"] - started == pytest.approx(1.26 * SECONDS, abs=2)
    final = scores[-1]
    assert (final["state"], final["basis"], final["onset_at"]) == ("slow", "scaling", started)
    assert final["slowdown"] == pytest.approx(2.0, rel=0.03)
    assert "x what was predicted (score " in final["sentence"]
    assert re.search(r"; takes 2[56]\.\d\d s, 20\.00 s predicted", first["sentence"])
    assert "; ran 40." in final["sentence"]
    assert " s, 20.00 s predicted by scaling from 12 runs at 3 scales (95 %: 18.00 to 23.00 s)" in final["sentence"]
    evidence = json.loads(final["evidence"])
    assert (evidence["foretold"], evidence["runs"], evidence["scales"]) == (20.0, 12, 3)


def test_what_the_modeler_writes_is_what_a_size_never_seen_is_judged_by():
    forecaster, campaign = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0)), Campaign()
    modeler = ModelerProcessor(Learner(), forecaster, inline_features())

    def said_of(*pieces: tuple[str, dict]) -> list[Output]:
        for table, columns in pieces:
            modeler.observe(table, columns, NOW)
        return modeler.step(NOW) + modeler.step(NOW)

    for ranks in (1, 2, 4, 8, 16):
        said_of(*(run := campaign.run(ranks)).items(), ("scores", verdict(run, 0.0)))
    finals = []
    for factor in (1.0, 3.0):
        job, scorer = campaign.run(12, factor=factor), Scorer()
        [prediction] = [one for one in said_of(("jobs", job["jobs"])) if one.table == "predictions"]
        scorer.observe("jobs", {**job["jobs"], "log_offset": [1], "user": ["u"], "host": ["n1"]}, NOW)
        scorer.observe("predictions", {name: [value] for name, value in prediction.columns.items()}, NOW)
        scorer.observe("runs", {**job["runs"], "intervals": [0], "imported": [0]}, NOW)
        finals += [dict(output.columns) for output in scores_of(scorer.step(NOW))]
    assert [(final["state"], final["basis"]) for final in finals] == [("healthy", "scaling"), ("slow", "scaling")]
    assert all(" s predicted by scaling from 5 runs at 5 scales (95 %: " in final["sentence"] for final in finals)


def test_what_is_predicted_from_the_run_itself_does_not_judge_it():
    simulation = Simulation(intervals=2000)  # 5 s
    job, scorer = simulation.job(), Scorer()
    expect_runtime(scorer, job, factor=0.05, method="features")
    assert "predicted" not in judge(scorer, job)[-1]["sentence"]


def test_where_runs_at_other_scales_agree_on_how_much_there_is_to_do_it_alarms_half_way():
    simulation = Simulation()
    job, scorer = simulation.job(slow_from=0, factor=2.0), Scorer()
    other_scales(scorer, {4: 8000, 8: 8000})
    expect_runtime(scorer, job)
    [first, *_] = [score for score in judge(scorer, job) if score["state"] == "slow"]
    assert first["alarmed_at"] - job["jobs"]["started_at"][0] == pytest.approx(SECONDS, abs=2)


def test_a_size_never_seen_that_takes_as_long_as_predicted_is_healthy_also_when_it_is_too_short_for_windows():
    simulation = Simulation(intervals=2000)  # 5 s
    job, scorer = simulation.job(), Scorer()
    expect_runtime(scorer, job, factor=0.25)
    final = judge(scorer, job)[-1]
    assert (final["state"], final["basis"]) == ("healthy", "scaling")
    assert final["score"] < 1
    assert final["sentence"].startswith("healthy: 1.00x what was predicted (score ")
    assert final["slowdown"] == pytest.approx(1.0, rel=0.03)
    long = Simulation().job()
    scorer = Scorer()
    expect_runtime(scorer, long)
    final = judge(scorer, long)[-1]
    assert (final["state"], final["basis"]) == ("healthy", "own")
    assert "; 20.00 s predicted by scaling from 12 runs at 3 scales" in final["sentence"]


def test_a_projection_that_comes_back_ends_the_alarm():
    evidence = Evidence(None, ALPHA)
    evidence.expect_runtime(RuntimePrior(90.0, 100.0, 110.0, 5, 2))
    for at, seconds in ((60, 200.0), (70, 150.0), (80, 100.0)):
        evidence.set_runtime(seconds, 0.0, float(at))
    [alarm] = evidence.alarms
    assert (alarm.detected_at, alarm.ended_at, alarm.basis) == (60, 80, "scaling")
    assert evidence.score < 1


def test_a_job_that_was_found_to_have_become_slower_is_not_called_late_once_more():
    simulation = Simulation()
    job, scorer = simulation.job(slow_from=6400, factor=5.0), Scorer()
    expect_runtime(scorer, job, factor=1.2)
    final = judge(scorer, job)[-1]
    assert (final["state"], final["basis"]) == ("slow", "own")
    assert scorer.ended[final["job"]][0].monitor.evidence.runtime_test.score > 1
    assert "its own first windows since" in final["sentence"]


def test_how_much_there_is_to_do_is_known_from_two_scales_that_agree():
    problem = Problem("lab", "app", "{}")

    def known(*runs: tuple[int, int, int]) -> int:
        extents = ProgressHistory()
        for number, (ranks, status, intervals) in enumerate(runs):
            simulation = Simulation(ranks=ranks, intervals=2)
            job = dataclasses.replace(simulation, intervals=2).job(status=status)
            name = [f"lab/{number}.0.0"]
            extents.read_jobs({**job["jobs"], "job": name})
            extents.end(name[0], status, intervals)
        return extents.sync_points(problem)

    assert known((2, 0, 1000)) == 0
    assert known((2, 0, 1000), (2, 0, 1000)) == 0
    assert known((2, 0, 1000), (4, 0, 1010)) == 1010
    assert known((2, 0, 1000), (4, 0, 2000)) == 0
    assert known((2, 0, 1000), (4, 1, 10), (8, 0, 1000)) == 1000
