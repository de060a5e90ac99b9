"""Shares of jobs that exceed their limits."""

from __future__ import annotations

import numpy as np
import pytest

from barograph_modeler.limits.job import UNKNOWN, SubmittedJob
from barograph_modeler.studies.limits.logged_job import LoggedJob
from barograph_modeler.studies.limits.score import Truth, score
from barograph_modeler.studies.limits.walk import Forecasts


@pytest.mark.parametrize(
    ("users", "of_one"),
    [([1, 1, 1, 2, 2, 3, 3, 3], 3 / 4), ([1, 1, UNKNOWN, UNKNOWN, 2, 3, 3, 3], 1 / 2), ([UNKNOWN] * 8, None)],
    ids=["of most of them", "unknown users are nobody", "no user is known"],
)
def test_how_many_of_the_jobs_killed_are_of_one_user(users, of_one):
    """Limits are 100 s, and the first four jobs run for longer."""
    runtimes = [101.0, 200.0, 300.0, 400.0, 50.0, 100.0, 10.0, 99.0]
    jobs = [LoggedJob(SubmittedJob(0.0, user=user), 0.0, one, False) for user, one in zip(users, runtimes, strict=True)]
    found = score("any", Forecasts(np.full(8, 100.0), np.full((8, 1), 100.0)), Truth(jobs), [0.1])
    everything, first, second = (one.limits[0] for one in found)
    assert (everything.killed, everything.of_one_user) == (0.5, of_one)
    assert (first.killed, first.of_one_user) == (1.0, of_one)
    assert (second.killed, second.of_one_user) == (0.0, None)
