"""The predictor: what it says about curves whose truth is known, what it refuses, what it learns from others."""

import itertools
import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import t as student_t

import barograph_modeler.scaling.predictor as predictor_module
from barograph_modeler.maxima.runtime import runtime_limits
from barograph_modeler.scaling.answer import MAX_REACH
from barograph_modeler.scaling.evidence import MISFITS, ShapeEvidence
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.scaling.pool import posterior
from barograph_modeler.scaling.predictor import Prediction, Predictor, Refusal, fit

Law = Callable[[np.ndarray], np.ndarray]
SCALES = (1, 2, 4, 8, 16)


def runs(law: Law, ranks=SCALES, noise: float = 0.0, seed: int = 0, size: float = 1.0) -> Runs:
    p = np.array(ranks, dtype=float)
    seconds = law(p) * np.exp(noise * np.random.default_rng(seed).normal(size=p.size))
    return Runs.of(p, seconds, size=np.full(p.size, size))


def amdahl(s: float, w: float) -> Law:
    return lambda p: s + w / p


def predicted(predictor: Predictor, problem: str, ranks: float, size: float | None = None) -> Prediction:
    answer = predictor.predict(problem, ranks, size=size)
    assert isinstance(answer, Prediction), answer
    return answer


def refused(predictor: Predictor, problem: str, ranks: float, size: float | None = None) -> str:
    answer = predictor.predict(problem, ranks, size=size)
    assert isinstance(answer, Refusal), answer
    return answer.reason


@pytest.mark.parametrize(
    ("law", "error"),
    [
        (amdahl(1.0, 100.0), 0.08),
        (lambda p: 100 / p, 0.2),
        (lambda p: np.full(p.size, 42.0), 0.02),
        (lambda p: 100 / p + 0.5 * np.sqrt(p), 0.4),
        (lambda p: p, 0.02),
        (lambda p: np.maximum(100 / p, 15.0), 0.2),
    ],
    ids=["Amdahl", "ideal", "weak", "growing overhead", "growing", "floor"],
)
def test_curves_of_known_shape_go_on_as_they_do(law, error):
    at = 64
    answer = predicted(fit({"a": runs(law)}), "a", at)
    truth = float(law(np.array([float(at)]))[0])
    assert answer.expected_seconds == pytest.approx(truth, rel=error)
    assert answer.lower_seconds < truth < answer.upper_seconds


def test_overhead_that_a_problem_has_not_met_is_taken_from_the_others():
    """Same overhead of 1 s beside 100, 400, 1,600 s of work: at 8 ranks the largest shows none of it."""
    large = runs(amdahl(1.0, 1600.0), (1, 2, 4, 8))
    others = {str(w): runs(amdahl(1.0, w), (1, 2, 4, 8, 16, 32, 64)) for w in (100.0, 200.0, 400.0, 800.0)}
    truth = 1 + 1600 / 256
    alone = predicted(fit({"large": large}), "large", 256)
    pooled = predicted(fit({"large": large, **others}), "large", 256)
    assert pooled.expected_seconds == pytest.approx(truth, rel=0.05)
    assert (pooled.upper_seconds / pooled.lower_seconds) ** 1.5 < alone.upper_seconds / alone.lower_seconds
    assert (alone.pooled_from, pooled.pooled_from) == (0, 4)


def test_the_interval_widens_with_distance_and_with_the_differences_of_repeats():
    quiet = fit({"a": runs(amdahl(1.0, 100.0))})
    widths = [(one := predicted(quiet, "a", p)).upper_seconds / one.lower_seconds for p in (16, 32, 128, 512)]
    assert widths == sorted(widths)
    loud = fit({"a": runs(amdahl(1.0, 100.0), SCALES * 5, noise=0.3)})
    at = predicted(loud, "a", 16)
    assert at.upper_seconds / at.lower_seconds > 2 * widths[0]


def test_the_only_scale_is_predicted_from_its_runs():
    for count, reach in ((1, 3.0), (3, 1.2)):
        seconds = [100.0, 101.0, 99.0][:count]
        one = fit({"a": Runs.of([4] * count, seconds)})
        at = predicted(one, "a", 4)
        assert (at.runs, at.scales, at.largest_ranks, at.pooled_from) == (count, 1, 4, 0)
        assert at.expected_seconds == pytest.approx(100, rel=0.001)
        limits = runtime_limits(seconds)
        assert limits is not None
        assert (at.lower_seconds, at.upper_seconds) == pytest.approx((limits.lower, limits.upper))
        assert np.exp(at.logarithms.quantile(0.975)) == pytest.approx(at.upper_seconds)
        assert bool(at.warnings) == (count < 3)
        assert at.upper_seconds / at.lower_seconds < reach
        assert isinstance(one.predict("a", 8), Refusal)


def test_problems_at_one_scale_do_not_show_what_more_ranks_do():
    predictor = fit({"a": Runs.of([4] * 3, [18.5, 20.0, 21.1]), "b": Runs.of([4], [42.0])})
    assert refused(predictor, "a", 8) == (
        "a was seen at 4 ranks only and no problem of the application at two scales, expected runs at two"
    )
    assert predicted(predictor, "b", 4).expected_seconds == pytest.approx(42.0)


def test_a_scale_that_was_run_three_times_is_predicted_from_these_runs():
    odd = Runs.of([1, 2, 4, 8, 8, 8, 16], [100, 50, 25, 40, 40.5, 39.5, 7])
    known = fit({"a": odd})
    at = predicted(known, "a", 8)
    assert at.expected_seconds == pytest.approx(40, rel=0.01)
    assert at.lower_seconds > 35
    assert at.upper_seconds < 45


def test_a_scale_that_was_run_twice_is_predicted_from_its_runs_and_from_those_of_the_others():
    """Runs differ by a fifth, as repeats show: the law of six scales is nearer to the truth than the runs of one."""
    errors, alone = [], []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        ranks = np.repeat(2.0 ** np.arange(6), 2)
        seconds = (1 + 100 / ranks) * rng.lognormal(0, 0.2, ranks.size)
        at = predicted(fit({"a": Runs.of(ranks, seconds)}), "a", 8)
        errors.append(abs(math.log(at.expected_seconds / 13.5)))
        alone.append(abs(np.log(seconds[ranks == 8]).mean() - math.log(13.5)))
    assert np.mean(errors) < 0.85 * np.mean(alone)


def test_what_cannot_be_predicted_is_refused_with_the_reason():
    one = fit({"a": runs(amdahl(1, 100), (4, 4, 4))})
    assert refused(one, "a", 8).startswith("a was seen at 4 ranks only")
    assert refused(fit({}), "a", 8).startswith("a was never seen, and near 8 ranks 0 other problems have run")
    five = fit({"a": runs(amdahl(1, 100))})
    assert refused(five, "a", 1601) == (
        "a was seen at 16 ranks at most and 1,601 were asked for, expected at most a factor of 100 between"
    )
    wild = fit({"a": Runs.of([1, 2, 4, 8, 16], [10, 900, 2, 3000, 1])})
    assert any("times apart" in text for text in predicted(wild, "a", 64).warnings)
    wilder = fit({"a": Runs.of([1, 2, 4, 8, 16], [1e-3, 9e9, 2e-3, 3e9, 1e-3])})
    answer = predicted(wilder, "a", 64)
    assert answer.upper_seconds / answer.expected_seconds == pytest.approx(MAX_REACH)
    assert any("too few or too irregular" in text for text in answer.warnings)
    with pytest.raises(ValueError, match="ranks are 1e\\+09, expected a whole number from 1 to 100000000"):
        five.predict("a", 10**9)


def test_one_scale_or_none_is_enough_where_the_application_is_known():
    known = {f"{w:g}": runs(amdahl(1.0, w)) for w in (90.0, 100.0, 110.0, 120.0)}
    predictor = fit({**known, "new": runs(amdahl(1.0, 105.0), (4,))})
    assert predicted(predictor, "new", 32).expected_seconds == pytest.approx(1 + 105 / 32, rel=0.15)
    stranger = predicted(predictor, "never seen", 32)
    assert stranger.runs == stranger.scales == stranger.largest_ranks == 0
    assert stranger.upper_seconds / stranger.lower_seconds > 3
    assert "never seen" in " ".join(stranger.conditions)


def test_a_size_never_run_is_predicted_from_the_others():
    sizes = (1e6, 2e6, 4e6, 8e6)
    parts = [runs(amdahl(1e-7 * n, 1e-4 * n), size=n) for n in sizes]
    everything = parts[0]
    for part in parts[1:]:
        everything = everything.joined(part)
    predictor = fit({"a": everything})
    truth = 1e-7 * 16e6 + 1e-4 * 16e6 / 64
    answer = predicted(predictor, "a", 64, size=16e6)
    assert answer.expected_seconds == pytest.approx(truth, rel=0.15)
    assert answer.lower_seconds < truth < answer.upper_seconds
    assert refused(predictor, "a", 64) == "the runs have 4 sizes and none was asked for, expected a size"


def test_a_refit_learns_what_differs_and_leaves_the_predictor_before_it_as_it_was(monkeypatch):
    fitted = []
    monkeypatch.setattr(
        predictor_module, "ShapeEvidence", lambda some, misfit: fitted.append(len(some)) or ShapeEvidence(some, misfit)
    )
    sized = Runs.of([4, 16, 64, 4, 16, 64], [90, 24, 8, 180, 47, 15], size=[1, 1, 1, 2, 2, 2])
    known = {"a": runs(amdahl(1, 100)), "b": runs(amdahl(2, 300), (1, 2, 4)), "gone": runs(amdahl(5, 50)), "s": sized}
    first = fit(known)
    before = {problem: first.predict(problem, 64, size=2 if problem == "s" else None) for problem in known}
    now = {"s": sized, "a": known["a"], "b": known["b"].joined(Runs.of([8], [40.0])), "new": runs(amdahl(3, 200))}
    fitted.clear()
    refitted = first.refitted(now)
    assert sorted(fitted) == sorted(len(MISFITS) * [len(now["b"]), len(now["new"])])
    assert {problem: first.predict(problem, 64, size=2 if problem == "s" else None) for problem in known} == before
    at_once = fit(now)
    for problem in now:
        one, other = (predicted(each, problem, 64, size=2 if problem == "s" else None) for each in (refitted, at_once))
        assert one == other
    assert refitted.weights.by_case == at_once.weights.by_case
    assert predicted(refitted, "gone", 64).runs == 0


def test_state_survives_pickling():
    predictor = fit({"a": runs(amdahl(1, 100)), "b": runs(amdahl(2, 300))})
    expected = predictor.predict("a", 64)
    assert pickle.loads(pickle.dumps(predictor)).predict("a", 64) == expected


@settings(deadline=None, max_examples=20)
@given(factor=st.floats(1e-3, 1e3), problem=st.sampled_from(["a", "b"]))
def test_another_unit_of_time_changes_the_unit_of_the_answer_only_alone(factor, problem):
    """Priors know ratios and ranks, no seconds; the pool's cells of 0.5 in log seconds leave a little."""
    laws = {"a": runs(amdahl(1, 100)), "b": runs(amdahl(2, 300), (1, 2, 4))}
    other = {name: Runs.of(r.ranks, r.seconds * factor) for name, r in laws.items()}
    one, two = predicted(fit(laws), problem, 32), predicted(fit(other), problem, 32)
    assert two.expected_seconds / one.expected_seconds == pytest.approx(factor, rel=0.1)


def test_likelihood_is_the_product_of_forecasts_of_each_scale_from_the_smaller():
    """Two ways to the same weights: all scales at once, and scale by scale. They differ by what neither a shape nor a
    prior of the spread changes."""
    history, differences = runs(amdahl(1, 100), noise=0.05), []
    for spread in (0.01, 0.04, 0.2):
        whole = ShapeEvidence(history).fitted().log_likelihood(spread)
        steps = np.zeros(whole.size)
        for count in range(1, len(SCALES)):
            seen = ShapeEvidence(history.select(np.arange(count)))
            means, spreads = seen.at(float(SCALES[count]), spread)
            y = np.log(history.seconds[count])
            steps += student_t.logpdf((y - means) / spreads, seen.freedom) - np.log(spreads)
        differences.append((whole - steps)[posterior(whole, np.zeros(whole.size)) > 1e-6])
    assert np.ptp(np.concatenate(differences)) < 1e-6


def test_quantiles_that_are_found_together_are_the_roots_of_the_distribution_function():
    """Of mixtures with components that are far apart, narrow, heavy-tailed, light or stretched on either side."""
    rng = np.random.default_rng(4)
    levels = [1e-4, 0.025, 0.5, 0.975, 0.9999]
    for count in (1, 2, 40):
        for _ in range(10):
            freedom = rng.choice([1.0, 4.0, 30.0], count)
            spreads = 10 ** rng.uniform(-4, 1, count)
            plain = Mixture(rng.dirichlet(np.full(count, 0.3)), rng.normal(0, 20, count), spreads, freedom)
            other = Mixture.single(3.0, 0.1, 4.0).widened(2.0, 3.0)
            for mixture in (plain, plain.widened(1.8, 1.4), Mixture.joined([(0.3, plain), (0.7, other)])):
                found = mixture.quantiles(levels)
                roots = [brentq(lambda x, of, p: 1 - of.tail(x) - p, -1e6, 1e6, (mixture, p), 1e-12) for p in levels]
                assert found == pytest.approx(roots, abs=1e-8, rel=1e-8)


def test_a_problem_keeps_its_runs_and_weights_and_not_what_thousands_of_shapes_left_of_them():
    def kept(count: int) -> int:
        problems = {f"input={n}": runs(amdahl(n, 100), SCALES) for n in range(1, count + 1)}
        predictor = fit(problems)
        predicted(predictor, "input=1", 64)
        return len(pickle.dumps(predictor))

    assert (kept(8) - kept(4)) / 4 < 32_000  # a column of the shapes has as many bytes
    assert kept(1) < 100_000


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"ranks": [1, 2], "seconds": [1.0, 0.0]}, "run 1: seconds are 0, expected a number from 1e-09 to 1e+12"),
        ({"ranks": [1, 2], "seconds": [1.0, -3.0]}, "run 1: seconds are -3, expected a number from 1e-09 to 1e+12"),
        ({"ranks": [1, 2], "seconds": [np.nan, 1.0]}, "run 0: seconds are nan, expected a number from 1e-09 to 1e+12"),
        ({"ranks": [0, 2], "seconds": [1.0, 1.0]}, "run 0: ranks are 0, expected a whole number from 1 to 100000000"),
        ({"ranks": [1.5], "seconds": [1.0]}, "run 0: ranks are 1.5, expected a whole number from 1 to 100000000"),
        ({"ranks": [10**9], "seconds": [1.0]}, "run 0: ranks are 1e+09, expected a whole number from 1 to 100000000"),
        ({"ranks": [4], "seconds": [1.0], "nodes": [8]}, "run 0: nodes are 8, expected at most the number of ranks"),
        (
            {"ranks": [4], "seconds": [1.0], "size": [np.nan]},
            "run 0: size is nan, expected a number from 1e-99 to 1e+99",
        ),
        ({"ranks": [4, 8], "seconds": [1.0]}, "seconds has 1 values, expected 2 as ranks has"),
    ],
)
def test_runs_that_cannot_be_are_refused_by_row_and_value(columns, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole text is compared
        Runs.of(**columns)
    assert str(error.value) == message


def test_answers_do_not_depend_on_the_order_of_runs():
    history = runs(amdahl(1, 100), SCALES * 2, noise=0.05)
    expected = predicted(fit({"a": history}), "a", 64).expected_seconds
    for order in itertools.islice(itertools.permutations(range(10)), 1, 4000, 1000):
        shuffled = history.select(np.array(order))
        assert predicted(fit({"a": shuffled}), "a", 64).expected_seconds == pytest.approx(expected, rel=1e-9)
