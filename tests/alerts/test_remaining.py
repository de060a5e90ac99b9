"""What a running job has left: from its progress, and none where the length of its work is unknown."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest

from barograph_alerts.detection.alarm import Alarm
from barograph_alerts.job.disturbances import DisturbanceHistory
from barograph_alerts.job.remaining import JobRemaining, RemainingNews, RunProgress
from barograph_alerts.processor import Scorer
from barograph_lab.studies.alerts.remaining import (
    METHODS,
    OURS,
    PREDICTION,
    UNDISTURBED,
    remaining_errors,
    simulated_runs,
    summarize,
)
from barograph_modeler.pace.progress import DelaysOfRuns, ProgressProfile
from barograph_modeler.pace.remaining import PaceSpread, Remaining
from barograph_modeler.pace.windows import Window
from helpers.jobs import Simulation, part, scores_of
from helpers.trials import prepared

CLASS = 7
BEGAN_AT = 1000.0


def profile(tail: float = math.nan) -> ProgressProfile:
    """Of runs of 100 intervals of a second."""
    points = np.arange(101.0)
    empty: list[list[float]] = [[] for _ in range(6)]
    return ProgressProfile(
        {CLASS: (0, 6000, 1)}, points, points, 5, DelaysOfRuns(empty, empty), PaceSpread(0.01, 0.005), tail
    )


def run(seconds: Sequence[float], known: ProgressProfile | None = None, class_id: int = CLASS) -> RunProgress:
    progress, at = RunProgress(known or profile()), BEGAN_AT
    for one in seconds:
        progress.add(Window({class_id: 1}, {class_id: one}, at, at + one))
        at += one
    return progress


def left(progress: RunProgress, now: float, alarms: Sequence[Alarm] = (), known_until: float = 0.0) -> Remaining:
    found = progress.remaining(None, alarms, known_until, now)
    assert found is not None
    return found.left


def test_what_is_left_follows_from_the_progress_and_the_pace_so_far():
    assert left(run([1.0] * 50), BEGAN_AT + 50).expected_seconds == pytest.approx(50)
    slower = left(run([1.03] * 50), BEGAN_AT + 51.5).expected_seconds
    assert 50.3 < slower < 51.5
    assert left(run([1.0] * 50, profile(tail=20)), BEGAN_AT + 50).expected_seconds == pytest.approx(70)


def test_the_basis_tells_how_far_the_run_is_and_at_what_pace():
    found = run([1.1] * 25).remaining(None, (), 0.0, BEGAN_AT + 27.5)
    assert found is not None
    assert (found.share, found.runs, found.basis) == (0.25, 5, "25% done, in 1.10 times the usual time")


def test_between_two_reports_a_run_goes_on_and_in_a_silence_it_does_not():
    progress, at = run([1.0] * 50), BEGAN_AT + 50
    assert left(progress, at + 2).expected_seconds == pytest.approx(48)
    # A sidecar reports that nothing has ended for 20 s.
    assert left(progress, at + 20, known_until=at + 20).expected_seconds == pytest.approx(47)
    # Nothing is reported at all, as while the collector is away: the expected end stays.
    assert left(progress, at + 20, known_until=at).expected_seconds == pytest.approx(30)
    assert left(progress, at + 500, known_until=at) == (0, 0, 0)


def test_a_disturbance_makes_the_rest_longer_and_its_end_ends_that():
    progress = run([1.0] * 40 + [3.0] * 10)
    alarm = Alarm("slow", "its history", BEGAN_AT + 40, BEGAN_AT + 52, 3.0, 2.0)
    at = BEGAN_AT + 70
    disturbed = left(progress, at, [alarm])
    assert disturbed.expected_seconds == pytest.approx(30 + 50 - 10, rel=0.01)
    assert disturbed.lower_seconds < 52
    assert disturbed.upper_seconds > 140
    for _ in range(5):
        progress.add(Window({CLASS: 1}, {CLASS: 1.0}, at, at + 1))
        at += 1
    alarm.ended_at = BEGAN_AT + 70
    recovered = left(progress, at, [alarm])
    assert recovered.expected_seconds == pytest.approx(45, rel=0.01)
    assert recovered.upper_seconds < 50


def test_a_run_that_is_slow_from_its_begin_is_expected_to_remain_so():
    alarm = Alarm("slow", "its history", BEGAN_AT, BEGAN_AT + 20, 2.0, 2.0)
    found = left(run([2.0] * 30), BEGAN_AT + 60, [alarm])
    assert found.expected_seconds == pytest.approx(140, rel=0.01)
    assert found.lower_seconds < 75


def test_a_change_of_pace_counts_before_it_is_an_alarm():
    usual, changed = run([1.0] * 60), run([1.0] * 50 + [1.5] * 10)
    assert left(usual, BEGAN_AT + 60).upper_seconds < 43
    found = left(changed, BEGAN_AT + 65)
    assert found.expected_seconds > 43
    assert found.upper_seconds >= 60


def test_a_stall_may_last_for_as_long_again():
    alarm = Alarm("stalled", "its history", BEGAN_AT + 50, BEGAN_AT + 90, math.nan, 2.0)
    at = BEGAN_AT + 150
    found = left(run([1.0] * 50), at, [alarm], known_until=at)
    assert found.expected_seconds == pytest.approx(50 + 100)


def test_a_run_that_is_longer_than_earlier_ones_or_does_something_else_has_no_known_end():
    assert run([1.0] * 101).remaining(None, (), 0.0, BEGAN_AT + 101) is None
    assert run([1.0] * 50, class_id=8).remaining(None, (), 0.0, BEGAN_AT + 50) is None
    assert RunProgress(profile()).remaining(None, (), 0.0, BEGAN_AT) is None


@pytest.mark.parametrize("seconds", [0.0, 1e-300, 1e-9, 1e9, 1e300])
def test_whatever_times_a_run_reports_the_answer_is_finite_and_in_order(seconds):
    found = run([1.0] * 20 + [seconds] * 20).remaining(None, (), 0.0, BEGAN_AT + 40)
    assert found is not None
    assert 0 <= found.left.lower_seconds <= found.left.expected_seconds <= found.left.upper_seconds < math.inf
    nothing = ProgressProfile(
        {CLASS: (0, 6000, 1)}, np.arange(101.0), np.zeros(101), 5, profile().delays, PaceSpread(0.01, 0.005)
    )
    assert run([seconds] * 20, nothing).remaining(None, (), 0.0, BEGAN_AT + 40) is None


def test_thousands_of_windows_are_thinned_and_come_to_the_same():
    known = ProgressProfile(
        {CLASS: (0, 6000, 1)}, np.arange(6001.0), np.arange(6001.0), 5, profile().delays, PaceSpread(0.01, 0.005)
    )
    found = left(run([1.0] * 3000, known), BEGAN_AT + 3000)
    assert found.expected_seconds == pytest.approx(3000)


def test_rows_are_written_when_a_job_has_progressed_or_its_expected_end_has_moved():
    news, end, rows = RemainingNews(), 1600.0, 0
    for now in range(1000, 1600):
        at = float(now)
        found = JobRemaining(Remaining(0, end - at, 2 * (end - at)), (at - 1000) / 600, 3, "")
        rows += news.is_due(at - 1000, at) and news.is_news(found, at - 1000, at)
    assert rows == 15  # one in 40 s, each sixteenth of the run
    # It stands still for a day.
    rows = 0
    for now in range(1600, 88_000, 5):
        at = float(now)
        found = JobRemaining(Remaining(30, 30, 60), 0.9, 3, "")
        rows += news.is_due(at - 1000, at) and news.is_news(found, at - 1000, at)
    assert 10 < rows < 300


def half_way(scorer: Scorer, simulation: Simulation, factor: float = 1.0) -> tuple[str, float]:
    """A job that is judged to its middle, 10 s after its begin if `factor` is 1: its name and the time."""
    job = simulation.job(slow_from=0, factor=factor)
    half = part(job["blocks"], 0, simulation.intervals // 2)
    scorer.observe("jobs", job["jobs"], 0.0)
    scorer.observe("blocks", half, 0.0)
    return job["jobs"]["job"][0], float(half["ended_at"][-1])


def test_a_running_job_gets_a_row_of_predictions_that_no_test_is_made_of():
    simulation = Simulation()
    scorer = prepared(simulation)
    name, now = half_way(scorer, simulation)
    [row] = [output for output in scorer.step(now) if output.table == "predictions"]
    columns = row.columns
    assert (columns["job"], columns["method"], columns["problem"]) == (name, "progress", "lab/app")
    assert columns["expected_seconds"] == pytest.approx(20, rel=0.03)
    assert 18 < columns["lower_seconds"] < columns["expected_seconds"] < columns["upper_seconds"] < 22
    scorer.observe("predictions", {key: [value] for key, value in columns.items()}, now)
    assert scorer.jobs[name].runtime_prior is None
    # Nothing new: no further row.
    assert scorer.step(now + 10) == []


def test_the_upper_limit_has_the_disturbances_of_ended_runs_also_after_a_restart():
    simulation = Simulation()
    scorer = prepared(simulation)
    rows = []
    for number in range(4):
        job = simulation.job(slow_from=simulation.intervals // 2 if number % 2 else simulation.intervals, factor=3.0)
        for table in ("jobs", "blocks", "runs"):
            scorer.observe(table, job[table], 0.0)
        rows += [output.columns for output in scorer.step(BEGAN_AT + 1000) if output.table == "scores"]
    finals = [row for row in rows if row["final"]]
    excesses = [json.loads(row["evidence"]).get("excess", 0.0) for row in finals]
    assert [one > 0.5 for one in excesses] == [False, True, False, True]
    restarted, before = prepared(Simulation()), None
    for row in finals:
        restarted.observe("scores", {key: [value] for key, value in row.items()}, 0.0)
    for one in (scorer, restarted):
        name, now = half_way(one, simulation)
        one.step(now)
        found = one.remaining(one.jobs[name], now)
        assert found is not None
        assert found.left.expected_seconds == pytest.approx(10, rel=0.05)
        assert found.left.upper_seconds > 13
        assert before is None or found.left.upper_seconds == pytest.approx(before, rel=0.1)
        before = found.left.upper_seconds


def test_the_rate_of_an_application_is_that_of_the_site_until_it_has_runs_of_its_own():
    history = DisturbanceHistory()
    assert history.coming("lab/app").share == 0
    for number in range(100):
        history.add("lab/other", 1.0 if number % 10 == 0 else 0.0)
    history.add("lab/other", math.nan)
    assert history.coming("lab/app").share == pytest.approx(10 / 101)
    assert history.coming("lab/app").excesses.tolist() == [1.0] * 10
    for _ in range(200):
        history.add("lab/app", 0.0)
    assert history.coming("lab/app").share < 0.01
    for _ in range(8):
        history.add("lab/app", 0.2)
    assert history.coming("lab/app").excesses.tolist() == [0.2] * 8


def test_the_first_run_of_its_work_has_no_expected_end():
    simulation, scorer = Simulation(), Scorer()
    name, now = half_way(scorer, simulation)
    assert [output for output in scorer.step(now) if output.table == "predictions"] == []
    assert scorer.remaining(scorer.jobs[name], now) is None


def test_with_a_prediction_only_what_is_left_is_that_given_the_time_so_far():
    simulation, scorer = Simulation(), Scorer()
    name, now = half_way(scorer, simulation)
    limits = {"lower_seconds": [8.0], "expected_seconds": [9.0], "upper_seconds": [11.0]}
    scorer.observe("predictions", {"job": [name], "method": ["scaling"], "runs": [4], "scales": [2], **limits}, now)
    scorer.step(now)
    found = scorer.remaining(scorer.jobs[name], now)
    assert found is not None
    assert 0 < found.left.expected_seconds < 5  # 10 s have passed, the prediction less these is below 0
    assert found.basis == "scaling from 4 runs at 2 scales"


def test_the_sentence_of_a_running_job_tells_when_it_will_have_ended():
    simulation = Simulation()
    scorer = prepared(simulation)
    _, now = half_way(scorer, simulation, factor=1.5)
    [score] = scores_of(scorer.step(now))
    assert "will take 30." in score.columns["sentence"]


def test_on_simulated_runs_errors_fall_as_a_run_proceeds_and_limits_hold_healthy_ones():
    rows = [row for number in range(2) for row in remaining_errors(simulated_runs(number, 3), 10, 4)]
    found = {(row["runs"], row["share"], row["method"]): row for row in summarize(rows)}
    assert {method for _, _, method in found} == METHODS.keys()
    for kind in ("healthy", "disturbed"):
        ours, others = (
            [found[kind, share, method]["mean_error"] for share in (0.25, 0.5, 0.75, 0.9)]
            for method in (OURS, PREDICTION)
        )
        # Of two runs each; neighbouring shares may be about as good.
        assert min(ours[:2]) > ours[3]
        assert ours[0] > ours[2] > ours[3]
        assert all(one < 0.7 * other for one, other in zip(ours, others, strict=True))
    healthy = [found["healthy", share, OURS]["coverage_95"] for share in (0.1, 0.5, 0.9)]
    assert min(healthy) > 0.9
    # More than a third of these runs are disturbed.
    at_begin = {name: found["disturbed", 0.1, name] for name in (OURS, UNDISTURBED)}
    assert at_begin[OURS]["coverage_95"] > 0.9 > at_begin[UNDISTURBED]["coverage_95"]
