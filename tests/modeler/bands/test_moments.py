"""Moments of everything, however it was cut into blocks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph_modeler.bands.moments import Blocks, Moments


def reduced(values: np.ndarray, cuts: list[int]) -> Blocks:
    """The values as blocks that end at the cuts, with sums as the log carries them."""
    parts = [part for part in np.split(values, cuts) if part.size]
    columns = [[len(p), p.sum(), (p**2).sum(), (p**3).sum(), p.min(), p.max()] for p in parts]
    return Blocks(*np.array(columns, dtype=np.float64).T)


@settings(max_examples=200, deadline=None)
@given(
    values=st.lists(st.floats(0.5, 2.0), min_size=2, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=10).map(sorted),
    batches=st.integers(1, 5),
)
def test_blocks_in_batches_give_the_moments_of_the_values(values, cuts, batches):
    x = np.array(values)
    blocks = reduced(x, cuts)
    moments = Moments()
    for rows in np.array_split(np.arange(blocks.counts.size), batches):
        moments.add(blocks.select(rows))
    assert moments.count == x.size
    assert moments.total == pytest.approx(x.sum(), rel=1e-12)
    assert moments.variance == pytest.approx(x.var(ddof=1), rel=1e-9, abs=1e-14)
    third = ((x - x.mean()) ** 3).mean()
    assert moments.cubes / moments.count == pytest.approx(third, rel=1e-6, abs=1e-13)
    assert (moments.least, moments.most) == (x.min(), x.max())


def test_single_values_far_from_zero_keep_their_digits():
    x = 1e9 + np.array([1.0, 2.0, 3.0, 10.0])
    whole, single = Moments(), Moments()
    whole.add(Blocks.of_values(x))
    for value in x:
        single.add(Blocks.of_values(np.array([value])))
    for moments in (whole, single):
        assert moments.variance == pytest.approx(np.var([1, 2, 3, 10], ddof=1), rel=1e-6)
        assert moments.skewness == pytest.approx(1.0182337649086284, rel=1e-6)  # scipy.stats.skew([1, 2, 3, 10])


def test_nothing_seen_has_no_moments_and_equal_values_have_no_skewness():
    moments = Moments()
    moments.add(Blocks.of_values(np.empty(0)))
    assert moments.total == 0
    assert math.isnan(moments.mean)
    assert math.isnan(moments.variance)
    moments.add(Blocks.of_values(np.full(5, 0.1)))
    assert moments.variance == 0
    assert math.isnan(moments.skewness)
