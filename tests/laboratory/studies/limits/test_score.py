"""Shares of jobs that exceed their limits."""

from __future__ import annotations

import numpy as np
import pytest

from barograph_lab.studies.limits.logged_job import UNKNOWN, LoggedJob, SubmittedJob
from barograph_lab.studies.limits.score import Truth, score
from barograph_lab.studies.limits.walk import Forecasts


@pytest.mark.parametrize(
    ("users", "bursts"),
    [
        ([1, 1, 1, 2, 2, 3, 3, 3], (2, 2)),
        ([UNKNOWN, UNKNOWN, 1, UNKNOWN, 2, 3, 3, 3], (1, 1)),
        ([UNKNOWN] * 8, (None, None)),
    ],
    ids=["two before the first of them exceeds its limit", "unknown users are nobody", "no user is known"],
)
def test_jobs_killed_that_were_submitted_before_any_of_them_exceeded_its_limit_are_a_burst(users, bursts):
    """Limits are 100 s, and the first four jobs run for longer: the first from 5 s to its limit at 105 s."""
    runtimes = [101.0, 200.0, 300.0, 400.0, 50.0, 100.0, 10.0, 99.0]
    submitted = [0.0, 105.0, 206.0, 207.0, 300.0, 300.0, 300.0, 300.0]
    jobs = [
        LoggedJob(SubmittedJob(at, user=user), at + 5.0, seconds, False)
        for at, user, seconds in zip(submitted, users, runtimes, strict=True)
    ]
    found = score("any", Forecasts(np.full(8, 100.0), np.full((8, 1), 100.0)), Truth(jobs), [0.1])
    everything, first, second = (one.limits[0] for one in found)
    assert (everything.killed, everything.burst) == (0.5, bursts[0])
    assert (first.killed, first.burst) == (1.0, bursts[1])
    assert (second.killed, second.burst) == (0.0, None if bursts[0] is None else 0)
