"""What a run has left: a model of healthy runs that holds its limits, disturbances that last, and what is not known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from barograph_modeler.pace.progress import ProgressProfile, fit_progress
from barograph_modeler.pace.remaining import (
    ComingDisturbances,
    Disturbance,
    PaceSpread,
    Remaining,
    remaining,
    remaining_beyond,
    stretched,
    with_coming,
)
from barograph_modeler.pace.timeline import Timeline
from barograph_modeler.pace.windows import Windower

USUAL = 100.0
SPREAD = PaceSpread(0.03, 0.01)


def test_limits_hold_95_of_100_runs_of_the_model_and_shrink_as_a_run_proceeds():
    rng = np.random.default_rng(1)
    runs = 4000
    between = rng.normal(0, SPREAD.between, runs)
    steps = rng.normal(0, SPREAD.within * USUAL / 10, (runs, 100)) + np.exp(between)[:, None]
    elapsed = np.cumsum(steps, axis=1)
    widths = []
    for done in (10, 50, 90):
        actual = elapsed[:, -1] - elapsed[:, done - 1]
        # As good as normal.
        found = [remaining(done, USUAL, float(one), SPREAD, 1e6) for one in elapsed[:, done - 1]]
        inside = [one.lower_seconds <= left <= one.upper_seconds for one, left in zip(found, actual, strict=True)]
        assert np.mean(inside) == pytest.approx(0.95, abs=0.012)
        widths.append(np.mean([one.upper_seconds - one.lower_seconds for one in found]))
        assert np.mean([one.expected_seconds for one in found] - actual) == pytest.approx(0, abs=0.1)
    assert widths[0] > 2 * widths[1] > 3 * widths[2]


@pytest.mark.parametrize("done", [0.0, 1e-9, 50.0, USUAL])
@pytest.mark.parametrize("elapsed", [0.0, 1e-9, 50.0, 1e9])
def test_the_answer_is_finite_and_in_order_whatever_the_run_did(done, elapsed):
    found = remaining(done, USUAL, elapsed, SPREAD, 4)
    assert 0 <= found.lower_seconds <= found.expected_seconds <= found.upper_seconds < math.inf
    assert done < USUAL or found == (0, 0, 0)


def test_the_own_pace_counts_for_the_more_the_longer_it_lasts_and_the_more_runs_differ():
    paces = [
        remaining(done, USUAL, 1.1 * done, spread, 20).expected_seconds / (USUAL - done)
        for spread in (PaceSpread(0.01, 0.02), SPREAD)
        for done in (10.0, 80.0)
    ]
    assert 1 < paces[0] < paces[1] < paces[2] < paces[3] < 1.1


def test_a_disturbance_lasts_for_as_long_again_at_the_median_and_one_since_the_begin_to_the_end():
    left = Remaining(95.0, 100.0, 105.0)
    found = stretched(left, Disturbance(2.0, 20.0))
    assert found.expected_seconds == 20 + 100 - 20 / 2
    assert (found.lower_seconds, found.upper_seconds) == (pytest.approx(95.26, abs=0.01), 210.0)
    assert stretched(left, Disturbance(2.0, 20.0, from_begin=True)).expected_seconds == 200
    assert stretched(left, Disturbance(2.0, 500.0)).expected_seconds == 200
    # Nothing happens: for as long again, and then all that was left.
    stalled = stretched(left, Disturbance(math.inf, 20.0))
    assert (stalled.expected_seconds, stalled.upper_seconds) == (120.0, pytest.approx(105 + 20 * 39))
    faster = stretched(left, Disturbance(0.5, 20.0))
    assert faster.lower_seconds == 47.5 < faster.expected_seconds == 80 < faster.upper_seconds < 105


def test_without_progress_it_is_the_runtime_given_that_it_is_longer():
    whole = remaining_beyond(0.0, 100.0, 0.05, 4)
    assert whole.expected_seconds == pytest.approx(100)
    late = [remaining_beyond(elapsed, 100.0, 0.05, 4) for elapsed in (90.0, 100.0, 150.0)]
    assert [one.expected_seconds > 0 for one in late] == [True] * 3
    # The longer a run is overdue, the less is known about it.
    assert late[2].upper_seconds > late[1].upper_seconds
    assert 0 <= late[1].lower_seconds < late[1].expected_seconds < 10
    # All runtimes above 100 s are as likely to be above the expected end as not.
    draws = 100 * np.exp(0.05 * np.random.default_rng(1).standard_t(4, 200_000))
    assert np.median(draws[draws > 100]) - 100 == pytest.approx(late[1].expected_seconds, rel=0.02)


def test_the_time_after_the_last_interval_is_added_with_its_own_spread():
    found = Remaining(0.0, 0.0, 0.0).with_tail(10.0)
    assert (found.lower_seconds, found.expected_seconds, found.upper_seconds) == (
        pytest.approx(4.9),
        10.0,
        pytest.approx(15.1),
    )


def test_the_spread_of_runs_is_told_apart_into_what_lasts_and_what_does_not():
    rng = np.random.default_rng(2)
    within, lasting = 0.02, 0.05
    steps = np.exp(rng.normal(0, lasting, 400))[:, None] + rng.normal(0, within * math.sqrt(64), (400, 64))
    elapsed = np.cumsum(steps, axis=1)
    found = PaceSpread.of_runs(np.hstack([np.zeros((400, 1)), elapsed]))
    assert found == (pytest.approx(lasting, rel=0.1), pytest.approx(within, rel=0.1))
    assert math.isnan(PaceSpread.of_runs(elapsed[:1]).between)
    assert np.isfinite(PaceSpread.of_runs(np.array([[5.0, 5, 5, 5], [0, 1, 2, 3]]))).all()
    assert PaceSpread(math.nan, math.nan).posterior(1) == pytest.approx((0.03 * math.sqrt(2), 0.01 * math.sqrt(2)))


def profile(tail: float) -> ProgressProfile:
    timelines = []
    for factor in (1.0, 1.02):
        seconds = np.full(400, 0.05 * factor)
        ends = 1000 + np.cumsum(seconds)
        timeline = Timeline()
        timeline.add(Windower().add(np.full(400, 7, np.uint64), seconds, ends))
        timelines.append(timeline.packed(float(timeline.segments[-1].ended_at) + tail))
    found = fit_progress(timelines)
    assert found is not None
    return found


def test_spread_and_tail_of_runs_go_through_the_log():
    found = profile(tail=1.5)
    assert found.tail_seconds == pytest.approx(1.5)
    assert 0 < found.spread.between < 0.03
    read = ProgressProfile.from_text(found.text())
    assert read is not None
    assert (read.spread, read.tail_seconds) == (pytest.approx(found.spread, rel=1e-5), pytest.approx(1.5))


@pytest.mark.parametrize("share", [0.05, 0.3])
@pytest.mark.parametrize("elapsed", [0.0, 60.0])
def test_with_disturbances_to_come_the_upper_limit_holds_the_promised_share_of_all_runs(share, elapsed):
    rng = np.random.default_rng(3)
    excesses, rest, runs = rng.exponential(0.5, 64), 100.0 - elapsed, 100_000
    disturbed = rng.random(runs) < share * rest / 100
    actual = rest + rng.normal(0, 1, runs) + disturbed * rest * rng.choice(excesses, runs)
    alone = Remaining(rest - 1.96, rest, rest + 1.96)
    found = with_coming(alone, elapsed, ComingDisturbances(share, excesses))
    assert (found.lower_seconds, found.expected_seconds) == (alone.lower_seconds, rest)
    assert np.mean(actual <= found.upper_seconds) == pytest.approx(0.975, abs=0.003)
    assert np.mean(actual <= alone.upper_seconds) < 0.97


def test_rare_disturbances_hardly_move_the_limit_and_unknown_ones_do_not():
    alone = Remaining(98.0, 100.0, 102.0)
    assert with_coming(alone, 0.0, ComingDisturbances(0.01, np.array([0.5]))).upper_seconds < 103
    for nothing in (ComingDisturbances(0.5, np.array([])), ComingDisturbances(0.0, np.array([1.0]))):
        assert with_coming(alone, 0.0, nothing) == alone
    over = Remaining(0.0, 0.0, 0.0)
    assert with_coming(over, 10.0, ComingDisturbances(0.5, np.array([1.0]))) == over


@pytest.mark.parametrize("reach", [0.0, 1e-12, 1e12])
@pytest.mark.parametrize("excess", [1e-12, 1.0, 1e12])
def test_whatever_disturbances_there_were_the_limits_are_finite_and_in_order(reach, excess):
    found = with_coming(Remaining(0.0, 5.0, 5.0 + reach), 1e9, ComingDisturbances(1.0, np.full(64, excess)))
    assert 0 <= found.expected_seconds <= 5.0 + reach <= found.upper_seconds < math.inf
