"""Elapsed time at equal progress."""

import json
import math

import numpy as np
import pytest

from barograph_modeler.pace.progress import SLOPES, Delay, ProgressProfile, fit_progress, least_delay
from barograph_modeler.pace.timeline import Timeline
from barograph_modeler.pace.windows import Window

TWO = SLOPES.index(math.log1p(0.02))


def timeline(seconds: list[float], counts: list[dict[int, int]] | None = None, start: float = 100.0) -> Timeline:
    """A run of windows that took so many seconds, with 10 intervals of class 1 each unless given."""
    run, now = Timeline(), start
    for i, one in enumerate(seconds):
        run.add([Window(counts[i] if counts else {1: 10}, {1: one}, now, now + one)])
        now += one
    return run


def test_progress_is_the_mean_elapsed_time_at_each_point() -> None:
    progress = fit_progress([timeline([1.0] * 10), timeline([2.0] * 10, start=7.0)])
    assert progress is not None
    assert progress.points.tolist() == [10 * i for i in range(11)]
    assert progress.seconds.tolist() == [1.5 * i for i in range(11)]
    assert (progress.runs, set(progress.classes), progress.usual_seconds) == (2, {1}, 15.0)


def test_programs_that_iterate_until_something_converges_are_aligned_by_their_outer_steps() -> None:
    inner = np.random.default_rng(1).integers(5, 15, (4, 10))
    runs = [timeline([1.0] * 10, [{1: 1, 2: int(n)} for n in row]) for row in inner]
    progress = fit_progress(runs)
    assert progress is not None
    assert set(progress.classes) == {1}
    assert progress.runs == 4


def test_a_run_of_another_length_is_left_out_of_four() -> None:
    progress = fit_progress([timeline([1.0] * 10)] * 3 + [timeline([1.0] * 20)])
    assert progress is not None
    assert (progress.runs, progress.points[-1]) == (3, 100)


@pytest.mark.parametrize("runs", [[timeline([1.0] * 10), timeline([1.0] * 12)], [timeline([1.0] * 3)], []])
def test_runs_without_enough_in_common_have_no_progress(runs: list[Timeline]) -> None:
    assert fit_progress(runs) is None


def test_delays_are_those_of_each_run_against_the_others() -> None:
    usual = [1.0] * 20
    late = [*usual[:12], 3.0, *usual[13:]]
    progress = fit_progress([timeline(usual), timeline(usual), timeline(late)])
    assert progress is not None
    # 2 s more than the others, less what the slope allows for 1 s.
    assert progress.delays.own[TWO] == pytest.approx([0, 0, 3 - 1.02])
    assert progress.delays.history[TWO] == pytest.approx([0, 0, 3 - 1.02])


def test_the_text_says_everything() -> None:
    progress = fit_progress([timeline([1.0, 2.0] * 8), timeline([1.1, 2.3] * 8)])
    assert progress is not None
    again = ProgressProfile.from_text(progress.text())
    assert again is not None
    assert again.classes == progress.classes
    assert again.seconds == pytest.approx(progress.seconds)
    assert again.delays.own[TWO] == pytest.approx(progress.delays.own[TWO])
    assert (again.runs, again.points.tolist()) == (progress.runs, progress.points.tolist())
    assert ProgressProfile.from_text("") is None


@pytest.mark.parametrize(
    "change",
    [
        ("points", [0, 5, 5]),
        ("points", [0]),
        ("seconds", [0, 2, 1]),
        ("classes", {"x": [0, 9, 9]}),
        ("own", []),
        ("runs", 0),
    ],
)
def test_a_malformed_text_is_an_error_that_says_so(change: tuple[str, object]) -> None:
    good = {"classes": {"1": [0, 9, 9]}, "points": [0, 5, 9], "seconds": [0, 1, 2], "runs": 1}
    good |= {"history": [[]] * len(SLOPES), "own": [[]] * len(SLOPES)}
    assert ProgressProfile.from_text(json.dumps(good)) is not None
    with pytest.raises(ValueError, match="progress is"):
        ProgressProfile.from_text(json.dumps(good | {change[0]: change[1]}))


def test_a_delay_is_what_exceeds_the_slope_since_its_onset() -> None:
    delay = Delay(math.log(1.1), 100.0, own=False)
    for i in range(10):
        delay.add(1.0, 1.0, float(i))
    assert (delay.seconds, math.isnan(delay.onset_at)) == (0.0, True)
    for i in range(10, 14):
        delay.add(1.5, 1.0, float(i))
    assert delay.seconds == pytest.approx(4 * 0.4)
    assert (delay.onset_at, delay.slowdown()) == (10.0, 1.5)
    assert delay.after(0.0, 1.0) == pytest.approx(1.6 - 1.1)
    for _ in range(40):
        delay.add(1.0, 1.0)
    assert (delay.seconds, delay.highest) == (0.0, pytest.approx(1.6))


def test_a_pause_within_one_part_is_a_slowdown_whatever_follows() -> None:
    delay = Delay(math.log(1.1), 50.0, own=False)
    delay.add(5.0, 1.0, 3.0)
    for _ in range(20):
        delay.add(0.98, 1.0)
        assert delay.slowdown() >= 1
    assert delay.slowdown() == pytest.approx((5 + 20 * 0.98) / 21)


def test_a_single_pause_is_no_delay_that_matters_unless_it_is_long() -> None:
    usual = 100.0
    short, long = Delay(0.0, usual, own=False), Delay(0.0, usual, own=False)
    short.add(4.0, 0.8)
    assert short.highest < least_delay(usual)
    short.add(4.0, 0.8)
    assert short.highest > least_delay(usual)
    long.add(7.0, 0.8)
    assert long.highest == pytest.approx(6.2)


def test_a_run_that_is_slow_throughout_is_not_late_by_its_own_pace() -> None:
    own, history = Delay(0.02, 20.0, own=True), Delay(0.02, 20.0, own=False)
    for _ in range(20):
        own.add(1.3, 1.0)
        history.add(1.3, 1.0)
    assert own.highest == 0
    assert history.highest == pytest.approx(20 * (1.3 - math.exp(0.02)))
    own.add(2.0, 1.0, 7.0)
    assert own.highest == pytest.approx(0.5)
    assert own.slowdown() == pytest.approx(2.0)


def test_a_run_that_begins_fast_may_return_to_the_usual_pace() -> None:
    own = Delay(0.02, 20.0, own=True)
    for actual in [0.5] * 10 + [1.0] * 10:
        own.add(actual, 1.0)
    assert own.highest == 0
