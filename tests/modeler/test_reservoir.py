import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph_modeler.reservoir import Reservoir

cuts = st.lists(st.integers(0, 300), max_size=10).map(sorted)


@settings(deadline=None)
@given(cuts, st.integers(1, 50), st.integers(0, 2**32))
def test_same_seed_and_series_give_the_same_content_however_cut(at, capacity, seed):
    series = np.random.default_rng(1).normal(size=300)
    whole, pieces, single = (Reservoir(capacity, seed) for _ in range(3))
    whole.extend(series)
    for piece in np.split(series, at):
        pieces.extend(piece)
    for value in series:
        single.extend([value])
    assert (whole.values == pieces.values).all()
    assert (whole.values == single.values).all()
    assert whole.count == pieces.count == single.count == 300
    assert whole.mean == pytest.approx(series.mean())
    assert single.mean == pytest.approx(series.mean())


def test_every_value_is_held_equally_often():
    held = np.zeros(100)
    for seed in range(3000):
        reservoir = Reservoir(10, seed)
        reservoir.extend(np.arange(100.0))
        held[reservoir.values.astype(int)] += 1
    # Binomial with n = 3000, p = 0.1: standard deviation 16.4; 100 of them stay within 4.5 of those.
    assert np.abs(held - 300).max() < 75
    assert np.abs(held.reshape(4, 25).mean(axis=1) - 300).max() < 15


def test_below_capacity_everything_is_held_in_ascending_order():
    reservoir = Reservoir(5, 0)
    reservoir.extend([3.0, 1.0])
    reservoir.extend([])
    assert reservoir.values.tolist() == [1.0, 3.0]
    reservoir.values[0] = 99.0
    assert reservoir.values.tolist() == [1.0, 3.0]


def test_empty_reservoir_has_no_mean():
    assert math.isnan(Reservoir(1, 0).mean)
    assert Reservoir(1, 0).values.size == 0


def test_mean_keeps_its_digits_on_a_high_level():
    reservoir = Reservoir(2, 0)
    for value in (1e9 + 1, 1e9 + 2, 1e9 + 3):
        reservoir.extend([value])
    assert reservoir.mean - 1e9 == pytest.approx(2.0, abs=1e-6)


def test_bad_input_is_refused_and_changes_nothing():
    with pytest.raises(ValueError, match=r"^reservoir capacity is 0, expected at least 1$"):
        Reservoir(0, 0)
    reservoir = Reservoir(5, 0)
    with pytest.raises(ValueError, match=r"^sample value 1 is inf, expected finite numbers$"):
        reservoir.extend([1.0, math.inf])
    assert reservoir.count == 0
