"""Scores of predicted runtimes and time limits, as schedulers have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from barograph_modeler.limits.job import UNKNOWN
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.limits.logged_job import LoggedJob
from barograph_modeler.studies.limits.walk import Forecasts


@dataclass(frozen=True)
class LimitScore:
    """Limits at one risk. killed: share of jobs that ran longer. over_request: limit / runtime.

    of_one_user: share of these jobs that are of the user with most of them, None if none is of a known user. Where it
    is large, few events decide. unused_hours: processor hours asked for beyond the end of jobs.
    """

    risk: float
    killed: float
    of_one_user: float | None
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
    """Runtimes in seconds, processors and users of jobs, as arrays."""

    def __init__(self, jobs: Sequence[LoggedJob]) -> None:
        self.seconds = np.array([one.runtime for one in jobs])
        self.processors = np.array([max(one.submitted.processors, 1.0) for one in jobs])
        self.users = np.array([one.submitted.user for one in jobs])

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
    runtimes, processors, users = truth.seconds[at][known], truth.processors[at][known], truth.users[at][known]
    predicted, limits = predicted[known], forecasts.limits[at][known]
    scores = (_limits(risk, limit, runtimes, processors, users) for risk, limit in zip(risks, limits.T, strict=True))
    return LimitsScore(
        predictor,
        part,
        int(known.sum()),
        float(accuracies(predicted, runtimes).mean()),
        float(np.abs(predicted - runtimes).mean()),
        tuple(one for one in scores if one is not None),
    )


def _limits(
    risk: float, limits: Floats, runtimes: Floats, processors: Floats, users: npt.NDArray[np.int_]
) -> LimitScore | None:
    if np.isnan(limits).any():
        return None
    over = limits / runtimes
    killed = over < 1
    _, counts = np.unique(users[killed & (users != UNKNOWN)], return_counts=True)
    of_one_user = float(counts.max() / killed.sum()) if counts.size else None
    unused = processors * np.maximum(limits - runtimes, 0) / 3600
    overs = (float(np.median(over)), float(over.mean()))
    return LimitScore(risk, float(killed.mean()), of_one_user, *overs, float(unused.sum()))
