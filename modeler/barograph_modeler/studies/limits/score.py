"""Scores of predicted runtimes and time limits, as schedulers have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.limits.logged_job import LoggedJob
from barograph_modeler.studies.limits.walk import Forecasts


@dataclass(frozen=True)
class LimitScore:
    """Limits at one risk. killed: share of jobs that ran longer. over_request: limit / runtime.

    unused_hours: processor hours asked for beyond the end of jobs.
    """

    risk: float
    killed: float
    median_over_request: float
    mean_over_request: float
    unused_hours: float


@dataclass(frozen=True)
class LimitsScore:
    """Of one predictor for one part of a log. jobs: those with a forecast. reason: why there is none, or empty.

    accuracy: mean of smaller / larger of predicted and true runtime. mae: mean absolute error in seconds.
    """

    predictor: str
    part: str
    jobs: int
    accuracy: float | None
    mae: float | None
    limits: tuple[LimitScore, ...]
    reason: str = ""


class Truth:
    """Runtimes in seconds and processors of jobs, as arrays."""

    def __init__(self, jobs: Sequence[LoggedJob]) -> None:
        self.seconds = np.array([one.runtime for one in jobs])
        self.processors = np.array([max(one.submitted.processors, 1.0) for one in jobs])

    @property
    def parts(self) -> dict[str, slice]:
        """The log and its halves by number of jobs."""
        half = self.seconds.size // 2
        return {"all": slice(None), "first half": slice(0, half), "second half": slice(half, None)}


def accuracies(predicted: Floats, runtimes: Floats) -> Floats:
    """Smaller / larger of both, NaN where there is no forecast. Both above 0, in seconds."""
    return np.asarray(np.minimum(predicted, runtimes) / np.maximum(predicted, runtimes))


def score(predictor: str, forecasts: Forecasts, truth: Truth, risks: Sequence[float]) -> list[LimitsScore]:
    """The scores for all jobs and for each half of the log."""
    return [_score(predictor, part, forecasts, truth, risks, at) for part, at in truth.parts.items()]


def not_computed(predictor: str, reason: str) -> LimitsScore:
    """The score of a predictor that the log does not allow."""
    return LimitsScore(predictor, "all", 0, None, None, (), reason)


def _score(
    predictor: str, part: str, forecasts: Forecasts, truth: Truth, risks: Sequence[float], at: slice
) -> LimitsScore:
    predicted = forecasts.seconds[at]
    known = ~np.isnan(predicted)
    if not known.any():
        return LimitsScore(predictor, part, 0, None, None, (), "no job has a forecast")
    runtimes, processors = truth.seconds[at][known], truth.processors[at][known]
    predicted, limits = predicted[known], forecasts.limits[at][known]
    scores = (_limits(risk, limit, runtimes, processors) for risk, limit in zip(risks, limits.T, strict=True))
    return LimitsScore(
        predictor,
        part,
        int(known.sum()),
        float(accuracies(predicted, runtimes).mean()),
        float(np.abs(predicted - runtimes).mean()),
        tuple(one for one in scores if one is not None),
    )


def _limits(risk: float, limits: Floats, runtimes: Floats, processors: Floats) -> LimitScore | None:
    if np.isnan(limits).any():
        return None
    over = limits / runtimes
    unused = processors * np.maximum(limits - runtimes, 0) / 3600
    return LimitScore(risk, float((over < 1).mean()), float(np.median(over)), float(over.mean()), float(unused.sum()))
