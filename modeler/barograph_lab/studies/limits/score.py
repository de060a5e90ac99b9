"""Scores of predicted runtimes and time limits, as schedulers have them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from barograph_lab.studies.limits.logged_job import UNKNOWN, LoggedJob
from barograph_lab.studies.limits.walk import Forecasts
from barograph_modeler.maxima.sample import Floats


@dataclass(frozen=True)
class LimitScore:
    """Limits at one risk. jobs: those that have one. killed: share of them that ran longer. over_request: limit over
    runtime.

    burst: the most of these jobs that one user had submitted before any of them exceeded its limit, None if users are
    unknown: no limit could follow. unused_hours: processor hours asked for beyond the end of jobs.
    """

    risk: float
    jobs: int
    killed: float
    burst: int | None
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
    """Runtimes in seconds, processors and users of jobs, and when they were submitted and started, as arrays."""

    def __init__(self, jobs: Sequence[LoggedJob]) -> None:
        self.seconds = np.array([one.runtime for one in jobs])
        self.processors = np.array([max(one.submitted.processors, 1.0) for one in jobs])
        self.users = np.array([one.submitted.user for one in jobs])
        self.submitted = np.array([one.submitted.submitted for one in jobs])
        self.started = np.array([one.started for one in jobs])

    @property
    def parts(self) -> dict[str, slice]:
        """The log and its halves by number of jobs."""
        half = self.seconds.size // 2
        return {"all": slice(None), "first half": slice(0, half), "second half": slice(half, None)}

    def largest_burst(self, limits: Floats, killed: npt.NDArray[np.intp]) -> int | None:
        """The most jobs of one user that were submitted before any of them exceeded its limit; None without users.

        limits: seconds, by job. killed: positions of the jobs that exceed theirs, in order of submission.
        """
        if (self.users == UNKNOWN).all():
            return None
        counts: dict[int, int] = {}
        deadlines: dict[int, float] = {}
        largest = 0
        for at in killed.tolist():
            user, passes = int(self.users[at]), float(self.started[at] + limits[at])
            if user == UNKNOWN:
                continue
            if self.submitted[at] > deadlines.get(user, math.inf):
                del counts[user], deadlines[user]
            counts[user] = counts.get(user, 0) + 1
            deadlines[user] = min(deadlines.get(user, math.inf), passes)
            largest = max(largest, counts[user])
        return largest


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
    rows = np.arange(truth.seconds.size)[at][known]
    predicted, runtimes = predicted[known], truth.seconds[rows]
    scores = (_limits(risk, limits, truth, rows) for risk, limits in zip(risks, forecasts.limits.T, strict=True))
    return LimitsScore(
        predictor,
        part,
        rows.size,
        float(accuracies(predicted, runtimes).mean()),
        float(np.abs(predicted - runtimes).mean()),
        tuple(one for one in scores if one is not None),
    )


def _limits(risk: float, limits: Floats, truth: Truth, rows: npt.NDArray[np.intp]) -> LimitScore | None:
    """limits: of all jobs. rows: those that are scored."""
    rows = rows[~np.isnan(limits[rows])]
    if not rows.size:
        return None
    over = limits[rows] / truth.seconds[rows]
    killed = over < 1
    unused = truth.processors[rows] * np.maximum(limits[rows] - truth.seconds[rows], 0) / 3600
    overs = (float(np.median(over)), float(over.mean()))
    burst = truth.largest_burst(limits, rows[killed])
    return LimitScore(risk, rows.size, float(killed.mean()), burst, *overs, float(unused.sum()))
