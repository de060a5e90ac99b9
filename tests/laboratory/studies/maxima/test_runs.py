import math

import numpy as np
import pytest

from barograph_lab.studies.maxima.runs import runtime_interval, runtime_replicas


def past_runs(seed, runs=6, intervals=300, between=0.05):
    rng = np.random.default_rng(seed)
    return [rng.gumbel(level, 0.02, intervals) for level in rng.normal(1.0, between, runs)]


@pytest.mark.parametrize("intervals", [1, 50, 300, 40_000])
def test_replicas_have_the_moments_computed_exactly(intervals):
    past, replicas = past_runs(1), 20_000
    drawn = runtime_replicas(past, intervals, replicas, seed=2, inflated=False)
    means, within = np.array([(x.mean(), x.var()) for x in past]).T
    variance = (intervals * means).var() + (intervals * within).mean()
    assert drawn.mean() == pytest.approx(intervals * means.mean(), abs=5 * math.sqrt(variance / replicas))
    assert drawn.var() == pytest.approx(variance, rel=0.05)


def test_runs_are_drawn_first_so_that_a_whole_run_is_slow_or_fast():
    past = past_runs(2, between=0.2)
    spread = runtime_replicas(past, 300, seed=1).std()
    assert spread > 10 * runtime_replicas([np.concatenate(past)] * 2, 300, seed=1).std()


def test_inflation_corrects_for_few_runs_and_the_error_of_their_mean():
    past = past_runs(3, runs=4)
    plain, wide = (runtime_replicas(past, 300, 4000, seed=1, inflated=inflated) for inflated in (False, True))
    assert wide.std() == pytest.approx(plain.std() * math.sqrt(5 / 3))
    assert wide.mean() == pytest.approx(plain.mean(), rel=0.01)


def test_next_runs_fall_into_the_limits():
    inside, trials = 0, 200
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        levels = rng.normal(1.0, 0.05, 31)
        found = runtime_interval([rng.gumbel(level, 0.02, 100) for level in levels[:-1]], 100, seed=seed)
        inside += found.lower <= rng.gumbel(levels[-1], 0.02, 100).sum() <= found.upper
    assert 0.90 <= inside / trials <= 0.99


def test_results_depend_on_the_seed_and_the_runs_are_not_modified():
    past = past_runs(4)
    before = [one.copy() for one in past]
    first = runtime_interval(past, 200, seed=1)
    assert runtime_interval(past, 200, seed=1) == first
    assert runtime_interval(past, 200, seed=2) != first
    assert first.replicas == 1000
    assert all((one == other).all() for one, other in zip(past, before, strict=True))
