"""What held-out runs decide: the width of intervals; and scales that are left out."""

from __future__ import annotations

import numpy as np
import pytest

from barograph_modeler.scaling.calibration import (
    MAX_FACTOR,
    MIN_WIDENED,
    WIDENED,
    Calibration,
    HeldOutScale,
    Scales,
    Widening,
)
from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.scaling.outlier import outlying_scale
from barograph_modeler.scaling.predictor import Prediction, fit


def held_out(log_seconds: float, scales: int = 3) -> HeldOutScale:
    return HeldOutScale(Mixture.single(0.0, 0.1, 1e6), np.array([log_seconds]), scales)


def test_without_held_out_runs_the_priors_hold():
    found = Calibration.of([])
    for case, widening in found.widenings.items():
        assert widening == pytest.approx(WIDENED[case], rel=0.02)
    assert found.problems == 0


def test_factors_are_quantiles_of_distances_in_half_widths_on_each_side():
    """By hand: half a width of N(0, 0.1) is 0.196; of 100 problems 5 are 2.5 half widths above and 5 are 1.5 below."""
    half = 0.1 * 1.959964
    off = {0: 2.5, 10: -1.5}
    every = [held_out(half * off.get(i % 20, 0.0)) for i in range(100)]
    found = Calibration.of(every).widenings
    assert found[Scales.MORE] == pytest.approx(Widening(1.5, 2.5), rel=0.02)
    assert found[Scales.FEW] == pytest.approx(WIDENED[Scales.FEW], rel=0.02)
    assert Calibration.of([held_out(0.0)] * 100).widenings[Scales.MORE] == MIN_WIDENED
    assert Calibration.of([held_out(30.0, scales=2)] * 100).widenings[Scales.FEW] == Widening(1.0, MAX_FACTOR)


def test_a_problem_of_two_scales_has_a_farther_upper_limit():
    """Nothing shows yet where its curve turns."""
    seconds = {2: [16.0, 8.1], 4: [32.0, 16.1, 8.1, 4.1]}
    widths = {}
    for scales, times in seconds.items():
        answer = fit({"a": Runs.of(2.0 ** np.arange(scales), times)}).predict("a", 2**scales)
        assert isinstance(answer, Prediction)
        widths[scales] = np.log(answer.upper_seconds / answer.expected_seconds)
    assert widths[2] > 1.5 * widths[4]


def test_intervals_of_an_application_whose_scales_scatter_are_wider():
    def problems(noise: float) -> dict[str, Runs]:
        rng = np.random.default_rng(5)
        ranks = np.array([1, 2, 4, 8, 16])
        return {str(i): Runs.of(ranks, (i + 1) * (1 + 100 / ranks) * rng.lognormal(0, noise, 5)) for i in range(20)}

    quiet, noisy = (fit(problems(noise)).predict("3", 64) for noise in (0.01, 0.4))
    assert isinstance(quiet, Prediction)
    assert isinstance(noisy, Prediction)
    assert np.log(noisy.upper_seconds / noisy.lower_seconds) > 1.5 * np.log(quiet.upper_seconds / quiet.lower_seconds)


def test_one_disturbed_scale_is_left_out_and_named():
    ranks = np.array([1, 2, 3, 4, 8, 16, 32])
    seconds = np.array([259.1, 260.5, 260.5, 4907.5, 261.0, 261.1, 261.1])
    answer = fit({"a": Runs.of(ranks, seconds)}).predict("a", 128)
    assert isinstance(answer, Prediction)
    assert answer.expected_seconds == pytest.approx(261.5, rel=0.01)
    assert "The runs on 4 ranks are far from the curve of the others and were left out." in answer.warnings


def test_a_scale_whose_repeats_contradict_each_other_is_left_out_with_their_variance():
    ranks = np.array([1, 2, 3, 4, 4, 4, 8, 16, 32])
    seconds = np.array([259.1, 260.5, 260.5, 261.0, 522.3, 4907.5, 261.0, 261.1, 261.1])
    answer = fit({"a": Runs.of(ranks, seconds)}).predict("a", 128)
    assert isinstance(answer, Prediction)
    assert answer.expected_seconds == pytest.approx(261.5, rel=0.01)
    assert answer.upper_seconds < 2 * answer.lower_seconds
    assert "The runs on 4 ranks are far from the curve of the others and were left out." in answer.warnings


@pytest.mark.parametrize(
    "seconds",
    [
        [100, 101, 120, 103, 104],
        [100, 50, 25, 12, 6],
        [100, 100, 100, 20, 20],
        [100, 50, 25, 12, 600],
        [10, 900, 2, 3000, 1],
        [100, 50, 400, 12],
    ],
    ids=["a fifth", "smooth", "a step", "the largest scale", "all of them", "few scales"],
)
def test_no_scale_is_left_out_where_it_may_belong_to_the_curve(seconds):
    runs = Runs.of(2.0 ** np.arange(len(seconds)), seconds)
    assert outlying_scale(Configurations.of(runs)) is None


def test_beyond_the_largest_scale_the_answer_doubts_what_no_run_shows():
    ranks = 2.0 ** np.arange(6)
    ends, bad = 100 / ranks, 100 / ranks
    alone = fit({"a": Runs.of(ranks, ends)}).predict("a", 256)
    assert isinstance(alone, Prediction)
    assert any("was still falling on 32 ranks" in text for text in alone.warnings)
    # It may stop falling on 100 ranks, and the limits have that.
    assert alone.lower_seconds < 100 / 256 < 100 / 100 < alone.upper_seconds
    bad[-1] *= 1.6
    shaken = fit({"a": Runs.of(ranks, bad)}).predict("a", 64)
    assert isinstance(shaken, Prediction)
    assert any("take 1.6 times as long as smaller scales show: repeat them" in text for text in shaken.warnings)
    level = fit({"a": Runs.of(ranks, 5 + 100 / ranks)}).predict("a", 256)
    assert isinstance(level, Prediction)
    assert not any("falling" in text or "repeat" in text for text in level.warnings)


@pytest.mark.parametrize(
    ("ranks", "seconds", "grows"),
    [
        ([8, 64], [10.0, 12.0], False),
        ([8, 8, 64], [10.0, 10.1, 12.0], False),
        ([8, 8, 64, 64], [10.0, 10.1, 12.0, 12.1], True),
        ([8, 16, 64], [10.0, 10.6, 12.0], True),
    ],
    ids=["one run each", "the larger scale once", "repeated", "three scales"],
)
def test_growth_goes_on_only_where_repeats_or_a_third_scale_show_it(ranks, seconds, grows):
    answer = fit({"a": Runs.of(ranks, seconds)}).predict("a", 512)
    assert isinstance(answer, Prediction)
    assert (answer.expected_seconds > 12.5) is grows
    assert any("may be chance" in text for text in answer.warnings) is not grows
    assert answer.lower_seconds < 10
    assert answer.upper_seconds > 14.4


def test_a_series_that_grew_and_became_level_stays_level():
    runs = Runs.of([1, 2, 3, 4, 8, 16], [122.2, 137.4, 139.5, 140.6, 141.0, 141.0])
    answer = fit({"weak": runs}).predict("weak", 128)
    assert isinstance(answer, Prediction)
    assert answer.expected_seconds == pytest.approx(141, rel=0.03)
    assert answer.lower_seconds < 139
    assert answer.upper_seconds > 143
