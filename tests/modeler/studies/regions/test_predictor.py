"""Runtime from its parts: errors, limits, and what decides."""

import numpy as np
import pytest

from barograph_modeler.scaling.answer import MAX_REACH
from barograph_modeler.scaling.history import Runs
from barograph_modeler.studies.regions.combination import Combination, HeldOut
from barograph_modeler.studies.regions.predictor import PartsPrediction, PartsPredictor
from barograph_modeler.studies.regions.runs import RegionRuns

SCALES = np.array([1.0, 2, 4, 8, 16, 32])


def application(work, wait, p=SCALES, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    parts = {"work": work / p, "halo": 0.2 * work / p**0.66, "wait": wait * p**0.4}
    parts = {name: one * np.exp(noise * rng.normal(size=p.size)) for name, one in parts.items()}
    return RegionRuns(Runs.of(p, np.sum(list(parts.values()), axis=0)), parts)


def test_the_part_that_decides_is_named_and_parts_sum_to_the_expected_time():
    predictor = PartsPredictor({"a": application(100, 1)})
    answer = predictor.predict("a", 1024)
    assert isinstance(answer, PartsPrediction)
    assert next(iter(answer.parts)) == "wait"
    assert answer.summary.endswith("is wait")
    assert sum(answer.parts.values()) == pytest.approx(answer.expected_seconds)
    assert sum(answer.weights.values()) == pytest.approx(1)
    assert answer.lower_seconds < answer.expected_seconds < answer.upper_seconds


def test_a_part_that_grows_unseen_in_the_total_is_predicted():
    """At 32 ranks the total still falls; at 512 it is mostly waiting."""
    predictor = PartsPredictor(
        {f"a{i}": application(100, w, noise=0.01, seed=i) for i, w in enumerate((0.1, 0.2, 0.3))}
    )
    truth = application(100, 0.3, np.array([512.0])).runs.seconds[0]
    answer = predictor.predict("a2", 512)
    assert answer.expected_seconds == pytest.approx(truth, rel=0.2)
    assert answer.lower_seconds < truth < answer.upper_seconds


def test_limits_of_a_part_that_appears_from_nothing_are_cut():
    p = np.array([2.0, 4, 8])
    runs = Runs.of(p, [56e9, 31.0, 18.5e9])
    answer = PartsPredictor({"a": RegionRuns(runs, {"work": 100 / p, "halo": 12 / p})}).predict("a", 64)
    assert isinstance(answer, PartsPrediction)
    assert answer.upper_seconds / answer.expected_seconds == pytest.approx(MAX_REACH)
    assert answer.expected_seconds / answer.lower_seconds == pytest.approx(MAX_REACH)


def test_the_answer_is_the_same_each_time():
    problems = {"a": application(100, 1, noise=0.05)}
    assert PartsPredictor(problems).predict("a", 128) == PartsPredictor(problems).predict("a", 128)


def test_several_sizes_need_one_in_the_question():
    runs = application(100, 1)
    sized = RegionRuns(Runs.of(SCALES, runs.runs.seconds, size=[1, 1, 1, 2, 2, 2]), runs.regions)
    with pytest.raises(ValueError, match="several sizes, expected the size"):
        PartsPredictor({"a": sized}).predict("a", 64)


def test_a_problem_without_regions_is_predicted_from_the_total():
    answer = PartsPredictor({"a": RegionRuns(Runs.of(SCALES, 100 / SCALES + 1), {})}).predict("a", 64)
    assert list(answer.parts) == ["rest"]
    assert answer.expected_seconds == pytest.approx(100 / 64 + 1, rel=0.2)


def test_the_forecast_with_small_errors_has_the_weight():
    cases = [HeldOut(f"p{i}", {"good": 0.01 * (-1) ** i, "bad": 0.5}, {"good": 0.1, "bad": 0.1}) for i in range(40)]
    found = Combination.of(cases, {"good": 0.5, "bad": 0.5})
    assert found.weights["good"] > 0.9
    assert found.cases == 40


def test_errors_beyond_the_spreads_widen_the_limits():
    cases = [HeldOut(f"p{i}", {"a": 0.3 * (-1) ** i}, {"a": 0.1}) for i in range(100)]
    assert Combination.of(cases, {"a": 1.0}).factor > 2
    assert Combination.of([], {"a": 1.0}).factor == 1
