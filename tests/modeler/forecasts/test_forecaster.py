"""The forecaster: what it predicts and when, how that is scored, and that a restart neither repeats nor forgets it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from barograph_collector.daemon.runner import Output
from barograph_modeler.forecasts import history as bounds
from barograph_modeler.forecasts import library as module
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.history import Application, WorkloadHistory, WorkloadPlace
from barograph_modeler.forecasts.library import PredictorLibrary
from barograph_modeler.forecasts.scoreboard import Forecast, Scoreboard
from barograph_modeler.learning.jobs import VERDICT_SECONDS
from barograph_modeler.learning.learner import Learner
from barograph_modeler.processor import ModelerProcessor
from barograph_modeler.state.snapshot import Offsets, read_snapshot, write_snapshot
from helpers.executor import Inline, Slow
from helpers.features import inline_features
from helpers.jobs import verdict
from helpers.scaling import Campaign, law

SOLVER = Application("lab", "solver")
NOW = 1e9


class Life:
    """One life of a modeler: takes pieces of the log and keeps what it wrote."""

    def __init__(self, executor: Any = None) -> None:
        self.forecaster = Forecaster(PredictorLibrary(executor or Inline(), worked=lambda: 0.0))
        self.processor = ModelerProcessor(Learner(accept=3), self.forecaster, inline_features())
        self.said: list[Output] = []

    def observe(self, *pieces: tuple[str, dict[str, Any]], now: float = NOW) -> None:
        """Take rows in one round, as a station does it: think, then think again with nothing new."""
        for table, columns in pieces:
            self.processor.observe(table, columns, now)
        self.think(now)
        self.think(now)

    def think(self, now: float = NOW) -> None:
        self.said += self.processor.step(now)

    def run(self, job: dict[str, Any]) -> None:
        self.observe(*judged(job))

    def end(self, job: dict[str, Any]) -> None:
        self.observe(("runs", job["runs"]), ("scores", verdict(job, 0.0)))

    def rows(self, table: str) -> list[dict[str, Any]]:
        return [dict(output.columns) for output in self.said if output.table == table]


def learned(scales: tuple[int, ...] = (1, 2, 4, 8, 16), **campaign: Any) -> tuple[Life, Campaign]:
    """A life that has seen three runs at each scale, at once: as after a start, and with one fit."""
    life, made = Life(), Campaign(**campaign)
    life.observe(*(piece for ranks in scales for _ in range(3) for piece in judged(made.run(ranks))))
    return life, made


def runs_of(forecaster: Forecaster) -> list[float]:
    """Seconds of all runs in the history of the application."""
    return [seconds for _, every in forecaster.history.runs(SOLVER) for seconds in every]


def judged(job: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The rows of a run with its verdict."""
    return [*job.items(), ("scores", verdict(job, 0.0))]


def as_rows(row: dict[str, Any]) -> dict[str, Any]:
    return {name: [value] for name, value in row.items()}


def test_a_job_is_predicted_while_it_runs_and_scored_when_it_has_ended():
    life, campaign = learned()
    job = campaign.run(64)
    life.observe(("jobs", job["jobs"]))
    (said,) = life.rows("predictions")
    assert (said["job"], said["application"], said["problem"]) == (
        job["jobs"]["job"][0],
        "lab/solver",
        "lab/solver n=1",
    )
    assert said["expected_seconds"] == pytest.approx(law(64), rel=0.2)
    assert said["lower_seconds"] < law(64) < said["upper_seconds"]
    assert life.rows("outcomes") == []
    life.end(job)
    (outcome,) = life.rows("outcomes")
    actual = float(job["runs"]["runtime_seconds"][0])
    assert (outcome["job"], outcome["result"], outcome["actual_seconds"]) == (said["job"], "inside", actual)
    assert outcome["relative_error"] == pytest.approx(said["expected_seconds"] / actual - 1)
    score = life.forecaster.predictions.scoreboard.scores["lab/solver"]
    assert (score.coverage, score.median_error) == (1.0, abs(outcome["relative_error"]))


def test_what_has_ended_by_the_time_it_is_read_is_learned_and_never_predicted():
    life, _ = learned()
    assert life.rows("predictions") == life.rows("outcomes") == []
    assert len(life.forecaster.library.published[SOLVER].problems["lab/solver n=1"]) == 15


@pytest.mark.parametrize(("change", "result"), [({"factor": 50.0}, "outside"), ({"status": 1}, "failed")])
def test_a_surprise_counts_against_the_interval_and_a_failure_only_as_such(change, result):
    life, campaign = learned()
    job = campaign.run(64, **change)
    life.observe(("jobs", job["jobs"]))
    life.end(job)
    assert [row["result"] for row in life.rows("outcomes")] == [result]
    score = life.forecaster.predictions.scoreboard.scores["lab/solver"]
    assert (score.coverage == 0.0) == (result == "outside")
    assert math.isnan(score.coverage) == (result == "failed")


def test_failed_runs_and_runs_that_alarmed_do_not_enter_the_history():
    life, campaign = learned()
    before = len(runs_of(life.forecaster))
    life.run(campaign.run(2, status=9))
    job = campaign.run(2, factor=3.0)
    life.observe(("jobs", job["jobs"]), ("scores", verdict(job, 2.0)))
    life.observe(("runs", job["runs"]))
    assert len(runs_of(life.forecaster)) == before
    assert [row["result"] for row in life.rows("outcomes")] == ["withheld"]


def test_inconclusive_runs_are_scored_and_learned_so_that_predictions_do_not_seem_better_than_they_are():
    life, campaign = learned()
    before = len(runs_of(life.forecaster))
    job = campaign.run(2)
    job["runs"]["imported"][:] = 0
    life.observe(("jobs", job["jobs"]))
    life.observe(("runs", job["runs"]), ("scores", verdict(job, 0.5, state="inconclusive")))
    assert len(runs_of(life.forecaster)) == before + 1
    assert [row["result"] for row in life.rows("outcomes")] == ["inside"]


def test_where_no_job_has_ever_had_a_verdict_runs_wait_for_one_for_a_while_only():
    life, campaign = Life(), Campaign()
    job = campaign.run(2)
    job["runs"]["imported"][:] = 0
    life.observe(*job.items())
    assert life.processor.learner.learned_runs == 0
    life.think(NOW + VERDICT_SECONDS + 1)
    assert life.processor.learner.learned_runs == 1


def test_an_imported_run_waits_for_no_verdict():
    life, campaign = learned()
    before = life.processor.learner.learned_runs
    life.observe(*campaign.run(2).items())
    assert life.processor.learner.learned_runs == before + 1


def test_while_the_alerts_are_away_runs_wait_for_their_verdict():
    life, campaign = learned()
    waiting, later = campaign.run(2), campaign.run(2)
    waiting["runs"]["imported"][:] = 0
    before = life.processor.learner.learned_runs
    life.observe(*waiting.items())
    life.think(NOW + 100 * VERDICT_SECONDS)
    assert life.processor.learner.learned_runs == before
    # The alerts are back, and have passed over it.
    life.observe(*judged(later), now=NOW + 100 * VERDICT_SECONDS)
    assert life.processor.learner.learned_runs == before + 2


def test_runs_accepted_as_the_new_normal_replace_the_history_of_their_workload():
    history = WorkloadHistory()
    place = WorkloadPlace("w", SOLVER, (), 4, 1)
    for seconds in (1.0, 1.1, 1.2):
        history.learn(place, seconds)
    history.replace(place, [2.0, 2.1])
    assert history.runs(SOLVER) == [(place, [2.0, 2.1])]


Piece = tuple[str, dict[str, Any], bool]
"""A table, rows of it, and whether the modeler wrote them."""


@pytest.fixture(scope="module")
def log() -> list[Piece]:
    """Everything in the order of the log: a history, and two jobs with what a modeler that never stopped wrote."""
    campaign, life = Campaign(), Life()
    pieces: list[Piece] = []
    for ranks in (1, 2, 4, 8, 16):
        life.run(job := campaign.run(ranks))
        pieces += [(table, columns, False) for table, columns in judged(job)]
    for table, columns in (piece for ranks in (32, 64) for piece in judged(campaign.run(ranks))):
        life.said.clear()
        life.observe((table, columns))
        pieces.append((table, columns, False))
        pieces += [(said.table, as_rows(dict(said.columns)), True) for said in life.said if said.table in OWN]
    assert [table for table, _, own in pieces if own] == ["predictions", "outcomes"] * 2
    return pieces


OWN = ("predictions", "outcomes")


@pytest.mark.parametrize("delivered", range(5))
def test_killed_anywhere_and_started_again_a_modeler_scores_each_prediction_once_and_makes_none_late(log, delivered):
    """Of what the first life wrote, so many rows reached the log; the second life reads it from its beginning."""
    own = [piece for piece in log if piece[2]][:delivered]
    again = Life()
    for table, columns, _ in (piece for piece in log if not piece[2] or any(piece is one for one in own)):
        again.processor.observe(table, columns, NOW)
        again.think()
    again.think()
    predicted = [columns["job"][0] for table, columns, _ in own if table == "predictions"]
    scored = [columns["job"][0] for table, columns, _ in own if table == "outcomes"]
    assert again.rows("predictions") == []  # both have ended
    assert scored + [row["job"] for row in again.rows("outcomes")] == predicted
    board = again.forecaster.predictions.scoreboard.scores
    assert sum(board["lab/solver"].results.values() if board else []) == len(predicted)


def test_a_job_that_still_runs_is_not_predicted_again_after_a_restart():
    life, campaign = learned()
    job = campaign.run(64)
    life.observe(("jobs", job["jobs"]))
    (said,) = life.rows("predictions")
    again, _ = learned()
    again.observe(("jobs", job["jobs"]), ("predictions", as_rows(said)))
    assert again.rows("predictions") == []
    again.end(job)
    assert [row["expected_seconds"] for row in again.rows("outcomes")] == [said["expected_seconds"]]


def test_state_that_went_through_a_snapshot_gives_the_same_predictions_and_reports_what_was_not_said(tmp_path):
    life, campaign = learned()
    for ranks in (2, 64):
        job = campaign.run(ranks)
        life.observe(("jobs", job["jobs"]))
    life.said.clear()
    life.processor.observe("runs", job["runs"], NOW)
    life.processor.observe("scores", verdict(job, 0.0), NOW)
    life.think()  # the log has more to say, so the outcome is held
    assert life.rows("outcomes") == []
    write_snapshot(tmp_path / "snapshot", Offsets("log", {}), "", life.processor.state())
    again = Life()
    again.processor.restore(read_snapshot(tmp_path / "snapshot", "")[1])
    job = campaign.run(128)
    for one in (life, again):
        one.observe(("jobs", job["jobs"]))
    assert again.rows("predictions") == life.rows("predictions") != []
    assert again.rows("outcomes") == life.rows("outcomes") != []


def test_a_job_waits_for_the_fit_under_way_and_the_main_loop_for_none():
    executor = Slow()
    life, campaign = Life(executor), Campaign()
    for ranks in (1, 2, 4, 8):
        life.run(campaign.run(ranks))
    job = campaign.run(16)
    life.observe(("jobs", job["jobs"]))
    assert life.rows("predictions") == []
    assert life.forecaster.is_learning("", "solver")
    while executor.waiting:
        executor.finish()
        life.think()
    assert [row["job"] for row in life.rows("predictions")] == job["jobs"]["job"]
    assert not life.forecaster.is_learning("", "solver")


def test_a_fit_that_breaks_is_counted_and_said_and_the_last_predictor_stays(monkeypatch, caplog):
    life, campaign = learned()
    before = life.forecaster.library.published[SOLVER]

    def broken(*_: Any) -> None:
        raise ArithmeticError("no fit")

    monkeypatch.setattr(module, "publish", broken)
    life.run(campaign.run(2))
    assert life.forecaster.library.published[SOLVER].predictor is before.predictor
    assert life.forecaster.library.failed == 1
    assert caplog.messages == ["lab/solver cannot be fitted, its last predictor stays: ArithmeticError('no fit')"]


def test_an_application_rests_in_proportion_to_its_fit_so_that_a_flood_costs_little():
    now = [0.0]
    life, campaign = Life(), Campaign()
    life.forecaster = Forecaster(PredictorLibrary(Inline(), clock=lambda: now[0], worked=lambda: now[0]))
    fits = []
    real = module.publish

    def slow(application: Any, *rest: Any) -> Any:
        fits.append(application)
        now[0] += 1.0
        return real(application, *rest)

    life.processor = ModelerProcessor(Learner(), life.forecaster, inline_features())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "publish", slow)
        for ranks in (1, 2, 4, 8, 16):
            life.run(campaign.run(ranks))
        assert len(fits) == 1
        now[0] += 30.0
        life.think()
        assert len(fits) == 2
    assert len(life.forecaster.library.published[SOLVER].problems["lab/solver n=1"]) == 5


def test_history_is_bounded_in_every_direction(monkeypatch):
    monkeypatch.setattr(bounds, "PROBLEMS", 5)
    history = WorkloadHistory()
    for number in range(8):
        application = Application("lab", f"app{number % 4}")
        for ranks in range(1, bounds.SCALES + 3):
            place = WorkloadPlace(f"{application}@{ranks}:{number}", application, (("n", str(number)),), ranks, 0)
            for seconds in range(1, bounds.RUNS + 3):
                history.learn(place, float(seconds))
    assert len(history) == 5
    assert Application("lab", "app3") in history
    scales = history.scales(Application("lab", "app3"))
    assert max(place.ranks for place, _ in scales) == bounds.SCALES + 2
    assert min(place.ranks for place, _ in scales) == 3
    assert all(len(seconds) == bounds.RUNS for _, seconds in scales)
    assert sum(len(seconds) for _, seconds in history.runs(Application("lab", "app3"))) <= bounds.FIT_RUNS


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_runtimes_and_scales_that_are_none_do_not_enter(seconds):
    history = WorkloadHistory()
    history.learn(WorkloadPlace("w", SOLVER, (), 4, 1), seconds)
    history.learn(WorkloadPlace("w", SOLVER, (), 0, 1), 1.0)
    assert SOLVER not in history


def test_nodes_that_contradict_the_ranks_count_as_unknown():
    history = WorkloadHistory()
    history.learn(WorkloadPlace("w", SOLVER, (), 2, 4), 1.0)
    ((place, _),) = history.runs(SOLVER)
    assert place.known_nodes is None


def test_the_scoreboard_gives_median_error_and_coverage_by_hand():
    board = Scoreboard()
    for actual in (10.0, 8.0, 20.0):
        board.judge(Forecast("lab/a", 5.0, 10.0, 15.0), actual, "healthy")
    score = board.scores["lab/a"]
    assert score.median_error == pytest.approx(0.25)  # of 0, 0.25 and 0.5
    assert score.coverage == pytest.approx(2 / 3)
