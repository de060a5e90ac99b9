from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph_modeler.maxima.recent import SortedWindow

VALUES = st.lists(st.sampled_from([0.0, -0.0, 1.0, 1.5, 2.0]) | st.floats(-1e300, 1e300), max_size=60)


@given(values=VALUES, capacity=st.integers(1, 20))
def test_the_newest_values_are_held_in_order(values, capacity):
    recent = SortedWindow(capacity)
    newest = deque(maxlen=capacity)
    for value in values:
        recent.add(value)
        newest.append(value)
        assert list(recent.ordered) == sorted(newest)


def test_positions_are_interpolated_and_end_at_the_extremes():
    recent = SortedWindow(3)
    for value in (9.0, 4.0, 1.0, 2.0):
        recent.add(value)
    assert [recent.at(p) for p in (-1, 0, 0.25, 1, 1.5, 2, 7)] == [1, 1, 1.25, 2, 3, 4, 4]


def test_capacity_must_hold_a_value():
    with pytest.raises(ValueError, match=r"^capacity is 0, expected at least 1$"):
        SortedWindow(0)
