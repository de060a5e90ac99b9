"""Predictions from features: which model is made, when a running job is predicted from it, and how that is scored."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from barograph_collector.daemon.runner import Output
from barograph_modeler.features import history as bounds
from barograph_modeler.features.columns import UninformativeFeatures, select_features
from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.features.history import FeatureRunHistory
from barograph_modeler.features.library import FeatureLibrary
from barograph_modeler.features.model import FeaturePrediction, back_test
from barograph_modeler.features.train_worker import TrainingFailed, TrainWorker
from barograph_modeler.forecasts import running as running_bounds
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.history import Application
from barograph_modeler.forecasts.library import PredictorLibrary
from barograph_modeler.forecasts.run import FeatureRun, RunFeatures, Value, feature_values
from barograph_modeler.forecasts.running import RunningJobs
from barograph_modeler.learning.learner import Learner
from barograph_modeler.main import TABLES
from barograph_modeler.processor import ModelerProcessor
from barograph_modeler.scaling.answer import Refusal
from barograph_modeler.state.snapshot import Offsets, read_snapshot, write_snapshot
from helpers.executor import Inline
from helpers.features import Solves, learn_here
from helpers.jobs import verdict

SOLVER = Application("lab", "solver")
NOW = 1e9


class Life:
    """One life of a modeler: takes pieces of the log and keeps what it wrote."""

    def __init__(self) -> None:
        self.fits = 0
        self.features = FeatureForecaster(FeatureLibrary(self._fit, Inline(), clock=lambda: 0.0))
        self.processor = ModelerProcessor(Learner(), Forecaster(PredictorLibrary(Inline())), self.features)
        self.said: list[Output] = []

    def _fit(self, runs: Any, seed: int) -> Any:
        self.fits += 1
        return learn_here(runs, seed)

    def observe(self, *pieces: tuple[str, dict[str, Any]]) -> None:
        for table, columns in sorted(pieces, key=lambda piece: TABLES.index(piece[0])):
            self.processor.observe(table, columns, NOW)
        for _ in range(2):
            self.said += self.processor.step(NOW)

    def rows(self, table: str) -> list[dict[str, Any]]:
        every = (dict(output.columns) for output in self.said if output.table == table)
        return [row for row in every if row.get("method") != "scaling"]


def learned(solves: Solves, runs: int = 33) -> Life:
    life = Life()
    for _ in range(runs):
        life.observe(*judged(solves.run()))
    return life


def judged(job: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The rows of a run with its verdict."""
    return [*job.items(), ("scores", verdict(job, 0.0))]


@pytest.fixture(scope="module")
def story() -> tuple[Life, Solves, dict[str, Any]]:
    """A life that has learned, and a job it has seen run and end."""
    solves = Solves()
    life = learned(solves)
    job = solves.run(cells=550.0, steps=50.0)
    life.observe(("jobs", job["jobs"]))
    assert life.rows("predictions") == []  # nothing is known of it yet, and its scale alone is no reason
    life.observe(("features", job["features"]))
    life.observe(("runs", job["runs"]), ("scores", verdict(job, 0.0)))
    return life, solves, job


def test_a_running_job_is_predicted_when_its_features_have_arrived_and_scored_at_its_end(story):
    life, solves, job = story
    (said,) = life.rows("predictions")
    assert (said["job"], said["method"], said["application"]) == (job["jobs"]["job"][0], "features", "lab/solver")
    assert said["expected_seconds"] == pytest.approx(solves.law(550, 50), rel=0.25)
    assert said["lower_seconds"] < solves.law(550, 50) < said["upper_seconds"]
    (outcome,) = life.rows("outcomes")
    assert (outcome["method"], outcome["result"]) == ("features", "inside")
    assert outcome["actual_seconds"] == job["runs"]["runtime_seconds"][0]
    assert life.features.predictions.scoreboard.scores["lab/solver"].coverage == 1.0


def test_the_log_says_which_model_it_was_and_why_it_was_asked(story):
    life, _, _ = story
    first = life.rows("models")[0]
    assert (first["application"], first["runs"], first["chosen"]) == ("lab/solver", 30, "features")
    importance = json.loads(first["features"])
    assert {"cells", "steps"} <= importance.keys()
    assert "work" not in importance  # it tells everything, and is known when the run is over
    assert sum(importance.values()) == pytest.approx(1.0)
    assert first["error"] < 0.4 < 2 * first["error"] + 0.4
    (said,) = life.rows("predictions")
    assert said["model"].partition(": ")[0] in {row["version"] for row in life.rows("models")}
    assert life.fits == len(life.rows("models")) == 2  # of 30 runs and of 33: a tenth more


def test_a_modeler_that_begins_again_says_nothing_twice_and_scores_what_a_former_life_has_said(story):
    life, _, job = story
    again = learned(Solves())
    for row in life.rows("models"):
        again.observe(("models", {name: [value] for name, value in row.items()}))
    said = life.rows("predictions")[0]
    again.said.clear()
    columns = {name: [value] for name, value in said.items()}
    again.observe(("jobs", job["jobs"]), ("features", job["features"]), ("predictions", columns))
    assert again.rows("predictions") == again.rows("models") == []
    again.observe(("runs", job["runs"]), ("scores", verdict(job, 0.0)))
    (outcome,) = again.rows("outcomes")
    assert outcome["expected_seconds"] == said["expected_seconds"]


def test_state_that_went_through_a_snapshot_predicts_the_same(story, tmp_path):
    life, _, _ = story
    path = tmp_path / "snapshot"
    write_snapshot(path, Offsets("log", {"jobs": 1}), "", life.processor.state())
    other = Life()
    other.processor.restore(read_snapshot(path, "")[1])
    other.observe()
    job = Solves(seed=9, _made=900).run()
    for each in (life, other):
        each.said.clear()
        each.observe(("jobs", job["jobs"]), ("features", job["features"]))
    assert [row["version"] for row in other.rows("models")] == []
    (mine,), (theirs,) = life.rows("predictions"), other.rows("predictions")
    assert theirs["job"] == mine["job"]
    assert theirs["expected_seconds"] == pytest.approx(mine["expected_seconds"], rel=0.2)


def test_where_scales_predict_as_well_features_are_not_asked():
    life = Life()
    rng = np.random.default_rng(2)
    for number in range(30):
        job = Solves(_made=number, app="flat").run(cells=100.0 + rng.integers(3), steps=10.0)
        seconds = float(10.0 * rng.lognormal(0, 0.1))
        job["jobs"]["ranks"][:] = (2, 4, 8)[number % 3]
        job["jobs"]["workload"] = [f"lab/flat@{(2, 4, 8)[number % 3]}x1"]
        job["features"]["value"][2] = 1.0
        job["runs"]["runtime_seconds"][:] = seconds * 8 / (2, 4, 8)[number % 3]
        life.observe(*judged(job))
    rows = life.rows("models")
    assert {row["chosen"] for row in rows} == {"scaling"}
    assert all(row["scaling_error"] <= row["error"] for row in rows)


def runs(count: int, **values: Any) -> list[FeatureRun]:
    """Runs of one scale whose features are functions of a number from 1 on."""
    return [
        FeatureRun(RunFeatures({n: v(i) for n, v in values.items()}, {"late": 9.0 * i}, 4, 1), 10.0 * i)
        for i in range(1, count + 1)
    ]


def test_features_are_compared_with_a_prediction_by_scales_that_knows_sizes():
    """Each value of a size that is a parameter would be a problem at one scale."""
    rng, made = np.random.default_rng(1), []
    for n in rng.permutation(np.arange(20, 80)).tolist():
        ranks = int(rng.choice([8, 16, 32]))
        seconds = (3.0 + 4.0 * n / ranks) * float(rng.lognormal(0, 0.02))
        made.append(FeatureRun(RunFeatures(feature_values(ranks, 1, {"n": str(n)}, {}), {}, ranks, 1), seconds))
    scored = back_test(made[:45], made[45:])
    assert scored.scored > 0.8 * 15
    assert scored.scaling_error < 0.08


def test_texts_are_labels_and_what_is_late_constant_or_gone_is_not_used():
    made = runs(40, mesh=lambda i: "fine" if i % 2 else "coarse", n=str, late=float, flat=lambda i: 3.0, old=float)
    for run in made[-5:]:
        del run.features.values["old"]  # type: ignore[attr-defined]
    columns, sample = select_features(made)
    assert set(columns.names) <= {"mesh", "n"}
    assert "n" in columns.names
    assert sample.values[:, columns.names.index("n")].tolist() == list(range(1, 41))


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (runs(19, n=float), "19 runs, expected at least 20"),
        (runs(30, n=lambda i: 1.0), "no feature differs between runs"),
        (runs(30, late=float), "no feature that differs is known within 10% of the runtime"),
    ],
)
def test_runs_whose_features_say_nothing_make_no_model(made, why):
    with pytest.raises(UninformativeFeatures, match=why):
        select_features(made)


def test_a_run_that_lacks_a_feature_or_lies_where_none_has_been_is_refused_by_name():
    model = learn_here(runs(40, n=float, ranks=lambda i: 4.0, mesh=lambda i: "ab"[i % 2]), 0)
    values: dict[str, Value] = {"n": 7.0, "ranks": 4.0, "mesh": "a"}
    inside = model.predict(values)
    assert isinstance(inside, FeaturePrediction)
    assert inside.lower < 70 < inside.upper
    assert model.predict({"ranks": 4.0, "mesh": "a"}) == Refusal("1 of 1 features are missing: n")
    assert model.predict(values | {"n": 99.0}) == Refusal("no run has been there: n is 99, expected 1 to 40")
    assert model.predict(values | {"ranks": 8.0}) == Refusal("no run has been there: ranks is 8, expected 4 to 4")
    assert math.isinf(model.predict(values, 0.001).limit)  # type: ignore[union-attr]


@pytest.mark.process
def test_a_model_comes_from_a_process_apart_as_it_would_from_here_and_a_broken_one_is_said():
    made, apart = runs(30, n=float), TrainWorker()
    model = apart.learn(made, 0)
    here = learn_here(made, 0)
    assert not isinstance(model, str)
    assert model.version == here.version
    assert model.predict({"n": 5.5}) == here.predict({"n": 5.5})
    with pytest.raises(TrainingFailed, match=r"its process ended with status 1: .*finite time above 0"):
        apart.learn([run._replace(runtime_seconds=-1.0) for run in made], 0)
    apart.stop()
    with pytest.raises(TrainingFailed, match="ending"):
        apart.learn(made, 0)


def test_a_fit_that_breaks_is_counted_and_the_last_model_stays(caplog):
    life = learned(Solves(), 32)
    model = life.features.library.published[SOLVER]

    def broken(runs: Any, seed: int) -> Any:
        raise TrainingFailed("its process ended with status -9: it printed nothing")

    life.features.library._learn = broken
    life.observe(*judged(Solves(seed=5, _made=100).run()))
    assert life.features.library.failed == 1
    assert life.features.library.published[SOLVER] is model
    assert "lab/solver cannot be learned, the last model stays: its process ended with status -9" in caplog.text


def test_what_is_held_of_runs_and_jobs_is_bounded(monkeypatch):
    monkeypatch.setattr(bounds, "VALUES", 100)
    monkeypatch.setattr(bounds, "RUNS", 5)
    history = FeatureRunHistory()
    for number in range(40):
        for run in runs(2, a=float, b=float):
            history.learn(Application("lab", f"app{number}"), run)
    assert len(history.seen) == 25
    for run in runs(50, a=float):
        history.learn(Application("lab", "app39"), run)
    assert [run.runtime_seconds for run in history.runs(Application("lab", "app39"))] == [460, 470, 480, 490, 500]
    assert history.seen[Application("lab", "app39")] == 52

    monkeypatch.setattr(running_bounds, "VALUES", 30)
    monkeypatch.setattr(running_bounds, "JOB_VALUES", 10)
    jobs = RunningJobs()
    for number in range(20):
        names = ["n" * 301, "\x1b[2J", *(f"f{i}" for i in range(48))]
        columns = {"job": [f"lab/{number}"] * 50, "host": ["n1"] * 50, "name": names}
        jobs.read_features(columns | {"value": np.ones(50), "known_seconds": np.zeros(50)})
    assert [name for name, _ in jobs] == ["lab/17", "lab/18", "lab/19"]
    assert all(set(job.features.values) == {"ranks", "nodes", *(f"f{i}" for i in range(10))} for _, job in jobs)
