"""What is expected at a scale that has run: the latest runs count for more."""

from __future__ import annotations

import numpy as np
import pytest

from barograph_modeler.scaling.answer import OWN_RUNS, Prediction, from_runs
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.predictor import fit


def test_the_answer_follows_runs_that_take_longer_from_some_day_on() -> None:
    seconds = np.array([100.0, 101.0, 99.0, 100.0] * 4 + [150.0, 151.0, 149.0])
    answer = from_runs(seconds, 8)
    assert answer.expected_seconds == pytest.approx(150, rel=0.02)
    assert from_runs(seconds[::-1], 8).expected_seconds == pytest.approx(100, rel=0.01)
    assert answer.lower_seconds < 101


def test_single_odd_runs_do_not_move_it() -> None:
    assert from_runs(np.array([100.0, 101.0, 102.0, 900.0]), 8).expected_seconds == pytest.approx(101, rel=0.02)


@pytest.mark.parametrize(
    ("seconds", "warned"),
    [([18.5, 20.2, 21.1, 42.0], True), ([18.5, 20.2, 21.1], False), ([0.1, 0.2, 0.3], False), ([18.5, 42.0], True)],
)
def test_runs_that_are_far_apart_may_have_done_different_work(seconds: list[float], warned: bool) -> None:
    """Short runs differ by what starting takes."""
    warnings = from_runs(np.array(seconds), 4).warnings
    assert any("times as long as the shortest: works may differ" in one for one in warnings) == warned


def test_at_a_scale_that_was_run_once_or_twice_its_runs_are_what_is_expected() -> None:
    """The curve passes between them: 100 s on 2 ranks and 150 s on 4 are a level and growth."""

    def expected(ranks: int, runs: Runs) -> float:
        found = fit({"a": runs}).predict("a", ranks)
        assert isinstance(found, Prediction)
        assert found.lower_seconds <= found.expected_seconds <= found.upper_seconds
        return found.expected_seconds

    once = Runs.of([2, 4], [100.0, 150.0])
    assert [expected(ranks, once) for ranks in (2, 4)] == pytest.approx([100.0, 150.0])
    twice = Runs.of([2, 4, 8, 8, 16], [100.0, 52.0, 40.0, 42.0, 14.0])
    assert expected(8, twice) == pytest.approx((40.0 * 42.0) ** 0.5)
    assert 20.0 < expected(12, twice) < 41.0


def test_a_scale_that_was_left_out_keeps_to_the_curve_of_the_others() -> None:
    seconds = [100.0, 50.0, 25.0, 900.0, 6.25, 3.125, 1.5625]
    found = fit({"a": Runs.of([1, 2, 4, 8, 16, 32, 64], seconds)}).predict("a", 8)
    assert isinstance(found, Prediction)
    assert any("left out" in one for one in found.warnings)
    assert found.expected_seconds == pytest.approx(12.5, rel=0.1)


def test_two_runs_are_not_hidden_by_other_scales_that_follow_no_law() -> None:
    """The time falls, stays and grows fourfold: laws leave any time open on 4 ranks, where two runs took the same."""
    runs = Runs.of([1, 1, 2, 2, 2, 4, 4], [2.26, 2.44, 3.13, 3.78, 1.64, 10.16, 10.63])
    found = fit({"a": runs}).predict("a", 4)
    assert isinstance(found, Prediction)
    assert found.upper_seconds < 10 * found.lower_seconds
    assert (found.runs, found.model) == (2, {OWN_RUNS: 1.0})
    assert found.warnings == ("Only 2 runs at this scale: how they differ is an assumption.",)
    assert found.time_limit(0.025) == pytest.approx(found.upper_seconds)
    # Where laws are certain, their limits are what the scales around show.
    smooth = Runs.of([1, 2, 4, 8], [100.0, 51.0, 26.0, 14.0])
    lawful = fit({"a": smooth}).predict("a", 4)
    assert isinstance(lawful, Prediction)
    assert lawful.runs == 4
