import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph_modeler.maxima.distribution import Gevs
from barograph_modeler.maxima.fits.bootstrap import pairs_of_replicas, pwm_replicas, resample_counts
from barograph_modeler.maxima.fits.moments import fit_moms
from barograph_modeler.maxima.fits.pwm import fit_pwms


def drawn(k, n, seed):
    return Gevs(np.array([k]), np.array([10.0]), np.array([2.0])).draw(n, np.random.default_rng(seed))[0]


def paired_replicas(x, replicas, *, seed):
    (pair,) = pairs_of_replicas([x], replicas, seed=seed)
    return pair


def table(gevs):
    return np.stack([gevs.shape, gevs.location, gevs.scale])


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-1e3, 1e3, width=16), min_size=15, max_size=60), st.integers(0, 1000))
def test_replicas_are_the_fits_of_the_resamples_written_out(x, seed):
    counts = np.concatenate(list(resample_counts(len(x), 20, seed)))
    resamples = np.stack([np.repeat(np.sort(x), row) for row in counts])
    pwm, mom = paired_replicas(x, 20, seed=seed)
    spread = (np.ptp(resamples, axis=1) > 1e-3 * max(1e-9, np.ptp(x))).nonzero()[0]
    constant = (np.ptp(resamples, axis=1) == 0).nonzero()[0]
    for found, fit in ((pwm, fit_pwms), (mom, fit_moms)):
        expected = table(fit(resamples))
        unit = np.array([[1.0], [max(np.ptp(x), 1.0)], [max(np.ptp(x), 1.0)]])
        assert np.abs((table(found) - expected) / unit)[:, spread] == pytest.approx(0, abs=1e-5)
        assert table(found)[:, constant] == pytest.approx(expected[:, constant], abs=1e-9)


def test_every_value_is_as_likely_as_any_other_in_every_resample():
    n, replicas = 300, 4000  # many chunks
    counts = np.concatenate(list(resample_counts(n, replicas, seed=5)))
    assert counts.shape == (replicas, n)
    assert (counts.sum(axis=1) == n).all()
    # Each count is binomial (n, 1/n): mean 1, variance 1 - 1/n; the mean of 4,000 of them scatters by 0.016.
    assert np.abs(counts.mean(axis=0) - 1).max() < 0.08
    assert counts.var() == pytest.approx(1 - 1 / n, rel=0.01)


def test_same_seed_same_answer_in_whatever_order_the_sample_comes_and_it_is_left_as_it_is():
    x = drawn(-0.1, 200, 1)
    before = x.copy()
    first = table(pwm_replicas(x, 300, seed=7))
    assert (table(pwm_replicas(x[::-1], 300, seed=7)) == first).all()
    assert (table(paired_replicas(x, 300, seed=7)[0]) == first).all()
    assert (table(pwm_replicas(x, 300, seed=8)) != first).any()
    assert (x == before).all()


@pytest.mark.parametrize(("k", "variance"), [(0.0, 0.5633), (0.2, 0.5021)])
def test_spread_of_the_replicas_is_the_standard_error(k, variance):
    # Hosking, Wallis and Wood (1985), table 1: n times the asymptotic variance of the shape.
    n = 800
    errors = [pwm_replicas(drawn(k, n, seed), 400, seed=seed).shape.std() for seed in range(20)]
    assert np.mean(errors) == pytest.approx(math.sqrt(variance / n), rel=0.08)


def test_memory_is_bounded_by_chunks_not_by_replicas():
    x = drawn(0.0, 1000, 3)
    pwm_replicas(x, 10, seed=1)
    tracemalloc.start()
    pwm_replicas(x, 4000, seed=1)  # 4 million draws, 32 MB as one array of integers
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4e6


def test_replicas_without_the_outlier_keep_their_digits():
    bulk = drawn(0.1, 40, 4)
    x = np.append(bulk, 10 + 2e6)
    counts = np.concatenate(list(resample_counts(41, 200, 2)))
    without = counts[:, -1] == 0
    assert 0.2 < without.mean() < 0.6
    resamples = np.stack([np.repeat(np.sort(x), row) for row in counts[without]])
    for found, fit in zip(paired_replicas(x, 200, seed=2), (fit_pwms, fit_moms), strict=True):
        assert table(found)[:, without] == pytest.approx(table(fit(resamples)), rel=1e-4, abs=1e-4)


def test_ticks_and_constants_have_replicas_too():
    assert (table(pwm_replicas([2.5] * 30, 50, seed=1)) == np.array([[0.0], [2.5], [0.0]])).all()
    pwm, mom = paired_replicas([1.0] * 29 + [2.0], 200, seed=1)  # a third of the resamples is constant
    for gevs in (pwm, mom):
        assert np.isfinite(table(gevs)).all()
        assert (gevs.scale[gevs.location == 1.0] == 0).all()
        assert 0.2 < (gevs.scale == 0).mean() < 0.5


def test_bad_arguments_are_refused_by_name():
    with pytest.raises(ValueError, match=r"^replicas are 0, expected at least 1$"):
        pwm_replicas([1.0] * 20, 0, seed=1)
    with pytest.raises(ValueError, match=r"^sample has 14 values, expected at least 15$"):
        pwm_replicas([1.0] * 14, seed=1)
