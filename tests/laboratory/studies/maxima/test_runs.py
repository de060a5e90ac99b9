import math

import numpy as np
import pytest

from barograph_lab.studies.maxima.runs import RunHistory, runtime_interval, runtime_moments, runtime_replicas


def history(seed, runs=6, intervals=300, between=0.05):
    rng = np.random.default_rng(seed)
    levels = rng.normal(1.0, between, runs)
    return RunHistory.of([rng.gumbel(level, 0.02, intervals) for level in levels], rng.uniform(5, 6, runs))


@pytest.mark.parametrize("intervals", [1, 50, 300, 40_000])
def test_replicas_have_the_moments_computed_exactly(intervals):
    past = history(1)
    replicas = 20_000
    drawn = runtime_replicas(past, intervals, replicas, seed=2, inflated=False)
    mean, variance = runtime_moments(past, intervals)
    assert drawn.mean() == pytest.approx(mean, abs=5 * math.sqrt(variance / replicas))
    assert drawn.var() == pytest.approx(variance, rel=0.05)


def test_runs_are_drawn_first_so_that_a_whole_run_is_slow_or_fast():
    past = history(2, between=0.2)
    spread = runtime_replicas(past, 300, seed=1).std()
    bag = RunHistory.of([np.concatenate(past.maxima)] * 2, [past.remainders.mean()] * 2)
    assert spread > 10 * runtime_replicas(bag, 300, seed=1).std()


def test_inflation_corrects_for_few_runs_and_the_error_of_their_mean():
    past = history(3, runs=4)
    plain, wide = (runtime_replicas(past, 300, 4000, seed=1, inflated=inflated) for inflated in (False, True))
    assert wide.std() == pytest.approx(plain.std() * math.sqrt(5 / 3))
    assert wide.mean() == pytest.approx(plain.mean(), rel=0.01)


def test_next_runs_fall_into_the_limits():
    inside, trials = 0, 200
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        levels = rng.normal(1.0, 0.05, 31)
        past = RunHistory.of([rng.gumbel(level, 0.02, 100) for level in levels[:-1]], rng.uniform(5, 6, 30))
        found = runtime_interval(past, 100, seed=seed)
        inside += found.lower <= rng.uniform(5, 6) + rng.gumbel(levels[-1], 0.02, 100).sum() <= found.upper
    assert 0.90 <= inside / trials <= 0.99


def test_results_depend_on_the_seed_and_the_history_is_not_modified():
    past = history(4)
    before = [one.copy() for one in past.maxima]
    first = runtime_interval(past, 200, seed=1)
    assert runtime_interval(past, 200, seed=1) == first
    assert runtime_interval(past, 200, seed=2) != first
    assert first.replicas == 1000
    assert all((one == other).all() for one, other in zip(past.maxima, before, strict=True))


@pytest.mark.parametrize(
    ("maxima", "remainders", "message"),
    [
        ([[1.0]], [1.0], "sample has 1 values, expected at least 2"),
        ([[1.0]], [1.0, 2.0], "there are 1 runs and 2 remainders, expected one for each"),
        ([[1.0], []], [1.0, 2.0], "sample has 0 values, expected at least 1"),
        ([[1.0], [math.nan]], [1.0, 2.0], "sample value 0 is nan, expected finite numbers"),
        ([[1.0], [1.0]], [1.0, -2.0], "remainder 1 is -2.0, expected at least 0"),
    ],
)
def test_bad_histories_are_refused_by_name(maxima, remainders, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        RunHistory.of(maxima, remainders)


def test_bad_counts_are_refused_by_name():
    with pytest.raises(ValueError, match=r"^intervals are 0, expected at least 1$"):
        runtime_replicas(history(1), 0, seed=1)
    with pytest.raises(ValueError, match=r"^replicas are 0, expected at least 1$"):
        runtime_replicas(history(1), 5, 0, seed=1)
