"""The scorer: which jobs alarm, what is written about them, and what a restart changes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from barograph_alerts.processor import Scorer
from helpers.jobs import Simulation, part, scores_of, verdict
from helpers.trials import history, judge, prepared


def set_runtime(scorer: Scorer, workload: str, lower: float, expected: float, upper: float) -> None:
    """Tell the scorer the runtimes of three runs of a work."""
    values = {"lower_seconds": [lower], "expected_seconds": [expected], "upper_seconds": [upper], "samples": [3]}
    names = {"workload": [workload], "class_id": [0], "kind": ["runtime"], "method": ["log-t"]}
    scorer.observe("bands", names | values, 0.0)


def test_a_healthy_job_ends_healthy_and_says_how_it_compares():
    simulation = Simulation()
    scorer = prepared(simulation)
    final = judge(scorer, simulation.job())[-1]
    assert (final["state"], final["final"]) == ("healthy", 1)
    assert final["score"] < 1
    assert final["slowdown"] == pytest.approx(1.0, abs=0.02)
    assert final["sentence"].startswith("healthy: within the spread of its history (score ")
    assert "; ran 20." in final["sentence"]
    assert scorer.finished["healthy"] == 1


def test_a_job_slowed_from_its_middle_on_alarms_once_with_onset_and_slowdown():
    simulation = Simulation()
    scorer = prepared(simulation)
    job = simulation.job(slow_from=4000, factor=1.5)
    onset = float(job["blocks"]["ended_at"][4000])
    scores = judge(scorer, job)
    slow = [score for score in scores if score["state"] == "slow"]
    assert slow[0]["time"] - onset < 12
    assert slow[0]["score"] > 1
    final = scores[-1]
    assert final["onset_at"] == pytest.approx(onset, abs=1.5)
    assert final["slowdown"] == pytest.approx(1.5, rel=0.03)
    assert "slow: 1.5" in final["sentence"]
    assert [score["final"] for score in scores].count(1) == 1


def test_a_slowdown_below_the_margin_is_no_alarm_and_above_it_is():
    simulation = Simulation()
    scorer = prepared(simulation, margin=0.3)
    small = judge(scorer, simulation.job(slow_from=0, factor=1.2))[-1]
    assert small["state"] == "inconclusive"
    assert small["sentence"].startswith("inconclusive: longer than the limits of 5 runs, by less than the margin")
    assert judge(scorer, simulation.job(slow_from=0, factor=1.6))[-1]["state"] == "slow"


def test_without_a_history_a_job_is_judged_by_itself_and_the_sentence_says_what_is_missing():
    simulation = Simulation()
    healthy = judge(Scorer(), simulation.job())[-1]
    assert (healthy["state"], healthy["basis"], healthy["cause"]) == ("healthy", "own", "none")
    assert healthy["sentence"].startswith("healthy: steady since its first windows (score ")
    assert "for 0 healthy runs of lab/app@2x1 in the history, 1 needed; ran 20." in healthy["sentence"]
    slow = judge(Scorer(), simulation.job(slow_from=6000, factor=5.0))[-1]
    assert (slow["state"], slow["basis"], slow["cause"]) == ("slow", "own", "unknown")
    assert slow["sentence"].startswith("slow: 5.0")
    assert "its own first windows since" in slow["sentence"]


def test_too_little_to_judge_by_is_unknown_and_says_what_is_missing():
    simulation = Simulation(intervals=2000)
    final = judge(Scorer(), simulation.job())[-1]
    assert final["state"] == "unknown"
    assert np.isnan(final["score"])
    expected = (
        "unknown: 0 healthy runs of lab/app@2x1 in the history, 1 needed, and fewer than 15 windows of repeated work "
        "of its own"
    )
    assert final["sentence"].startswith(expected)


@pytest.mark.parametrize(
    ("length", "factor", "state"),
    [(2.0, 1.0, "healthy"), (0.5, 1.0, "healthy"), (0.5, 4.0, "slow"), (0.5, 2.03, "slow")],
)
def test_a_run_with_more_sync_points_is_not_held_against_the_runtimes_of_its_history(length, factor, state):
    simulation = Simulation()
    scorer, expected = Scorer(), history(simulation, 3)
    for past in range(3):
        run = simulation.job()
        name = {"job": [f"lab/past{past}.0.0"]}
        scorer.observe("jobs", {**run["jobs"], **name}, 0.0)
        scorer.observe("runs", {**run["runs"], **name, "imported": [1]}, 0.0)
    for table, columns in expected.items():
        scorer.observe(table, columns, 0.0)
    scorer.step(0.0)
    simulation.intervals = int(length * simulation.intervals)
    final = judge(scorer, simulation.job(slow_from=0, factor=factor))[-1]
    assert final["state"] == state
    said = final["sentence"].endswith(" s, with another number of sync points than its history")
    # With fewer sync points it should not take longer.
    assert (said, "expected" in final["sentence"]) == ((True, False) if state == "healthy" else (False, True))


def test_a_run_that_says_what_its_runtime_depends_on_is_not_held_against_the_runtimes_of_other_runs():
    simulation = Simulation(intervals=2)
    scorer = Scorer()
    set_runtime(scorer, simulation.workload, 0.9, 1.0, 1.1)
    for features, state in ((True, "unknown"), (False, "slow")):
        job = simulation.job()
        scorer.observe("jobs", job["jobs"], 0.0)
        if features:
            scorer.observe("features", {"job": job["jobs"]["job"], "name": ["steps"], "value": [9.0]}, 0.0)
        scorer.observe("runs", {**job["runs"], "runtime_seconds": [9.0], "intervals": [0]}, 0.0)
        final = dict(scores_of(scorer.step(0.0))[-1].columns)
        assert final["state"] == state
        assert final["sentence"].endswith("; ran 9.00 s, which depends on its features") == features


def test_a_program_without_intervals_is_not_said_to_have_no_history():
    simulation = Simulation(intervals=2)
    scorer = Scorer()
    set_runtime(scorer, simulation.workload, 0.1, 1.0, 200.0)
    job = simulation.job()
    scorer.observe("jobs", job["jobs"], 0.0)
    scorer.observe("runs", {**job["runs"], "runtime_seconds": [2.5], "intervals": [0]}, 0.0)
    final = dict(scores_of(scorer.step(0.0))[-1].columns)
    assert final["state"] == "unknown"
    assert final["sentence"].startswith(
        "unknown: no windows of sync points in the history of lab/app@2x1, 3 runs, and fewer than 15 windows of "
        "repeated work of its own"
    )
    assert final["sentence"].endswith("; ran 2.50 s; its history, 3 runs, differs too much to expect anything")


def silence(job: dict, since: float, at: float) -> dict:
    """A row of `silences`."""
    return {"job": job["jobs"]["job"], "host": ["n1"], "since": [since], "time": [at], "ranks": [2]}


def test_a_silence_that_ended_in_the_same_round_is_the_alarm_that_it_was_in_time():
    def alarms(rounds: list[int]) -> list[tuple[object, ...]]:
        simulation = Simulation()
        scorer = prepared(simulation)
        job = simulation.job(slow_from=6000, factor=3.0)
        times = job["blocks"]["ended_at"]
        last = float(times[3999])
        times[4000:] += 50.0
        scorer.observe("jobs", job["jobs"], 0.0)
        for start, stop in pairwise([0, *rounds, 8000]):
            scorer.observe("blocks", part(job["blocks"], start, stop), 0.0)
            if start < 4000 <= stop:
                for seconds in (10, 20, 30, 35, 45):
                    scorer.observe("silences", silence(job, last, last + seconds), 0.0)
            scorer.step(0.0)
        found = scorer.jobs[job["jobs"]["job"][0]].monitor.evidence.alarms
        return [(one.kind, one.onset_at, one.detected_at, one.ended_at) for one in found]

    live, again = alarms([*range(500, 8000, 500)]), alarms([])
    assert live == again
    assert [kind for kind, *_ in live] == ["stalled", "slow"]
    assert live[0][2] - live[0][1] == pytest.approx(10)  # overdue by the first row already


def test_a_silence_is_void_where_an_interval_has_ended_since_and_before_the_first():
    simulation = Simulation()
    scorer = prepared(simulation)
    job = simulation.job()
    first, last = job["blocks"]["ended_at"][[0, 3999]].tolist()
    scorer.observe("jobs", job["jobs"], 0.0)
    scorer.observe("silences", silence(job, first - 100, first - 1), 0.0)
    assert scores_of(scorer.step(0.0)) == []
    judge(scorer, job, until=4000)
    scorer.observe("silences", silence(job, last - 100, last - 0.5), 0.0)
    assert scores_of(scorer.step(0.0)) == []


def test_a_run_whose_tail_was_in_a_spool_ends_as_if_it_had_come_in_time():
    simulation = Simulation()
    scorer = prepared(simulation)
    job = simulation.job()
    judge(scorer, job, until=4000)
    ended_at = float(job["blocks"]["ended_at"][-1])
    # The collector was away. Tail and end come together, 40 s late.
    scores = [score.columns for score in scores_of(scorer.step(ended_at + 39))]
    scorer.observe("blocks", part(job["blocks"], 4000, 8000), ended_at + 40)
    scorer.observe("runs", job["runs"], ended_at + 40)
    scores += [score.columns for score in scores_of(scorer.step(ended_at + 40))]
    assert [(score["state"], score["final"]) for score in scores] == [("healthy", 1)]
    assert np.isnan(scores[-1]["alarmed_at"])


def test_that_no_rows_arrive_is_no_silence():
    simulation = Simulation()
    scorer = prepared(simulation)
    job = simulation.job()
    judge(scorer, job, until=4000)
    assert scores_of(scorer.step(float(job["blocks"]["ended_at"][3999]) + 5000)) == []


def test_a_job_is_judged_by_the_pace_there_was_when_it_began():
    simulation = Simulation()
    scorer = prepared(simulation)
    job = simulation.job(slow_from=0, factor=2.0)
    judge(scorer, job, until=400)
    slow_history = history(Simulation(seed=5), factor=2.0)
    scorer.observe("paces", slow_history["paces"], 0.0)
    rest = dict(job, blocks=part(job["blocks"], 400, 8000))
    assert judge(scorer, rest)[-1]["state"] == "slow"


def test_after_a_restart_finished_jobs_are_left_alone_and_open_ones_judged_again():
    simulation = Simulation()
    written = history(simulation)
    done, running = simulation.job(), simulation.job(slow_from=0, factor=2.0)
    restarted = Scorer()
    for table, columns in written.items():
        restarted.observe(table, columns, 0.0)
    restarted.observe("scores", verdict(done, 0.1), 0.0)
    for job in (done, running):
        restarted.observe("jobs", job["jobs"], 0.0)
    names = {job["jobs"]["job"][0] for job in (done, running)}
    assert list(restarted.open_jobs(names, 10**9).values()) == running["jobs"]["log_offset"]
    for job in (done, running):
        restarted.observe("blocks", job["blocks"], 0.0)
    scores = [score.columns for score in scores_of(restarted.step(simulation.now))]
    assert [(score["job"], score["state"]) for score in scores] == [(running["jobs"]["job"][0], "slow")]


def test_an_unfinished_verdict_does_not_close_a_job():
    simulation = Simulation()
    scorer = prepared(simulation)
    job = simulation.job()
    scorer.observe("scores", verdict(job, 0.1, final=0), 0.0)
    assert judge(scorer, job)[-1]["final"] == 1


def test_blocks_that_arrive_before_their_job_are_judged_with_it():
    simulation = Simulation()
    scorer = prepared(simulation)
    job = simulation.job(slow_from=0, factor=2.0)
    scorer.observe("blocks", job["blocks"], 0.0)
    assert scores_of(scorer.step(simulation.now)) == []
    scorer.observe("jobs", job["jobs"], 0.0)
    assert [score.columns["state"] for score in scores_of(scorer.step(simulation.now))] == ["slow"]


def test_a_second_row_of_jobs_changes_nothing():
    simulation = Simulation()
    scorer = prepared(simulation)
    job = simulation.job(slow_from=4000, factor=1.5)
    scorer.observe("jobs", job["jobs"], 0.0)
    scorer.observe("jobs", job["jobs"] | {"workload": ["lab/other@9x3:0"]}, 0.0)
    assert judge(scorer, job)[-1]["workload"] == job["jobs"]["workload"][0]


def test_a_job_too_short_for_a_window_is_unknown_and_says_so():
    simulation = Simulation()
    scorer = Scorer()
    scorer.observe("paces", history(simulation)["paces"], 0.0)
    simulation.intervals = 100
    final = judge(scorer, simulation.job())[-1]
    assert final["sentence"].startswith(
        "unknown: not one window of 1 s of the work that lab/app@2x1 is known for, and fewer than 15 "
    )


def test_where_alarmed_runs_became_the_history_a_running_job_is_judged_by_it_anew():
    simulation = Simulation()
    scorer = prepared(simulation)
    job = simulation.job(slow_from=0, factor=2.0)
    assert judge(scorer, job, until=4000)[-1]["state"] == "slow"
    for table, columns in history(Simulation(seed=9), factor=2.0).items():
        scorer.observe(table, columns, 0.0)
    detail = '{"reason":"accepted"}'
    scorer.observe(
        "events", {"source": ["lab/app@2x1"], "kind": ["regime-closed"], "detail": [detail], "time": [0.0]}, 0.0
    )
    rest = dict(job, blocks=part(job["blocks"], 4000, 8000))
    assert judge(scorer, rest)[-1]["state"] == "healthy"


def test_a_program_without_intervals_is_judged_by_its_runtime_while_it_runs():
    simulation, scorer = Simulation(), Scorer()
    job = simulation.job()
    began = float(job["jobs"]["started_at"][0])
    set_runtime(scorer, job["jobs"]["workload"][0], 19.0, 20.0, 21.0)
    scorer.observe("jobs", job["jobs"], 0.0)

    def states(until: float) -> list[str]:
        scorer.observe("silences", silence(job, began + 0.1, began + until), 0.0)
        return [score.columns["state"] for score in scores_of(scorer.step(0.0))]

    assert states(15.0) == []
    assert states(22.0) == ["inconclusive"]
    assert states(27.0) == ["slow"]
    scorer.observe("runs", {**job["runs"], "runtime_seconds": [30.0], "intervals": [0]}, 0.0)
    [final] = scores_of(scorer.step(0.0))
    assert (final.columns["state"], final.columns["basis"]) == ("slow", "runtimes")
    assert final.columns["sentence"].startswith("slow: 1.50x the runtime of 3 runs (score ")


def test_an_imported_run_is_not_judged():
    simulation, scorer = Simulation(), Scorer()
    job = simulation.job()
    set_runtime(scorer, job["jobs"]["workload"][0], 1.9, 2.0, 2.1)
    for imported, states in ((1, []), (0, ["slow"])):
        one = simulation.job()
        scorer.observe("jobs", one["jobs"], 0.0)
        scorer.observe("runs", {**one["runs"], "intervals": [0], "imported": [imported]}, 0.0)
        assert [row.columns["state"] for row in scores_of(scorer.step(0.0))] == states
        assert sum(scorer.finished.values()) == len(states)
