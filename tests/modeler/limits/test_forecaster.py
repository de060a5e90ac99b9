"""Runtimes and limits from jobs that have ended."""

from __future__ import annotations

import math

import numpy as np
import pytest

from barograph_modeler.limits.bounds import SHARE, LimitBounds
from barograph_modeler.limits.density import KNOTS, RuntimeDensity, quantile, tail_at
from barograph_modeler.limits.forecaster import LimitForecaster
from barograph_modeler.limits.job import SubmittedJob
from barograph_modeler.limits.kill_share import KillShare
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
        beyond = tail < tails.quantile(share.share)
        killed += beyond
        share.learn(beyond)
        tails.add(tail)
    assert killed / 20_000 == pytest.approx(0.05, rel=0.05)


def test_no_limit_is_longer_than_what_the_longest_runtimes_and_requests_allow():
    bounds = LimitBounds()
    assert bounds.bound(0.01, 3600) == math.inf
    for i in range(1000):
        bounds.add(500.0 + i % 100, 500 if i % 2 else -1)
    assert bounds.bound(0.1, -1) == 599
    assert bounds.bound(0.1, 7200) == 7200
    assert bounds.bound(0.1, 100) == pytest.approx(119, rel=0.01)
    assert bounds.bound(0.0001, -1) == pytest.approx(599 / (SHARE * 0.0001 * 1001))


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
