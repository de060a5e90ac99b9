"""Jobs are judged by runs of like work only, as the modeler assigns them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from barograph_alerts.processor import MOVE_SECONDS, WAIT_SECONDS, Scorer
from helpers import pressures
from helpers.jobs import Simulation, part
from helpers.trials import history, judge, prepared

OTHER = "lab/app@2x1+0a1b2c"
AFTER = 1 << 40
"""An offset after that of the row of `runs` of a job."""


def assigned(job: dict, workload: str, how: str, offset: int = 0) -> dict[str, Any]:
    """A row of `assignments`, before that of `runs` unless it has an offset."""
    return {
        "job": job["jobs"]["job"], "workload": [workload], "family": job["jobs"]["workload"], "how": [how],
        "reason": [""], "time": [0.0], "log_offset": [offset],
    }  # fmt: skip


def grouped(simulation: Simulation, runs: int = 3) -> Scorer:
    """A scorer that has seen a job being assigned."""
    scorer = prepared(simulation, runs)
    job = simulation.job()
    scorer.observe("assignments", assigned(job, simulation.workload, "same"), 0.0)
    judge(scorer, job)
    return scorer


def judge_assigned(scorer: Scorer, job: dict, workload: str, how: str) -> list[dict]:
    scorer.observe("assignments", assigned(job, workload, how), 0.0)
    return judge(scorer, job)


def test_the_verdict_says_what_the_run_was_compared_with():
    simulation = Simulation()
    scorer = grouped(simulation)
    same = judge_assigned(scorer, simulation.job(), simulation.workload, "same")[-1]
    assert "slow above 1); compared with 3 runs of the same input; ran 20." in same["sentence"]
    like = judge_assigned(scorer, simulation.job(slow_from=4000, factor=2.0), simulation.workload, "like")[-1]
    assert like["state"] == "slow"
    assert "; compared with 3 runs of like work; ran 30." in like["sentence"]


def test_a_verdict_about_the_runtime_names_the_runs_that_its_limits_are_of():
    simulation = Simulation()
    scorer = prepared(simulation, 3, margin=0.3)
    bands = history(simulation, 3)["bands"]
    scorer.observe("bands", bands | {"samples": [4] * len(bands["samples"])}, 0.0)
    long = judge_assigned(scorer, simulation.job(slow_from=0, factor=1.25), simulation.workload, "same")[-1]
    assert "longer than the limits of 4 runs" in long["sentence"]
    assert "; compared with 4 runs of the same input" in long["sentence"]


class Adaptive(Simulation):
    """A program whose iterations take twice as long from its middle on."""

    def job(self, *, slow_from: int | None = None, factor: float = 2.0, status: int = 0) -> dict[str, Any]:
        return super().job(slow_from=self.intervals // 2, factor=2.0, status=status)


def test_the_verdict_says_that_a_history_is_a_mixture():
    simulation = Adaptive()
    mixed = judge_assigned(grouped(simulation), simulation.job(), simulation.workload, "same")[-1]
    assert mixed["state"] == "healthy"
    assert (
        "; compared with 3 runs of the same input; a mixture: in 66% of its history the same intervals took 2x as long;"
        " ran 30." in mixed["sentence"]
    )
    simulation = Simulation()
    steady = judge_assigned(grouped(simulation), simulation.job(), simulation.workload, "same")[-1]
    assert "mixture" not in steady["sentence"]


def test_a_run_of_other_work_is_judged_by_itself_and_not_by_the_history_of_its_name():
    simulation = Simulation()
    scorer = grouped(simulation)
    final = judge_assigned(scorer, simulation.job(slow_from=0, factor=3.0), OTHER, "first")[-1]
    assert (final["state"], final["basis"], final["workload"]) == ("healthy", "own", OTHER)
    assert f"for this is the first run of this work, {OTHER}; ran" in final["sentence"]
    assert "compared" not in final["sentence"]


def test_a_run_whose_command_could_not_be_read_is_compared_with_its_own_begin_alone():
    simulation = Simulation(intervals=24_000)
    scorer, group = grouped(simulation), f"{simulation.workload}+unknown"
    steady = judge_assigned(scorer, simulation.job(), group, "none")[-1]
    assert (steady["state"], steady["sentence"].split(",")[0]) == ("unknown", "unknown: its command could not be read")
    assert judge_assigned(scorer, simulation.job(slow_from=12_000, factor=2.0), group, "none")[-1]["state"] == "slow"
    for runs, factor in ((1, 1.3), (1, 3.0), (3, 1.3), (8, 0.5), (8, 1.1), (8, 3.0)):
        for table, columns in history(Simulation(group, seed=3), runs).items():
            scorer.observe(table, columns, 0.0)
        limits = {"lower_seconds": [18.0], "expected_seconds": [20.0], "upper_seconds": [23.0], "method": ["scaling"]}
        job = simulation.job(slow_from=0, factor=factor)
        scorer.observe("predictions", {**limits, "runs": [12], "scales": [3], "job": job["jobs"]["job"]}, 0.0)
        rows = judge_assigned(scorer, job, group, "none")
        assert {row["state"] for row in rows} == {"unknown"}
        assert rows[-1]["sentence"].endswith(" s, of unknown work")
    # Where nobody's command is read, all runs of the name are compared.
    assert judge_assigned(scorer, simulation.job(), simulation.workload, "none")[-1]["state"] == "healthy"


def test_a_run_of_other_work_is_not_judged_by_what_is_predicted_for_its_name():
    simulation = Simulation()
    scorer = grouped(simulation)
    for workload, how, state in ((OTHER, "first", "healthy"), ("lab/new@2x1", "first", "slow")):
        job = simulation.job(slow_from=0, factor=3.0)
        job["jobs"]["workload"] = [workload.partition("+")[0]]
        limits = {"lower_seconds": [18.0], "expected_seconds": [20.0], "upper_seconds": [23.0]}
        rests_on = {"runs": [12], "scales": [3], "method": ["scaling"], "job": job["jobs"]["job"]}
        scorer.observe("predictions", {**limits, **rests_on}, 0.0)
        assert judge_assigned(scorer, job, workload, how)[-1]["state"] == state


def test_each_group_has_a_history_of_its_own():
    simulation = Simulation()
    scorer = grouped(simulation)
    for table, columns in history(Simulation(OTHER, seed=3), 3, factor=3.0).items():
        scorer.observe(table, columns, 0.0)
    final = judge_assigned(scorer, simulation.job(slow_from=0, factor=3.0), OTHER, "same")[-1]
    assert (final["state"], final["basis"]) == ("healthy", "history")
    assert judge_assigned(scorer, simulation.job(), OTHER, "same")[-1]["state"] == "inconclusive"


def test_a_job_waits_until_it_is_assigned_and_is_then_judged_from_its_begin():
    simulation = Simulation()
    scorer = grouped(simulation)
    job = simulation.job(slow_from=0, factor=2.0)
    for table in ("jobs", "blocks", "runs"):
        scorer.observe(table, job[table], 1000.0)
    assert scorer.step(1000.0) == []
    assert not scorer.idle
    scorer.observe("assignments", assigned(job, simulation.workload, "same"), 1001.0)
    (final,) = scorer.step(1001.0)
    assert (final.columns["state"], final.columns["final"]) == ("slow", 1)
    assert scorer.idle


def test_a_job_that_nobody_assigns_is_judged_by_itself():
    simulation = Simulation()
    scorer = grouped(simulation)
    job = simulation.job(slow_from=0, factor=2.0)
    for table in ("jobs", "blocks", "runs"):
        scorer.observe(table, job[table], 1000.0)
    scorer.step(1000.0)
    (final,) = scorer.step(1001.0 + WAIT_SECONDS)
    assert (final.columns["state"], final.columns["basis"]) == ("healthy", "own")
    assert final.columns["workload"] == "lab/app@2x1+unassigned"


def test_a_running_job_that_was_judged_by_itself_is_judged_by_its_group_once_that_is_known():
    simulation = Simulation()
    scorer = grouped(simulation)
    job = simulation.job(slow_from=0, factor=2.0)
    scorer.observe("assignments", assigned(job, OTHER, "first"), 0.0)
    judge(scorer, job, until=3000)
    name = job["jobs"]["job"][0]
    assert scorer.jobs[name].state in ("unknown", "healthy")
    scorer.observe("assignments", assigned(job, simulation.workload, "merged"), 0.0)
    for start in range(3000, 8000, 200):
        page = {key: values[start : start + 200] for key, values in job["blocks"].items()}
        scorer.observe("blocks", page, 0.0)
        scorer.step(0.0)
    assert scorer.jobs[name].state == "slow"


def alarmed(scorer: Scorer, simulation: Simulation, until: int) -> tuple[dict, str]:
    """A running job that is three times as slow as its group, after so many intervals."""
    job = simulation.job(slow_from=0, factor=3.0)
    scorer.observe("assignments", assigned(job, simulation.workload, "same"), 0.0)
    judge(scorer, job, until=until)
    name = job["jobs"]["job"][0]
    assert scorer.jobs[name].state == "slow"
    return job, name


def test_an_alarm_for_the_wrong_group_is_taken_back():
    simulation = Simulation()
    scorer = grouped(simulation)
    job, name = alarmed(scorer, simulation, until=2000)
    scorer.observe("assignments", assigned(job, OTHER, "first"), 0.0)
    (row,) = scorer.step(0.0)
    assert (row.columns["state"], row.columns["workload"], row.columns["final"]) == ("unknown", OTHER, 0)
    assert scorer.step(0.0) == []
    final = judge(scorer, job)[-1]
    # A disturbance may be why the messages are others: longer than those it is not known to be healthy.
    assert scorer.ended[name][0].state == "inconclusive"
    longer = "inconclusive: longer than 3 runs of the same command (20.01 s, 95 %: "
    assert final["sentence"].startswith(longer)
    assert ", but it communicated otherwise; ran " in final["sentence"]


def taken_core(job: dict) -> dict[str, Any]:
    """What the kernel counts while another process has the core of rank 0 for two thirds of the time."""
    begun, over = job["jobs"]["started_at"][0], job["blocks"]["ended_at"][-1]
    name = {"job": job["jobs"]["job"][0], "host": job["jobs"]["host"][0]}
    hog = {"process": "stress", "process_of": "other", "process_core": 1, "process_seconds": 2.7}
    spans = np.arange(begun, over, 4.0).tolist()
    of_rank = [pressures.row(at, 0, run_seconds=0.33, delay_seconds=0.67, **name, **hog) for at in spans]
    return pressures.columns(of_rank + [pressures.row(at, **name) for at in spans])


@pytest.mark.parametrize(("core", "state"), [("taken", "slow"), ("free", "inconclusive")])
def test_where_a_kernel_shows_who_took_the_time_the_runtime_decides_whatever_the_messages(core, state):
    simulation = Simulation()
    scorer = grouped(simulation)
    job, name = alarmed(scorer, simulation, until=2000)
    scorer.observe("assignments", assigned(job, OTHER, "first"), 0.0)
    if core == "taken":
        scorer.observe("pressures", taken_core(job), 0.0)
    final = judge(scorer, job)[-1]
    assert scorer.ended[name][0].state == state
    assert ("waited" in final["sentence"]) == (core == "taken")
    assert "3 runs" in final["sentence"]


def test_a_job_that_took_longer_than_its_former_group_is_healthy_where_its_new_one_has_a_history_by_then():
    simulation = Simulation()
    scorer = grouped(simulation)
    job, _ = alarmed(scorer, simulation, until=2000)
    scorer.observe("assignments", assigned(job, OTHER, "first"), 0.0)
    for elapsed in (3.1, 3.2):
        scorer.observe("signatures", signature(job, elapsed, intervals=500), 0.0)
    scorer.observe("blocks", part(job["blocks"], 2000, 8000), 0.0)
    scorer.observe("runs", job["runs"], 0.0)
    assert scorer.step(0.0) == []
    for table, columns in history(Simulation(OTHER, seed=3), 3, factor=3.0).items():
        scorer.observe(table, columns, 0.0)
    (final,) = scorer.step(MOVE_SECONDS + 0.1)
    assert (final.columns["workload"], final.columns["state"], final.columns["final"]) == (OTHER, "healthy", 1)


def test_a_job_that_moves_to_a_group_with_a_history_is_judged_by_it_from_its_begin():
    simulation = Simulation()
    scorer = grouped(simulation)
    for table, columns in history(Simulation(OTHER, seed=3), 3, factor=3.0).items():
        scorer.observe(table, columns, 0.0)
    job, name = alarmed(scorer, simulation, until=2000)
    scorer.observe("assignments", assigned(job, OTHER, "same"), 0.0)
    scorer.step(0.0)
    evidence = scorer.jobs[name].monitor.evidence
    assert (evidence.state, evidence.basis) == ("healthy", "its history")
    assert evidence.windows == pytest.approx(15, rel=0.2)  # 2000 intervals of 7.5 ms, in windows of a second


def test_a_job_of_a_higher_age_stays_with_the_history_that_it_was_compared_with():
    simulation = Simulation()
    scorer = grouped(simulation)
    job, name = alarmed(scorer, simulation, until=8000)
    scorer.observe("assignments", assigned(job, OTHER, "first"), 0.0)
    scorer.step(0.0)
    assert scorer.jobs[name].state == "slow"


def signature(job, elapsed, intervals):
    """Rows of `signatures`."""
    totals = {name: [0, 0] for name in ("bytes", "messages", "message_bytes")}
    return {
        "job": job["jobs"]["job"] * 2, "elapsed_seconds": [elapsed] * 2, "class_id": [11, 12],
        "intervals": [intervals // 2] * 2, **totals,
    }  # fmt: skip


def test_a_verdict_waits_where_the_modeler_may_move_a_job_of_few_long_intervals():
    simulation = Simulation()
    scorer = grouped(simulation)
    job = simulation.job()
    scorer.observe("assignments", assigned(job, simulation.workload, "same"), 0.0)
    scorer.observe("signatures", signature(job, 900.0, intervals=24), 0.0)
    for table in ("jobs", "blocks", "runs"):
        scorer.observe(table, job[table], 0.0)
    assert scorer.step(0.0) == []


def test_an_alarm_of_a_job_with_another_number_of_intervals_is_taken_back_if_it_did_other_work():
    simulation = Simulation()
    scorer = grouped(simulation)
    simulation.intervals = 20000
    job = simulation.job(slow_from=0, factor=1.4)
    scorer.observe("assignments", assigned(job, simulation.workload, "same"), 0.0)
    for table in ("jobs", "blocks"):
        scorer.observe(table, job[table], 0.0)
    scorer.step(0.0)
    (running,) = scorer.jobs.values()
    assert running.state == "slow"
    scorer.observe("runs", job["runs"], 0.0)
    assert scorer.step(0.0) == []
    scorer.observe("assignments", assigned(job, OTHER, "first", AFTER), 0.0)
    (final,) = scorer.step(0.0)
    assert (final.columns["workload"], final.columns["state"]) == (OTHER, "inconclusive")


@pytest.mark.parametrize(
    ("word", "seconds", "expected"),
    [((OTHER, "first"), 1.0, OTHER), (("lab/app@2x1", "same"), 1.0, "lab/app@2x1"),
     (None, MOVE_SECONDS + 0.1, "lab/app@2x1")],
    ids=["moved", "remains", "no word"],
)  # fmt: skip
def test_the_verdict_of_a_short_job_waits_until_it_is_known_whether_it_belongs_to_its_group(word, seconds, expected):
    simulation = Simulation()
    scorer = grouped(simulation)
    job = simulation.job(slow_from=0, factor=1.4)
    ended_at = float(job["blocks"]["ended_at"][-1])
    scorer.observe("assignments", assigned(job, simulation.workload, "same"), 0.0)
    for table in ("jobs", "blocks"):
        scorer.observe(table, job[table], ended_at)
    scorer.observe("signatures", signature(job, 3.1, intervals=500), ended_at)
    scorer.observe("runs", job["runs"], ended_at)
    assert scorer.step(ended_at) == []
    assert not scorer.idle
    scorer.observe("assignments", assigned(job, simulation.workload, "same"), ended_at)
    assert scorer.step(ended_at) == []
    if word is not None:
        scorer.observe("assignments", assigned(job, *word, AFTER), ended_at)
    (final,) = scorer.step(ended_at + seconds)
    state = "inconclusive" if expected == OTHER else "slow"
    assert (final.columns["final"], final.columns["workload"], final.columns["state"]) == (1, expected, state)
    assert scorer.idle


def test_a_verdict_does_not_wait_for_what_the_modeler_takes_no_notice_of():
    simulation = Simulation()
    scorer = grouped(simulation)
    job = simulation.job()
    scorer.observe("assignments", assigned(job, simulation.workload, "same"), 0.0)
    scorer.observe("signatures", signature(job, 50.0, intervals=500), 0.0)
    assert judge(scorer, job)[-1]["final"] == 1


def test_lengths_count_within_the_group():
    simulation = Simulation()
    scorer = grouped(simulation)
    simulation.intervals = 16000
    for _ in range(3):
        final = judge_assigned(scorer, simulation.job(), OTHER, "same")[-1]
        assert "another number of sync points" not in final["sentence"]
    simulation.intervals = 8000
    final = judge_assigned(scorer, simulation.job(), simulation.workload, "same")[-1]
    assert "another number of sync points" not in final["sentence"]
