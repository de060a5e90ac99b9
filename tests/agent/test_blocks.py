"""Reduction within a budget: moments stay exact, rare classes are not reduced, and rows do not exceed the budget."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph_agent.protocol.wire import MAX_ROWS
from barograph_agent.reduce.blocks import BURST_SECONDS, Budget, Intervals, reduce


def intervals(classes: list[int], seconds: list[float] | None = None) -> Intervals:
    count = len(classes)
    values = np.array(seconds if seconds is not None else np.arange(1.0, count + 1))
    return Intervals(np.array(classes, np.uint64), np.arange(count), values, np.cumsum(values))


values = st.floats(1e-7, 1e4)


@given(st.lists(st.tuples(st.integers(0, 5), values), min_size=1, max_size=300), st.integers(0, 400))
def test_reduction_preserves_counts_sums_and_extremes_of_each_class(pairs: list[tuple[int, float]], rows: int) -> None:
    raw = intervals([c for c, _ in pairs], [s for _, s in pairs])
    blocks = reduce(raw, rows)
    classes = set(raw.class_ids.tolist())
    assert len(blocks["count"]) <= max(rows, len(classes))
    assert blocks["count"].sum() == len(pairs)
    assert (np.diff(blocks["ended_at"]) >= 0).all()
    for kind in classes:
        mine, own = blocks["class_id"] == kind, raw.seconds[raw.class_ids == kind]
        assert blocks["first_index"][mine][0] == raw.indices[raw.class_ids == kind][0]
        start = 0
        for at in np.flatnonzero(mine):
            part = own[start : start + blocks["count"][at]]
            start += blocks["count"][at]
            for power, name in enumerate(("sum_seconds", "sum_squares", "sum_cubes"), 1):
                assert blocks[name][at] == pytest.approx(math.fsum(part**power), rel=1e-12)
            assert (blocks["min_seconds"][at], blocks["max_seconds"][at]) == (part.min(), part.max())
        assert start == len(own)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=9), st.integers(0, 1000))
def test_each_class_has_as_many_blocks_as_the_largest_limit_within_the_rows(counts: list[int], rows: int) -> None:
    raw = intervals([kind for kind, count in enumerate(counts) for _ in range(count)])
    blocks = reduce(raw, rows)
    each = np.bincount(blocks["class_id"].astype(int))
    assert each.tolist() == np.minimum(counts, limit := each.max()).tolist()
    assert limit == 1 or each.sum() <= rows
    assert limit == max(counts) or np.minimum(counts, limit + 1).sum() > rows
    assert sum(counts) > rows or blocks["sum_seconds"].tolist() == raw.seconds.tolist()


def test_rows_beyond_the_budget_are_subtracted_from_later_credit() -> None:
    budget = Budget()
    budget.spend(budget.allow(100.0, 10.0) + 50)
    assert [budget.allow(at, 10.0) for at in (104.0, 106.0, 90.0)] == [0, 10, 10]


def test_no_budget_allows_more_rows_than_a_message_may_have() -> None:
    assert Budget().allow(100.0, 1e6) == MAX_ROWS


def test_a_rare_class_is_not_reduced_among_millions_of_short_intervals() -> None:
    fast = [1] * 10_000
    raw = intervals([*fast, 2, *fast], [1e-5] * 10_000 + [100.0] + [1e-5] * 10_000)
    blocks = reduce(raw, 41)
    (slow,) = np.flatnonzero(blocks["class_id"] == 2)
    assert (blocks["count"][slow], blocks["sum_seconds"][slow], blocks["first_index"][slow]) == (1, 100.0, 10_000)
    assert blocks["count"].tolist().count(500) == 40
    assert len(blocks["count"]) == 41


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, 5000)), max_size=40), st.floats(1, 1000))
def test_rows_never_exceed_rate_times_time_plus_one_burst(steps: list[tuple[float, int]], rate: float) -> None:
    budget, now, sent = Budget(), 1e9, 0
    began = None
    for seconds, wanted in steps:
        now += seconds
        began = began or now
        rows = min(budget.allow(now, rate), wanted)
        budget.spend(rows)
        sent += rows
        assert sent <= rate * (now - began + BURST_SECONDS) + 1
        assert budget.allow(now, rate) >= 0
