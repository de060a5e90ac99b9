"""Rows with impossible values, as earlier versions stored them, cost their job a verdict and no other job anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from barograph_alerts.processor import Scorer
from barograph_collector.daemon.runner import observe
from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.learning.learner import Learner
from barograph_modeler.processor import ModelerProcessor
from helpers.jobs import Simulation, verdict

pytestmark = pytest.mark.quarantine

SECONDS = ("own_seconds", "p2p_seconds", "wait_seconds", "least_wait_seconds")
NODE_ROW: dict[str, Any] = {"world": 0, "ranks": 0, "first_index": 0, "length": 1, "count": 1, "ended_at": 1e6}


def of_two_nodes(job: dict[str, Any]) -> dict[str, Any]:
    return {**job, "jobs": {**job["jobs"], "nodes": [2]}}


def with_nan(job: dict[str, Any]) -> dict[str, Any]:
    seconds = np.array(job["blocks"]["sum_seconds"])
    seconds[7] = np.nan
    return {**job, "blocks": {**job["blocks"], "sum_seconds": seconds}}


def test_a_job_with_a_nan_is_given_up_by_the_scorer_and_a_job_beside_it_is_judged() -> None:
    simulation, scorer = Simulation(intervals=400), Scorer()
    bad, good = with_nan(simulation.job()), simulation.job()
    for job in (bad, good):
        for table in ("jobs", "blocks", "runs"):
            observe(scorer, table, job[table], simulation.now)
    scores = {score.columns["job"]: score.columns for score in scorer.step(simulation.now)}
    assert set(scores) == {"lab/1.0.0", "lab/2.0.0"}
    assert (scores["lab/1.0.0"]["state"], scores["lab/1.0.0"]["final"]) == ("unknown", 1)
    assert "cannot be evaluated" in scores["lab/1.0.0"]["sentence"]
    assert "cannot be evaluated" not in scores["lab/2.0.0"]["sentence"]
    assert scorer.quarantine.failures.total() == 1
    assert not scorer.jobs


def test_nodes_without_ranks_cost_their_job_alone() -> None:
    simulation, scorer = Simulation(intervals=400), Scorer()
    bad, good = of_two_nodes(simulation.job()), of_two_nodes(simulation.job())
    for job in (bad, good):
        observe(scorer, "jobs", job["jobs"], simulation.now)
    rows = {name: [value] * 2 for name, value in {**NODE_ROW, **dict.fromkeys(SECONDS, 0.0)}.items()} | {
        "job": ["lab/1.0.0"] * 2,
        "host": ["a", "b"],
    }
    observe(scorer, "node_blocks", rows, simulation.now)
    assert set(scorer.jobs) == {"lab/2.0.0"}
    assert scorer.step(simulation.now)[0].columns["job"] == "lab/1.0.0"


def test_a_job_with_a_nan_is_not_learned_and_a_job_beside_it_is() -> None:
    from concurrent.futures import ThreadPoolExecutor

    from barograph_modeler.features.library import FeatureLibrary
    from barograph_modeler.forecasts.library import PredictorLibrary

    simulation = Simulation(intervals=400)
    with ThreadPoolExecutor(1) as executor:
        features = FeatureForecaster(FeatureLibrary(lambda runs, seed: "none", executor))
        modeler = ModelerProcessor(Learner(), Forecaster(PredictorLibrary(executor)), features)
        for job in (with_nan(simulation.job()), simulation.job()):
            for table in ("jobs", "blocks", "runs"):
                observe(modeler, table, job[table], simulation.now)
            observe(modeler, "scores", verdict(job, 0.0), simulation.now)
        outputs = modeler.step(simulation.now)
    assert modeler.quarantine.failures == {"blocks": 1}
    assert modeler.learner.learned_runs == 1
    assert [output.columns["job"] for output in outputs if output.table == "assignments"] == ["lab/2.0.0"]
