"""One class: its band, its moments, and the regimes it leaves behind."""

from __future__ import annotations

import numpy as np
import pytest

from barograph_modeler.bands.class_model import REGIMES, WINDOW, ClassModel, fit_gev, fit_gevs
from barograph_modeler.bands.moments import Blocks
from barograph_modeler.bands.regime import Regime
from barograph_modeler.maxima.distribution import Gevs


def learn(interval: ClassModel, values: np.ndarray, start: int = 0) -> list[Regime]:
    """Learn values that came one per second from `start`, in pieces."""
    closed = []
    for at in range(0, values.size, 37):
        piece = values[at : at + 37]
        closed += interval.learn(Blocks.of_values(piece), np.arange(start + at, start + at + piece.size, dtype=float))
    return closed


def correlated(n: int, seed: int, rho: float = 0.7, deviation: float = 0.03) -> np.ndarray:
    """exp of an AR(1) process: lognormal around 1 with this deviation of the logarithm."""
    noise = np.random.default_rng(seed).normal(0, np.sqrt(1 - rho**2), n)
    logs = [0.0]
    for step in noise[1:]:
        logs.append(rho * logs[-1] + step)
    return np.exp(deviation * np.array(logs))


@pytest.mark.parametrize("factor", [0.9, 1.1, 1.5])
def test_a_lasting_change_of_level_closes_the_regime_and_the_next_band_is_of_what_follows(factor):
    interval = ClassModel()
    values = correlated(4000, 1) * np.where(np.arange(4000) < 3000, 1.0, factor)
    assert learn(interval, values[:3000]) == []
    interval.refit(0)
    before = interval.bands[0]
    (regime,) = learn(interval, values[3000:], 3000)
    assert 3000 <= regime.until < 3300
    assert regime.since == 0
    assert (regime.lower, regime.upper) == (before.lower, before.upper)
    assert regime.moments.mean == pytest.approx(1.0, rel=0.02)
    assert regime.next_level == pytest.approx(factor, rel=0.04)
    assert interval.since == regime.until
    assert interval.moments.count + regime.moments.count == 4000
    interval.refit(0)
    assert interval.bands[0].expected == pytest.approx(factor, rel=0.02)
    assert interval.inside(values[3500:]) / 500 == pytest.approx(0.95, abs=0.04)


@pytest.mark.parametrize("rho", [0.0, 0.7, 0.9])
def test_stationary_noise_closes_no_regime(rho):
    assert sum(len(learn(ClassModel(), correlated(5000, seed, rho))) for seed in range(5)) == 0


def test_a_small_change_or_a_single_outlier_closes_no_regime():
    values = correlated(4000, 1, 0.0, 0.01) * np.where(np.arange(4000) < 2000, 1.0, 1.03)
    values[3000] = 1e6
    assert learn(ClassModel(), values) == []


def test_no_more_than_the_last_regimes_are_kept():
    interval = ClassModel()
    closed = learn(interval, correlated(800 * 12, 2) * np.repeat(1.5 ** np.arange(12), 800))
    assert len(closed) > REGIMES
    assert interval.regimes == tuple(closed[-REGIMES:])


def test_blocks_of_many_go_into_the_moments_and_not_into_the_window():
    interval = ClassModel()
    counts, sums = [1.0, 4.0, 1.0], [2.0, 8.0, 4.0]
    squares, cubes = [4.0, 18.0, 16.0], [8.0, 44.0, 64.0]
    least, most = [2.0, 1.0, 4.0], [2.0, 3.0, 4.0]  # the values: 2; 1, 2, 2, 3; 4
    blocks = Blocks(*map(np.array, (counts, sums, squares, cubes, least, most)))
    interval.learn(blocks, np.array([1.0, 2.0, 3.0]))
    assert interval.history.values.tolist() == [2.0, 4.0]
    assert (interval.moments.count, interval.moments.total, interval.seconds) == (6, 14.0, 14.0)
    assert interval.moments.variance == pytest.approx(np.var([2, 1, 2, 2, 3, 4], ddof=1))
    assert (interval.moments.least, interval.moments.most) == (1.0, 4.0)


def test_the_gev_is_of_the_window_and_trusted_only_where_both_fits_agree():
    gev = Gevs(np.array([0.1]), np.array([10.0]), np.array([1.0]))
    sample = gev.draw(WINDOW, np.random.default_rng(3))[0]
    interval, mixture = ClassModel(), ClassModel()
    learn(interval, np.concatenate([sample + 0.01, sample]))
    learn(mixture, np.where(np.arange(WINDOW) % 6 == 0, 60.0, 10.0) + sample / 100)
    for one in (interval, mixture):
        one.refit(0)
        assert [band.method for band in one.bands] == ["tracked", "gev", "bootstrap"]
    assert interval.trusted
    assert interval.bands[1].samples == WINDOW
    assert interval.bands[1].gev.location == pytest.approx(10.0, abs=0.2)
    assert not mixture.trusted


def test_fits_become_rarer_as_the_history_grows():
    interval = ClassModel()
    due = []
    for n, value in enumerate(correlated(600, 4), 1):
        interval.learn(Blocks.of_values(np.array([value])), np.array([float(n)]))
        if interval.due:
            due.append(n)
            interval.refit(0)
    assert due[:4] == [1, 2, 3, 4]
    assert 15 < len(due) < 40
    assert np.diff(due)[-3:].tolist() == [64, 64, 64]


def test_windows_of_several_sizes_are_fitted_together_as_each_alone():
    rng = np.random.default_rng(2)
    windows = [rng.lognormal(0, 0.1, size) for size in (64, 8, 256, 64, 15)]
    assert fit_gevs(windows, 1) == [fit_gev(one, 1) for one in windows]
