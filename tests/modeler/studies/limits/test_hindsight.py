"""Runtimes by those of earlier and later similar jobs."""

from __future__ import annotations

import numpy as np
import pytest

from barograph_modeler.limits.job import SubmittedJob
from barograph_modeler.studies.limits import hindsight as module
from barograph_modeler.studies.limits.hindsight import hindsight
from barograph_modeler.studies.limits.logged_job import LoggedJob


def logged(runtimes, users, **asked):
    return [
        LoggedJob(SubmittedJob(float(at), user=user, **asked), float(at), runtime, False)
        for at, (runtime, user) in enumerate(zip(runtimes, users, strict=True))
    ]


def test_a_job_is_known_by_its_neighbours_and_not_by_itself():
    assert hindsight(logged([10.0, 10.0, 900.0, 10.0, 10.0], [1] * 5)) == pytest.approx(10.0)


def test_later_jobs_count_as_earlier_ones_do_and_near_ones_for_more():
    found = hindsight(logged([10.0] * 20 + [80.0, 500.0] + [500.0] * 20, [1] * 42))
    assert found[:19] == pytest.approx([10.0] * 19)
    assert found[22:] == pytest.approx([500.0] * 20)


def test_a_job_that_is_alone_has_the_neighbours_of_the_next_wider_context():
    assert hindsight(logged([10.0, 80.0, 10.0, 10.0], [1, 2, 1, 1])) == pytest.approx(10.0)
    jobs = [*logged([30.0, 30.0], [1, 1], processors=4), *logged([70.0], [1], processors=8)]
    assert hindsight(jobs)[2] == pytest.approx(30.0)


def test_it_does_not_depend_on_how_many_jobs_are_computed_at_a_time(monkeypatch):
    rng = np.random.default_rng(0)
    jobs = logged(rng.lognormal(5, 2, 300).tolist(), rng.integers(0, 9, 300).tolist())
    before = hindsight(jobs)
    monkeypatch.setattr(module, "BLOCK", 7)
    assert (hindsight(jobs) == before).all()
