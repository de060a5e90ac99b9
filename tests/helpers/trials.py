"""Simulated jobs before the scorer: with the history that a modeler would have written, cycle by cycle."""

from __future__ import annotations

import numpy as np

from barograph_alerts.processor import Scorer
from barograph_modeler.learning.learner import Learner
from barograph_modeler.pace.windows import Window
from helpers.jobs import Simulation, part, scores_of, verdict


def windows(seconds: list[float]) -> list[Window]:
    """Windows of 10 intervals that took so many seconds."""
    ends = np.cumsum(seconds).tolist()
    return [Window({1: 10}, {1: one}, end - one, end) for one, end in zip(seconds, ends, strict=True)]


def history(simulation: Simulation, runs: int = 5, factor: float = 1.0) -> dict[str, dict]:
    """What the modeler writes after so many runs that it takes for healthy, as columns of the log."""
    learner, written = Learner(), {}
    for _ in range(runs):
        job = simulation.job(slow_from=0, factor=factor)
        for table in ("runs", "jobs", "blocks"):
            learner.observe(table, job[table], simulation.now)
        learner.observe("scores", verdict(job, 0.0), simulation.now)
        for output in learner.step(simulation.now):
            rows = {k: [v] * output.rows if np.isscalar(v) else v for k, v in output.columns.items()}
            written[output.table] = rows
    return written


def judge(scorer: Scorer, job: dict, *, until: int | None = None) -> list[dict]:
    """Feed a job as a live daemon would see it: 200 intervals a cycle, then its end."""
    scorer.observe("jobs", job["jobs"], 0.0)
    scores, stop = [], until or len(job["blocks"]["job"])
    for start in range(0, stop, 200):
        page = part(job["blocks"], start, min(start + 200, stop))
        scorer.observe("blocks", page, 0.0)
        scores += scorer.step(float(page["ended_at"][-1]))
    if until is None:
        scorer.observe("runs", job["runs"], 0.0)
        scores += scorer.step(float(job["blocks"]["ended_at"][-1]))
    return [dict(score.columns) for score in scores_of(scores)]


def prepared(simulation: Simulation, runs: int = 5, **settings: float) -> Scorer:
    scorer = Scorer(**settings)
    for table, columns in history(simulation, runs).items():
        scorer.observe(table, columns, 0.0)
    return scorer
