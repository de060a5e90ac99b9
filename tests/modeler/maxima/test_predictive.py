import math
import pickle

import numpy as np
import pytest
from scipy.stats import genextreme

from barograph_modeler.maxima.predictive import Predictive
from barograph_modeler.maxima.runtime import runtime_band

N = 3000


def independent(rng):
    return genextreme.rvs(-0.2, 10.0, 1.0, size=N, random_state=rng)


def autocorrelated(rng):
    x = np.zeros(N)
    for i in range(1, N):
        x[i] = 0.95 * x[i - 1] + rng.normal()
    return np.exp(x / 4)


def ticks(rng):
    return 3.0 + 0.25 * rng.geometric(0.6, size=N)


def shifted(rng):
    return rng.normal(100.0, 1.0, N) + np.where(np.arange(N) < N // 2, 0.0, 40.0)


def bimodal(rng):
    return np.where(rng.random(N) < 0.18, 5.0, 1.0) * rng.lognormal(0.0, 0.05, N)


def trending(rng):
    return 50.0 + np.arange(N) / 100 + rng.normal(size=N)


def shares_outside(values, limits):
    """Below and above the limits in force before each value, of the values that had limits."""
    judged = np.isfinite(limits.lower)
    return (values < limits.lower)[judged].mean(), (values > limits.upper)[judged].mean()


@pytest.mark.parametrize("kind", [independent, autocorrelated, ticks, shifted, bimodal, trending])
def test_95_percent_of_later_values_fall_inside_whatever_the_series_does(kind):
    values = kind(np.random.default_rng(7))
    limits = Predictive().learn(values)
    assert np.isfinite(limits.lower).sum() == N - 3
    # Errors stay within -8 and +13 values a side, less than 0.01 of N.
    assert 1 - sum(shares_outside(values, limits)) == pytest.approx(0.95, abs=0.008)
    assert (limits.lower[3:] <= limits.upper[3:]).all()


def test_each_side_lets_its_own_half_through():
    values = autocorrelated(np.random.default_rng(1))
    assert shares_outside(values, Predictive(level=0.9).learn(values)) == pytest.approx((0.05, 0.05), abs=0.008)


def test_what_one_side_cannot_let_through_the_other_does():
    # 0.6 of the values lie on the lowest tick, so that none can be below the lower limit.
    values = ticks(np.random.default_rng(7))
    below, above = shares_outside(values, Predictive().learn(values))
    assert below == 0
    assert above == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.99])
def test_every_level_is_held(level):
    values = autocorrelated(np.random.default_rng(10))
    limits = Predictive(level).learn(values)
    assert 1 - sum(shares_outside(values, limits)) == pytest.approx(level, abs=0.01)
    assert not (limits.lower > limits.upper).any()


def test_quantiles_of_all_history_miss_what_steered_limits_hold():
    x = trending(np.random.default_rng(2))
    fixed = np.quantile(x[: N // 2], [0.025, 0.975])
    assert ((x[N // 2 :] >= fixed[0]) & (x[N // 2 :] <= fixed[1])).mean() < 0.1
    series = Predictive()
    series.learn(x[: N // 2])
    limits = series.learn(x[N // 2 :])
    assert ((x[N // 2 :] >= limits.lower) & (x[N // 2 :] <= limits.upper)).mean() > 0.94


def test_independent_values_cost_little_width():
    limits = Predictive().learn(independent(np.random.default_rng(3)))
    ideal = genextreme.ppf(0.975, -0.2, 10.0, 1.0) - genextreme.ppf(0.025, -0.2, 10.0, 1.0)
    assert 0.9 < (limits.upper - limits.lower)[500:].mean() / ideal < 1.2


def test_an_old_regime_is_forgotten_after_a_window():
    x = shifted(np.random.default_rng(4))
    limits = Predictive(window=256).learn(x)
    half = N // 2
    assert limits.upper[half] < 110 < limits.upper[half + 60]
    assert limits.lower[half + 60] < 110
    assert (limits.upper - limits.lower)[half + 1000 :].max() < 12


def test_batches_of_any_size_teach_the_same():
    x = bimodal(np.random.default_rng(5))[:700]
    whole, parts = Predictive(), Predictive()
    at_once = whole.learn(x)
    pieces = [parts.learn(piece) for piece in np.split(x, [0, 1, 2, 40, 41, 300])]
    assert np.array_equal(at_once.lower, np.concatenate([piece.lower for piece in pieces]), equal_nan=True)
    assert whole.band() == parts.band()


def test_a_few_runs_have_the_runtime_band_and_fewer_have_none():
    runs = [100.0, 104.0, 99.0, 101.0]
    series = Predictive()
    series.learn(runs[:2])
    assert series.band() is None
    series.learn(runs[2:])
    band, textbook = series.band(), runtime_band(runs)
    assert (band.method, band.samples, band.level) == ("log-t", 4, 0.95)
    assert (band.lower, band.upper) == pytest.approx((textbook.lower, textbook.upper), rel=1e-12)


def test_few_values_that_are_no_durations_are_unknown_until_quantiles_carry():
    series = Predictive()
    series.learn([-1.0, 2.0, 3.0, 1.0])
    assert series.band() is None
    series.learn(np.linspace(-1.0, 3.0, 35))
    assert series.band().method == "tracked"


def test_after_misses_the_lower_limit_of_durations_goes_down_but_not_below_0():
    series = Predictive()
    series.learn(np.linspace(1.0, 2.0, 60))
    limits = series.learn(1.0 / 1.5 ** np.arange(30))
    assert (limits.lower > 0).all()
    assert limits.lower.min() < 1e-3


def test_state_is_bounded_and_survives_a_snapshot():
    rng = np.random.default_rng(6)
    series = Predictive(window=64)
    series.learn(rng.lognormal(size=100))
    size = len(pickle.dumps(series))
    series.learn(rng.lognormal(size=5000))
    assert len(pickle.dumps(series)) <= size + 64
    restored = pickle.loads(pickle.dumps(series))
    later = rng.lognormal(size=200)
    assert np.array_equal(series.learn(later).upper, restored.learn(later).upper)


def test_the_unit_does_not_matter():
    x = independent(np.random.default_rng(8))[:400]
    seconds, micro = Predictive(), Predictive()
    seconds.learn(x)
    micro.learn(x * 2.0**20)
    assert micro.band().lower == pytest.approx(seconds.band().lower * 2.0**20, rel=1e-12)
    assert micro.band().upper == pytest.approx(seconds.band().upper * 2.0**20, rel=1e-12)


def test_constant_values_have_a_band_without_width():
    series = Predictive()
    series.learn(np.full(100, 0.25))
    assert (series.band().lower, series.band().expected, series.band().upper) == (0.25, 0.25, 0.25)


def test_bad_input_is_refused_and_not_learned():
    with pytest.raises(ValueError, match=r"^window is 38 values, expected at least 39 for level 0.95$"):
        Predictive(window=38)
    with pytest.raises(ValueError, match=r"^level is 1, expected a number between 0 and 1, both excluded$"):
        Predictive(level=1)
    series = Predictive()
    with pytest.raises(ValueError, match=r"^sample value 1 is nan, expected finite numbers$"):
        series.learn([1.0, math.nan])
    assert (series.count, series.values.size) == (0, 0)


def test_the_array_given_is_left_as_it_is():
    x = independent(np.random.default_rng(9))[:100]
    before = x.copy()
    Predictive().learn(x)
    assert (x == before).all()
