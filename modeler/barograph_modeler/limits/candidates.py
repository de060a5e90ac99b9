"""Runtimes that a new job may have, each with numbers that say how likely it is.

Candidates are the runtimes of similar ended jobs, the user's own request, and a coarse scale of all durations for what
has not been seen yet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from barograph_modeler.limits.columns import NAMES, SITUATION, Column
from barograph_modeler.limits.recent_jobs import MAX_LOG_SECONDS, PROGRAM, USER, RecentJobs
from barograph_modeler.maxima.sample import Floats

SCALE: Final = np.arange(MAX_LOG_SECONDS + 1)
NEAR_REQUEST: Final = 0.1
"""Relative difference from the request that counts as none."""
FAR_RUNS: Final = 4.0
"""Log of the runs since a job of another user or program, as if it were 54."""
MAX_DIFFERENCES: Final = np.array([9.0, 9.0, 4.0, 4.0, 5.0, 5.0, 5.0, 5.0])
DIFFERENCE_SCALES: Final = np.array([1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0])
"""Of the columns SITUATION."""
# Positions of features.
SAME: Final = 0
SAME_PROGRAM: Final = 7
SAME_REQUEST: Final = 8
USER_RECENCY: Final = 9
PROGRAM_RECENCY: Final = 10
AGE: Final = 11
DIFFERENCES: Final = 12
HOUR_DIFFERENCE: Final = 20
FAILED: Final = 21
VALUE: Final = 22
OUTLIVED: Final = 30
JOB: Final = 32
FREQUENCY: Final = 42
ON_SCALE: Final = 43
REQUEST: Final = 44
FEATURES: Final = 45


@dataclass(frozen=True, slots=True)
class Candidates:
    """log_seconds: of each candidate. features: FEATURES numbers each, of order 1."""

    log_seconds: Floats
    features: Floats


def candidates(row: Floats, jobs: RecentJobs, running: Floats, now: float) -> Candidates:
    """The candidates for a job at its submission.

    row: the columns before FAILED. running: ascending log seconds for which jobs of its program run already.
    """
    rows = jobs.similar(row)
    asked = row[Column.LOG_REQUESTED : Column.LOG_REQUESTED + 1] if row[Column.REQUESTED] > 0 else np.empty(0)
    x = np.concatenate([rows[:, Column.LOG_SECONDS], SCALE, asked])
    features = np.zeros((x.size, FEATURES))
    seen, scale = len(rows), len(rows) + SCALE.size
    _compare(features[:seen], rows, row, jobs, now)
    features[:, VALUE:OUTLIVED] = _values(x, row)
    features[:, OUTLIVED:JOB] = _outlived(x, running)
    features[:, JOB:FREQUENCY] = _job(row, jobs)
    features[seen:scale, FREQUENCY] = jobs.log_frequencies / 3
    features[seen:scale, ON_SCALE] = 1
    features[scale:, REQUEST] = 1
    return Candidates(x, features)


def _compare(features: Floats, rows: Floats, row: Floats, jobs: RecentJobs, now: float) -> None:
    """How alike ended jobs and the new one are."""
    same = rows[:, NAMES] == row[NAMES]
    program = same[:, Column.USER] & same[:, Column.EXECUTABLE]
    features[:, SAME:SAME_PROGRAM] = same
    features[:, SAME_PROGRAM] = program
    features[:, SAME_REQUEST] = program & same[:, Column.PROCESSORS] & same[:, Column.REQUESTED]
    for at, names, column, mask in (
        (USER_RECENCY, USER, Column.USER_RUNS, same[:, Column.USER]),
        (PROGRAM_RECENCY, PROGRAM, Column.PROGRAM_RUNS, program),
    ):
        runs_since = np.log1p(np.maximum(jobs.runs(names, row) - rows[:, column], 0.0))
        features[:, at] = np.where(mask, runs_since, FAR_RUNS) - 2
    features[:, AGE] = (np.log1p(np.maximum(now - rows[:, Column.ENDED], 0.0) / 60) - 5) / 3
    differences = np.minimum(np.abs(rows[:, SITUATION] - row[SITUATION]), MAX_DIFFERENCES)
    features[:, DIFFERENCES:HOUR_DIFFERENCE] = differences / DIFFERENCE_SCALES
    hours = np.abs(rows[:, Column.HOUR] - row[Column.HOUR])
    features[:, HOUR_DIFFERENCE] = np.minimum(hours, 24 - hours) / 6
    features[:, FAILED] = rows[:, Column.FAILED]


def _values(x: Floats, row: Floats) -> Floats:
    """What each runtime is beside the request, running jobs and the last submission."""
    request, last, since = x - row[Column.LOG_REQUESTED], x - row[Column.LAST_PROGRAM], x - row[Column.SINCE_PROGRAM]
    return np.column_stack(
        [
            np.clip(request, -4, 4) / 2,
            request > 0,
            np.abs(request) < NEAR_REQUEST,
            x < row[Column.LONGEST_RUNNING],
            (x - 8) / 3,
            np.minimum(np.abs(last), 4),
            since < 0,
            np.clip(since, -4, 4) / 2,
        ]
    )


def _outlived(x: Floats, running: Floats) -> Floats:
    """How many running jobs, as a logarithm and as a share, run longer already than each runtime."""
    outlived = running.size - np.searchsorted(running, x, side="right")
    return np.column_stack([np.log1p(outlived) / 2, outlived / max(running.size, 1)])


def _job(row: Floats, jobs: RecentJobs) -> list[float]:
    """The new job itself."""
    angle = 2 * math.pi * row[Column.HOUR] / 24
    return [
        row[Column.SINCE_USER] / 5 - 1,
        row[Column.SINCE_PROGRAM] / 5 - 1,
        row[Column.LONGEST_RUNNING] / 5 - 1,
        min(row[Column.IN_FLIGHT], 10.0) / 5,
        (row[Column.LOG_REQUESTED] - 8) / 2,
        (row[Column.LOG_PROCESSORS] - 4) / 2,
        math.sin(angle),
        math.cos(angle),
        math.log1p(jobs.runs(USER, row)) / 5,
        math.log1p(jobs.runs(PROGRAM, row)) / 3,
    ]
