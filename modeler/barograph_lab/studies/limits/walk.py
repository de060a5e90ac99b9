"""A job log in order of time: each job is predicted at its submission, from the jobs that have ended by then."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from barograph_lab.studies.limits.logged_job import LoggedJob
from barograph_lab.studies.limits.rivals import LimitPredictor
from barograph_modeler.maxima.sample import Floats


@dataclass(frozen=True)
class Forecasts:
    """Of one predictor. seconds: by job, NaN where there is none. limits: by job and risk, likewise."""

    seconds: Floats
    limits: Floats


def in_order(jobs: Iterable[LoggedJob]) -> list[LoggedJob]:
    """In order of submission; jobs of one second stay as in the log."""
    return sorted(jobs, key=lambda one: one.submitted.submitted)


def walk(jobs: Sequence[LoggedJob], predictor: LimitPredictor, risks: int, positions: Iterable[int]) -> Forecasts:
    """The forecasts for jobs in order of submission. positions: of all jobs in order; as they are used up, time passes.

    Starts and ends up to the second of a submission come before it.
    """
    seconds, limits = np.full(len(jobs), np.nan), np.full((len(jobs), risks), np.nan)
    events: list[tuple[float, bool, int]] = []
    for at in positions:
        job = jobs[at]
        while events and events[0][0] <= job.submitted.submitted:
            now, ends, number = heapq.heappop(events)
            if ends:
                predictor.end(number, now, jobs[number].runtime, jobs[number].failed)
            else:
                predictor.start(number, now)
        if (forecast := predictor.submit(at, job.submitted)) is not None:
            seconds[at] = forecast.seconds
            limits[at, : len(forecast.limits)] = forecast.limits
        heapq.heappush(events, (job.started, False, at))
        heapq.heappush(events, (job.ended, True, at))
    return Forecasts(seconds, limits)
