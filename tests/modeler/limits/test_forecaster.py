"""Runtimes and limits from jobs that have ended."""

from __future__ import annotations

import math

import numpy as np
import pytest

from barograph_modeler.limits.bounds import GRACE_SECONDS, SHARE, LimitBounds
from barograph_modeler.limits.deadlines import SPARE, Deadlines
from barograph_modeler.limits.density import KNOTS, RuntimeDensity, quantile, tail_at
from barograph_modeler.limits.forecaster import LimitForecaster
from barograph_modeler.limits.in_flight import JobsInFlight
from barograph_modeler.limits.job import UNKNOWN, SubmittedJob
from barograph_modeler.limits.kill_share import BATCH_SHARE, MAX_TOO_MANY, KillShare
from barograph_modeler.limits.weights import WIDTHS
from barograph_modeler.maxima.tails import RecentTails


def mixture(seed):
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(40 * WIDTHS.size, 0.3)).reshape(40, WIDTHS.size)
    return rng.uniform(0, 16, 40), weights


@pytest.mark.parametrize("seed", range(5))
def test_the_best_runtime_has_the_largest_mean_accuracy_over_drawn_runtimes(seed):
    x, weights = mixture(seed)
    rng = np.random.default_rng(seed + 100)
    drawn = rng.choice(weights.size, 20_000, p=weights.ravel())
    times = x[drawn // WIDTHS.size] + WIDTHS[drawn % WIDTHS.size] * rng.laplace(size=drawn.size)
    accuracy = [np.exp(-np.abs(times - point)).mean() for point in np.arange(0, 16, 0.05)]
    best = np.exp(-np.abs(times - RuntimeDensity(x, weights).best())).mean()
    assert best > max(accuracy) - 0.002


@pytest.mark.parametrize("seed", range(5))
def test_the_tail_is_that_of_the_mixture_and_the_quantile_inverts_it(seed):
    x, weights = mixture(seed)
    log_tail = RuntimeDensity(x, weights).log_tail()
    z = (KNOTS[:, None, None] - x[:, None]) / WIDTHS
    survival = np.where(z > 0, np.exp(-np.abs(z)) / 2, 1 - np.exp(-np.abs(z)) / 2)
    assert np.exp(log_tail) == pytest.approx((survival * weights).sum(axis=(1, 2)), abs=1e-9)
    for tail in (0.5, 0.1, 0.01):
        assert tail_at(log_tail, quantile(log_tail, tail)) == pytest.approx(tail, rel=1e-6)


def test_a_steered_share_holds_where_the_scores_are_wrong():
    """Half of the runtimes are beyond all that the tails of before had."""
    rng = np.random.default_rng(0)
    tails, share, killed = RecentTails(), KillShare(0.05), 0
    for i in range(20_000):
        tail = rng.random() ** (4 if i > 10_000 else 1)
        beyond = tail < tails.quantile(share.share())
        killed += beyond
        share.learn(beyond)
        tails.add(tail)
    assert killed / 20_000 == pytest.approx(0.05, rel=0.05)


def test_jobs_killed_too_many_at_once_are_made_up_for():
    """Like jobs that are submitted together exceed their limits together."""
    rng = np.random.default_rng(1)
    tails, share, killed = RecentTails(), KillShare(0.05), int(MAX_TOO_MANY) // 2
    for _ in range(killed):
        share.learn(True)
    for _ in range(20_000):
        tail = rng.random()
        beyond = tail < tails.quantile(share.share())
        killed += beyond
        share.learn(beyond)
        tails.add(tail)
    assert killed / (20_000 + MAX_TOO_MANY // 2) == pytest.approx(0.05, rel=0.05)


def test_of_a_batch_no_more_are_expected_to_exceed_their_limits_than_the_promise_can_bear():
    share = KillShare(0.01)
    assert share.share(0) == share.share(14) == 0.01
    assert 50 * share.share(49) == pytest.approx(15 * 0.01)
    for _ in range(20_000):
        share.learn(False)
    borne = BATCH_SHARE * 0.01 * 20_000
    assert share.share(int(borne) - 1) == share.share(0)
    assert 100 * share.share(99) == pytest.approx(borne * share.share(0))


def test_a_batch_is_what_a_user_has_submitted_since_the_newest_job_with_a_known_outcome():
    jobs = JobsInFlight()
    for key, user in enumerate((1, 1, 2, 1, UNKNOWN)):
        jobs.submit(key, (user, 7), float(key))
    assert [jobs.batch(user) for user in (1, 2, 3, UNKNOWN)] == [3, 1, 0, 0]
    jobs.end(1)
    assert jobs.batch(1) == 1
    jobs.end(0)
    jobs.remove(3)
    assert jobs.batch(1) == 1
    jobs.submit(5, (1, 8), 5.0)
    assert jobs.batch(1) == 2


def test_the_later_jobs_of_a_batch_have_longer_limits_until_one_has_ended():
    forecaster, rng = LimitForecaster((0.05,)), np.random.default_rng(2)

    def submit(key, at):
        return forecaster.submit(key, SubmittedJob(at, user=1, executable=1)).limits[0]

    for i in range(500):
        submit(i, 1000.0 * i)
        forecaster.start(i, 1000.0 * i)
        forecaster.end(i, 1000.0 * i + 900, rng.lognormal(5, 1))
    limits = [submit(500 + i, 1e6) for i in range(300)]
    assert limits[-1] > 1.2 * limits[0]
    forecaster.start(799, 1e6)
    forecaster.end(799, 1e6 + 150, 150.0)
    assert submit(800, 1e6 + 150) < limits[-1] / 1.2


def test_limits_pass_in_order_of_time_and_once_each():
    deadlines = Deadlines()
    deadlines.start("a", 0.0, (100.0, 50.0, 20.0))
    deadlines.start("b", 10.0, (15.0, 200.0, 5.0))
    assert list(deadlines.passed(10.0)) == []
    assert list(deadlines.passed(26.0)) == [2, 2, 0]
    assert list(deadlines.passed(50.0)) == []
    assert deadlines.end("a") == {0, 1}
    deadlines.start("a", 60.0, (30.0,))
    assert list(deadlines.passed(100.0)) == [0]
    assert deadlines.end("a") == set()
    assert deadlines.end("a") is None
    assert deadlines.end("b") == {1}
    assert list(deadlines.passed(1e9)) == []


def test_deadlines_of_ended_jobs_are_removed():
    deadlines = Deadlines()
    for key in range(10 * SPARE):
        deadlines.start(key, float(key), (1e9,))
        deadlines.end(key)
    assert len(deadlines._heap) <= SPARE + 2


def test_a_job_that_runs_beyond_its_limits_lengthens_those_of_the_next_before_it_ends():
    """The later jobs of a burst are submitted while the first run."""

    def last_limit(*, starts):
        forecaster = LimitForecaster((0.3,))
        for i in range(400):
            forecaster.submit(i, SubmittedJob(1000.0 * i, user=1 + i % 3))
            forecaster.start(i, 1000.0 * i)
            forecaster.end(i, 1000.0 * i + 900, 20.0 * (1 + i % 40))
        for i in range(400, 500):
            forecaster.submit(i, SubmittedJob(1e6, user=9))
            if starts:
                forecaster.start(i, 1e6)
        return forecaster.submit(500, SubmittedJob(1.01e6, user=7)).limits[0]

    assert last_limit(starts=True) > 1.2 * last_limit(starts=False)


def test_running_jobs_that_have_outlived_all_earlier_runs_lengthen_the_forecast():
    def forecast(elapsed):
        forecaster, rng = LimitForecaster(), np.random.default_rng(0)
        for i in range(300):
            forecaster.submit(i, SubmittedJob(1000.0 * i, user=1 + i % 3, executable=1))
            forecaster.start(i, 1000.0 * i)
            forecaster.end(i, 1000.0 * i + 900, rng.choice([60.0, 60.0, 60.0, 60.0, 5000.0]))
        for i in range(300, 360):
            forecaster.submit(i, SubmittedJob(1e6, user=1, executable=1))
            forecaster.start(i, 1e6)
        return forecaster.submit(360, SubmittedJob(1e6 + elapsed, user=1, executable=1)).seconds

    assert forecast(10.0) == pytest.approx(60, rel=0.1)
    assert forecast(1000.0) > 1000


def test_no_limit_is_longer_than_what_the_longest_runtimes_and_requests_allow():
    bounds = LimitBounds()
    assert bounds.bound(0.01, 3600) == math.inf
    for i in range(1000):
        bounds.add(500.0 + i % 100, 500 if i % 2 else -1)
    assert bounds.bound(0.1, -1) == 599
    assert bounds.bound(0.1, 7200) == 7200 + GRACE_SECONDS
    assert bounds.bound(0.1, 500) == pytest.approx(595, rel=0.01)
    assert bounds.bound(0.0001, -1) == pytest.approx(599 / (SHARE * 0.0001 * 1001))


def test_where_requests_hold_a_limit_is_near_the_request_from_few_jobs_on():
    bounds = LimitBounds()
    for i in range(99):
        bounds.add(60.0 + i, 3600)
    bounds.add(50_000.0, 86_400)
    assert bounds.bound(0.01, 3600) == pytest.approx(3600 / (SHARE * 0.01 * 101))
    for _ in range(400):
        bounds.add(60.0, 3600)
    assert bounds.bound(0.01, 3600) == pytest.approx(3600 + GRACE_SECONDS)


@pytest.mark.parametrize("risk", [0.0, 1.0, math.nan])
def test_a_risk_is_between_0_and_1(risk):
    with pytest.raises(ValueError, match=f"risk is {risk}, expected a number between 0 and 1"):
        KillShare(risk)


def test_a_job_in_flight_is_not_submitted_again():
    forecaster = LimitForecaster()
    forecaster.submit("a", SubmittedJob(0.0))
    with pytest.raises(ValueError, match="job a is in flight already, expected a new one"):
        forecaster.submit("a", SubmittedJob(1.0))
    forecaster.discard("a")
    forecaster.submit("a", SubmittedJob(2.0))


def test_repeats_of_a_run_become_the_forecast_and_the_limits_ascend_with_less_risk():
    forecaster = LimitForecaster()
    forecast = None
    for i in range(300):
        job = SubmittedJob(1000.0 * i, processors=8, requested=3600, user=1 + i % 2, executable=5)
        forecast = forecaster.submit(i, job)
        forecaster.start(i, job.submitted)
        forecaster.end(i, job.submitted + 900, 700.0 if i % 2 else 90.0)
    assert forecast.seconds == pytest.approx(700, rel=0.01)
    assert forecast.limits[0] >= forecast.limits[1] >= forecast.limits[2] > 90
    assert forecast.limits[0] >= 700
