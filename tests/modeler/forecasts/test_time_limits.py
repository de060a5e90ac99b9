"""Time limits at scales that have run hold the risk that was named, however runs differ."""

from __future__ import annotations

import numpy as np
import pytest

from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.history import Application
from barograph_modeler.forecasts.library import PredictorLibrary
from barograph_modeler.learning.learner import Learner
from barograph_modeler.maxima.tails import ALIKE, AlikeTails
from barograph_modeler.processor import ModelerProcessor
from barograph_modeler.serving.answer import answer
from barograph_modeler.serving.question import Question
from helpers.executor import Inline
from helpers.features import inline_features
from helpers.jobs import verdict
from helpers.scaling import Campaign

RISK = 0.05
PARAMS = {"n": "1"}


class Facility:
    """A modeler and the runs of one scale, of which one in ten takes three times as long."""

    def __init__(self) -> None:
        self.forecaster = Forecaster(PredictorLibrary(Inline(), worked=lambda: 0.0))
        self.processor = ModelerProcessor(Learner(), self.forecaster, inline_features())
        self.campaign, self.rng = Campaign(), np.random.default_rng(4)

    def run(self, ranks: int = 8, *, status: int = 0) -> tuple[float, float]:
        """A run: the limit that was proposed before it began, and its runtime."""
        limit = self.limit() if self.forecaster.library.published else np.nan
        job = self.campaign.run(ranks, factor=3.0 if self.rng.random() < 0.1 else 1.0, status=status)
        for pieces in ({"jobs": job["jobs"]}, {"runs": job["runs"], "scores": verdict(job, 0.0)}):
            for table, columns in pieces.items():
                self.processor.observe(table, columns, 0.0)
            for _ in range(2):
                self.processor.step(0.0)
        return limit, float(job["runs"]["runtime_seconds"][0])

    def limit(self) -> float:
        known = self.forecaster.library.published[Application("lab", "solver")]
        reply = answer(known, Question("solver", 8, params=PARAMS, risk=RISK), self.forecaster.tails("lab"))
        return reply["limit"]["seconds"] if reply.get("limit") else np.nan


def at(tail: float) -> AlikeTails:
    """Tails of which all had this probability."""
    tails = AlikeTails()
    for _ in range(ALIKE + 1):
        tails.add(1.0, tail, 1e9)
    return tails


def test_programs_whose_runs_differ_much_do_not_make_the_limits_of_others_longer():
    rng, tails = np.random.default_rng(1), AlikeTails()
    for tail in rng.random(3 * ALIKE):
        tails.add(0.02, tail, 1e9)
        tails.add(1.0, tail**3, 1e9)
    assert tails.quantile(RISK, 0.03) == pytest.approx(RISK, rel=0.5)
    assert tails.quantile(RISK, 0.8) == pytest.approx(RISK**3, rel=0.5)


def test_of_runs_with_a_heavy_tail_the_share_beyond_the_limit_is_the_risk():
    """The quantile of a normal distribution with their spread is exceeded by one in ten."""
    facility = Facility()
    runs = np.array([facility.run() for _ in range(500)])[150:]
    assert (runs[:, 1] > runs[:, 0]).mean() == pytest.approx(RISK, abs=0.02)


def test_failed_runs_and_the_first_of_a_scale_say_nothing_of_limits_nor_those_of_another_cluster():
    facility, prior = Facility(), AlikeTails().quantile(RISK, 1.0)
    for _ in range(3):
        facility.run()
    assert facility.forecaster.tails("lab").quantile(RISK, 1.0) == prior
    facility.run(status=1)
    assert facility.forecaster.tails("lab").quantile(RISK, 1.0) == prior
    facility.run()
    assert facility.forecaster.tails("lab").quantile(RISK, 1.0) != prior
    assert facility.forecaster.tails("other").quantile(RISK, 1.0) == prior


def test_a_limit_is_not_below_the_quantile_of_the_answer():
    facility = Facility()
    for ranks in (4, 8, 8, 8, 8):
        facility.run(ranks)
    known = facility.forecaster.library.published[Application("lab", "solver")]
    plain, longer, shorter = (
        answer(known, Question("solver", 8, params=PARAMS), tails)["limit"] for tails in (None, at(1e-3), at(0.5))
    )
    assert longer["seconds"] > plain["seconds"] == shorter["seconds"]
    other = answer(known, Question("solver", 16, params=PARAMS), at(1e-3))
    assert other["limit"] == answer(known, Question("solver", 16, params=PARAMS))["limit"]
