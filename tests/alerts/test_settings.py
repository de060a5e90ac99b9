"""What a site may set: how applications are judged, and what metrics tell of their jobs."""

from __future__ import annotations

from typing import Any

from prometheus_client.metrics_core import Metric

from barograph_alerts.export.exporter import AlertsExporter
from barograph_alerts.processor import Scorer
from barograph_modeler.learning.learner import Learner
from helpers.jobs import Simulation, verdict


def prepared(simulation: Simulation) -> Scorer:
    """A scorer that knows five healthy runs."""
    scorer, learner = Scorer(), Learner()
    for _ in range(5):
        job = simulation.job()
        for table in ("jobs", "blocks", "runs"):
            learner.observe(table, job[table], simulation.now)
        learner.observe("scores", verdict(job, 0.0), simulation.now)
        for output in learner.step(simulation.now):
            if output.table == "paces":
                scorer.observe("paces", {name: [value] for name, value in output.columns.items()}, simulation.now)
    return scorer


def judge(scorer: Scorer, job: dict[str, Any], *, ended: bool = True) -> str:
    """The last sentence that is written of a job."""
    for table in ("jobs", "blocks", *(["runs"] if ended else [])):
        scorer.observe(table, job[table], Simulation.now)
    *_, last = scorer.step(Simulation.now)
    return str(last.columns["state"])


def test_an_application_has_its_own_margin_from_the_next_job_on() -> None:
    simulation = Simulation()
    scorer = prepared(simulation)
    slow = simulation.job(slow_from=0, factor=1.3)
    app = slow["jobs"]["app"][0]
    assert judge(scorer, slow) == "slow"
    begun = simulation.job(slow_from=0, factor=1.3)
    assert judge(scorer, begun, ended=False) == "slow"
    scorer.judge_by(alpha=0.01, margin=0.05, applications={app: {"margin": 0.5}, "other": {"margin": 0.0}})
    assert judge(scorer, simulation.job(slow_from=0, factor=1.3)) == "inconclusive"
    assert judge(scorer, begun) == "slow", "a job on monitor keeps the bound it began with"
    scorer.judge_by(alpha=0.01, margin=0.05, applications={"other": {"margin": 0.5}})
    assert judge(scorer, simulation.job(slow_from=0, factor=1.3)) == "slow"


def test_metrics_name_the_user_only_where_the_site_says_so() -> None:
    simulation = Simulation()
    scorer = prepared(simulation)
    job = simulation.job(slow_from=0, factor=2.0)
    user = job["jobs"]["user"][0]
    judge(scorer, job, ended=False)
    exporter = AlertsExporter(scorer, lambda: Simulation.now)

    def alarm() -> dict[str, str]:
        families: dict[str, Metric] = {family.name: family for family in exporter.collect()}
        (sample,) = families["barograph_job_alarm_info"].samples
        assert (sample.labels["state"], sample.labels["node"]) == ("slow", "n1")
        return sample.labels

    assert user
    assert "user" not in alarm()
    exporter.labels = ("user",)
    assert alarm()["user"] == user
