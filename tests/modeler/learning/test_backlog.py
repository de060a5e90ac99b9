"""Whose turn it is to be fitted."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph_modeler.learning.backlog import Backlog


def test_the_highest_priority_goes_first_and_every_second_turn_is_the_longest_waiting_ones():
    backlog = Backlog()
    for class_id in range(6):
        backlog.add(("w", class_id), class_id / 10)
    assert [backlog.pop() for _ in range(6)] == [("w", class_id) for class_id in (5, 0, 4, 1, 3, 2)]
    assert backlog.pop() is None


def test_a_new_priority_counts_and_a_discarded_class_has_no_turn():
    backlog = Backlog()
    for class_id in range(3):
        backlog.add(("w", class_id), 0.5 - class_id / 10)
    backlog.add(("w", 2), 0.9)
    backlog.discard(("w", 0))
    backlog.discard(("w", 7))
    assert [backlog.pop(), backlog.pop(), backlog.pop()] == [("w", 2), ("w", 1), None]


def test_an_unimportant_class_is_not_starved_by_important_ones_that_always_come_back():
    backlog = Backlog()
    for class_id in range(20):
        backlog.add(("w", class_id), 100.0)
    backlog.add(("w", 99), 0.0)
    turns = []
    while ("w", 99) not in turns and len(turns) < 100:
        turns.append(backlog.pop())
        backlog.add(turns[-1], 100.0)
    assert 20 < len(turns) <= 2 * 20 + 2


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_each_waiting_class_has_one_turn_however_often_its_priority_changes(seed):
    rng = np.random.default_rng(seed)
    backlog, keys = Backlog(), [("w", int(i)) for i in range(10)]
    for _ in range(300):
        backlog.add(keys[rng.integers(10)], float(rng.integers(3)))
    turns = [backlog.pop() for _ in range(len(backlog))]
    assert len(turns) == len(set(turns))
    assert set(turns) <= set(keys)
    assert len(backlog) == 0
