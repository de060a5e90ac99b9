"""The law of one part over ranks and size."""

import numpy as np
import pytest

from barograph_modeler.scaling.history import Runs
from barograph_modeler.studies.regions.trend import Trends

ONE = np.ones(1)


def median(trends, problem, ranks, sizes=ONE):
    return float(np.exp(trends.at(problem, ranks, sizes).quantile(0.5)))


@pytest.mark.parametrize("exponent", [-1.1, -0.66, 0.0, 0.3])
def test_a_power_law_goes_on(exponent):
    p = np.array([2.0, 4, 8, 16, 32])
    trends = Trends({"a": Runs.of(p, 50 * p**exponent)})
    assert median(trends, "a", 256) == pytest.approx(50 * 256**exponent, rel=0.1)


def test_a_curve_that_bends_goes_on_bending():
    p = np.array([2.0, 4, 8, 16, 32])
    trends = Trends({"a": Runs.of(p, 50 / p + 2)})
    straight = (50 / 32 + 2) ** 2 / (50 / 16 + 2)
    assert median(trends, "a", 64) > straight * 1.03


def test_large_problems_on_many_ranks_follow_small_ones_on_few():
    """Time is a function of the work per rank with a step at 64 per rank, which the large size was never seen below."""

    def law(p, n):
        load = n / p
        return load**0.8 + 30 / (1 + load / 64) + 0.2 * np.log2(n)

    rows = [(p, n) for n in (512, 1024, 2048, 8192) for p in (4, 8, 16, 32, 64) if n < 8192 or p <= 32]
    p, n = np.array(rows, dtype=float).T
    trends = Trends({"a": Runs.of(p, law(p, n), size=n)})
    alone = Trends({"a": Runs.of(p[n == 8192], law(p, n)[n == 8192])})
    expected = law(512, 8192)
    error = abs(median(trends, "a", 512, np.array([8192.0])) / expected - 1)
    assert error < 0.1
    assert error < abs(median(alone, "a", 512) / expected - 1) / 2


def test_limits_hold_the_next_scales_of_noisy_power_laws():
    rng = np.random.default_rng(7)
    inside = []
    for _ in range(60):
        p = 2.0 ** np.arange(7)
        seconds = 80 * p ** rng.uniform(-1, 0) * np.exp(0.05 * rng.normal(size=7))
        mixture = Trends({"a": Runs.of(p[:5], seconds[:5])}).at("a", p[6], ONE)
        inside.append(mixture.quantile(0.025) <= np.log(seconds[6]) <= mixture.quantile(0.975))
    assert np.mean(inside) > 0.9
