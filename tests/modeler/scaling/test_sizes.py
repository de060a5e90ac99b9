"""Predictions over sizes: weak series, sizes never run, sizes of two numbers, and the weights of the models."""

from __future__ import annotations

import numpy as np
import pytest

from barograph_modeler.scaling import configurations as bounds
from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.predictor import Prediction, Predictor, Refusal, fit
from barograph_modeler.scaling.sizes.law import BilinearLaw
from barograph_modeler.scaling.sizes.stacking import stack
from barograph_modeler.scaling.sizes.weighing import CURVES, LAW, SIZED, join

WEAK = [(6, 100, 269.0), (24, 400, 275.0), (96, 1600, 285.0)]


def repeated(rows, noise=0.01, seed=0, repeats=3) -> Runs:
    """Runs of rows of ranks, size, seconds."""
    rng = np.random.default_rng(seed)
    many = [(p, n, t * np.exp(noise * rng.normal())) for p, n, t in rows for _ in range(repeats)]
    ranks, size, seconds = zip(*many, strict=True)
    return Runs.of(ranks, seconds, size=size)


def predicted(predictor: Predictor, ranks: float, size=None) -> Prediction:
    answer = predictor.predict("a", ranks, size=size)
    assert isinstance(answer, Prediction), answer
    return answer


def test_a_weak_series_is_continued_with_and_without_its_size():
    predictor = fit({"a": repeated(WEAK)})
    with_size, without = predicted(predictor, 384, 6400.0), predicted(predictor, 384)
    assert with_size.expected_seconds == pytest.approx(290, rel=0.1)
    assert with_size.lower_seconds < 290 < with_size.upper_seconds < 3.5 * with_size.lower_seconds
    assert without.expected_seconds == pytest.approx(with_size.expected_seconds)


def test_off_a_weak_series_the_limits_are_wide():
    """On the series alone, what the size does and what the ranks do cannot be told apart."""
    predictor = fit({"a": repeated(WEAK)})
    on, off = predicted(predictor, 384, 6400.0), predicted(predictor, 384, 1600.0)
    assert off.upper_seconds / off.lower_seconds > 2 * on.upper_seconds / on.lower_seconds
    assert off.lower_seconds < 290 / 4 < off.upper_seconds


@pytest.mark.parametrize(("size", "rel"), [(51_200, 0.06), (12_800, 0.06), (25_600, 0.06)])
def test_two_weak_series_predict_a_larger_scale_between_and_along_them(size, rel):
    def law(p: float, n: float) -> float:
        return 3.0 * (n / p) ** 0.9 + 2.0 * np.log2(p)

    rows = [(p, u * p, law(p, u * p)) for u in (50, 200) for p in (4, 16, 64)]
    answer = predicted(fit({"a": repeated(rows)}), 256, float(size))
    truth = law(256, size)
    assert answer.expected_seconds == pytest.approx(truth, rel=rel)
    assert answer.lower_seconds < truth < answer.upper_seconds < 4 * answer.lower_seconds


def test_sizes_of_two_numbers_are_learned_together():
    """As Graph500's vertices and edges per vertex."""

    def law(p: float, n: float, e: float) -> float:
        return 1e-4 * n * e**0.5 / p**0.9

    rows = [(p, n, e) for p in (2, 4, 8) for n in (1e5, 4e5, 1e6) for e in (8.0, 16.0)]
    runs = Runs.of([p for p, _, _ in rows], [law(*row) for row in rows], size=[(n, e) for _, n, e in rows])
    answer = predicted(fit({"a": runs}), 32, (4e6, 32.0))
    assert answer.expected_seconds == pytest.approx(law(32, 4e6, 32.0), rel=0.1)
    with pytest.raises(ValueError, match="size has 1 numbers, expected 2 as the runs have"):
        fit({"a": runs}).predict("a", 32, size=4e6)


def test_limits_hold_95_of_100_runs_of_random_laws_at_sizes_and_scales_never_run():
    rng = np.random.default_rng(11)
    inside = 0
    for case in range(60):
        work, surface, latency = (float(np.exp(rng.normal(m, 1))) for m in (-2, -5, -5))

        def law(p: float, n: float, a: float = work, b: float = surface, c: float = latency) -> float:
            return a * n / p + b * (n / p) ** (2 / 3) + c * np.log2(p + 1)

        rows = [(p, n, law(p, n)) for p in (4, 16, 64) for n in (1e3, 1e4)]
        answer = predicted(fit({"a": repeated(rows, 0.03, case)}), 256, 1e5)
        inside += answer.lower_seconds <= law(256, 1e5) * np.exp(0.03 * rng.normal()) <= answer.upper_seconds
    assert inside >= 55


def test_without_a_size_several_sizes_at_one_scale_are_refused():
    answer = fit({"a": repeated([(p, n, n / p) for p in (1, 2) for n in (10.0, 20.0)])}).predict("a", 4)
    assert isinstance(answer, Refusal)
    assert answer.reason == "the runs have 2 sizes and none was asked for, expected a size"


def test_a_problem_without_runs_is_predicted_at_its_size_from_others_of_any_size():
    def rows(factor: float) -> Runs:
        return repeated([(p, n, factor * n / p) for p in (4, 8, 16) for n in (100, 400, 1600)])

    three = fit({str(factor): rows(factor) for factor in (1.0, 1.1, 1.2)})
    small, large = (three.predict("new", 16, size=n) for n in (100.0, 1600.0))
    assert isinstance(small, Prediction)
    assert isinstance(large, Prediction)
    assert small.expected_seconds == pytest.approx(1.1 * 100 / 16, rel=0.1)
    assert large.expected_seconds == pytest.approx(1.1 * 1600 / 16, rel=0.1)
    # Sizes of one problem are no other problems.
    alone = fit({"1": rows(1.0)}).predict("new", 16, size=100.0)
    assert isinstance(alone, Refusal)
    assert "near 16 ranks 1 other problem has run of the application, expected 3" in alone.reason


def test_the_weights_are_those_of_the_models_that_predicted_held_out_runs():
    good, bad = {"good": -1.0, "bad": -4.0}, {"good": -2.0, "bad": -9.0}
    prior = {"good": 1.0, "bad": 1.0}
    assert stack([], prior) == {"good": 0.5, "bad": 0.5}
    assert stack([good, bad] * 10, prior)["good"] > 0.9
    assert stack([{"bad": 3.0}], prior) == stack([], prior)
    assert sum(stack([good], prior).values()) == pytest.approx(1)


def test_curves_of_each_size_decide_where_sizes_do_not_follow_one_law():
    """Each size has overhead of its own, as with another decomposition: one law over sizes does not hold."""
    floors = {1.0: 0.1, 2.0: 30.0, 4.0: 0.2, 8.0: 60.0, 16.0: 0.1}
    rows = [(p, n, floor + 100 * n / p) for n, floor in floors.items() for p in (1, 2, 4, 8, 16, 32, 64)]
    weights = fit({"a": repeated(rows)}).weights
    assert weights.scored > 0
    assert weights.by_case["known size"][CURVES] > 0.7
    model = predicted(fit({"a": repeated(rows)}), 128, 4.0).model
    assert model.get(SIZED, 0) + model.get(LAW, 0) == pytest.approx(1 - weights.by_case["known size"][CURVES])
    assert sum(model.values()) == pytest.approx(1)


@pytest.mark.parametrize("size", [4.0, 6.0], ids=["a known size", "a new size"])
def test_what_is_expected_is_the_mean_of_the_models_in_logarithms(size):
    floors = {1.0: 0.1, 2.0: 30.0, 4.0: 0.2, 8.0: 60.0, 16.0: 0.1}
    rows = [(p, n, floor + 100 * n / p) for n, floor in floors.items() for p in (1, 2, 4, 8, 16, 32, 64)]
    predictor = fit({"a": repeated(rows)})
    models = predictor.models("a", 512, (size,))
    weights = predictor.weights.of_models(models, is_series=False)
    mean = sum(weights[name] * one.quantile(0.5) for name, one in models.items())
    assert abs(mean - join(models, weights)[1].quantile(0.5)) > 0.02  # the median of their mixture is elsewhere
    answer = predicted(predictor, 512, size)
    assert np.log(answer.expected_seconds) == pytest.approx(mean)
    assert np.exp(answer.logarithms.quantile(0.5)) == pytest.approx(answer.expected_seconds)
    assert answer.lower_seconds < answer.expected_seconds < answer.upper_seconds


def test_the_law_of_sizes_goes_on_beyond_them():
    known = Configurations.of(repeated([(p, n, 5 * n**0.8 / p**0.7) for p in (2, 4, 16) for n in (10.0, 30.0)]))
    at = BilinearLaw(known).at(64, np.array([100.0]))
    assert np.exp(at.means[0]) == pytest.approx(5 * 100**0.8 / 64**0.7, rel=0.15)


def test_the_number_of_configurations_is_bounded_and_the_largest_scale_stays(monkeypatch):
    monkeypatch.setattr(bounds, "MAX_CONFIGURATIONS", 8)
    known = Configurations.of(repeated([(p, n, n / p) for p in (1, 2, 4, 8, 16) for n in range(1, 9)]))
    assert len(known) == 8
    assert known.ranks[-1] == 16
