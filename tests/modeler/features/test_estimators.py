"""Models of runtime from features: the paper's formulas by hand, its misprint, and what intervals promise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesRegressor
from threadpoolctl import threadpool_info, threadpool_limits

from barograph_lab.studies.features.runtime import rank_accuracy
from barograph_lab.studies.features.transfer import RatioTransfer, Transfer
from barograph_modeler.features.estimators.conformal import Conformal
from barograph_modeler.features.estimators.expansion import logarithms, ratios
from barograph_modeler.features.estimators.learners import LEARNERS, Estimator, Maker
from barograph_modeler.features.estimators.stack import Stack, held_out
from barograph_modeler.features.estimators.trees import LEAST_VARIANCE, Trees, expanded_columns, importances
from barograph_modeler.features.reduction import by_importance, by_time
from barograph_modeler.features.sample import Sample
from barograph_modeler.maxima.sample import Floats

BY_NAME = {maker.name: maker for maker in LEARNERS}


def solver(n: int, seed: int, *, speed: float = 1.0, noise: float = 0.05) -> Sample:
    """Runs of a program that takes size ** 1.5 / ranks seconds, three times that with solver 2."""
    rng = np.random.default_rng(seed)
    size, ranks = np.round(np.exp(rng.uniform(3, 8, n))), 2.0 ** rng.integers(0, 7, n)
    kind, useless = rng.integers(0, 3, n).astype(float), rng.uniform(0, 1, n)
    seconds = size**1.5 / ranks * np.where(kind == 2, 3.0, 1.0) / speed * np.exp(rng.normal(0, noise, n))
    return Sample(("size", "ranks", "kind", "useless"), np.column_stack([size, ranks, kind, useless]), seconds)


def ape(predicted: np.ndarray, sample: Sample) -> float:
    return float(np.mean(np.abs(predicted / sample.seconds - 1)))


def test_fits_and_predictions_are_made_in_one_thread() -> None:
    def most_threads() -> int:
        return int(max(pool["num_threads"] for pool in threadpool_info()))

    class Counting:
        def __init__(self) -> None:
            self.threads: list[int] = []

        def fit(self, values: Floats, seconds: Floats) -> Counting:
            self.threads.append(most_threads())
            return self

        def predict(self, values: Floats) -> Floats:
            self.threads.append(most_threads())
            return np.ones(len(values))

    counting, values = Counting(), np.ones((20, 1))
    with threadpool_limits(2):
        Estimator(lambda _: counting).fit(Sample(("x",), values, np.ones(20))).predict(values)
        assert most_threads() == 2
    assert counting.threads == [1, 1]


def test_rank_accuracy_counts_pairs_in_their_observed_order() -> None:
    # Of the pairs (1,2) (1,3) (2,3) the prediction 10, 30, 20 turns the last one round.
    assert rank_accuracy(np.array([10.0, 30.0, 20.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(2 / 3)
    assert rank_accuracy(np.array([1.0, 1.0]), np.array([1.0, 2.0])) == 0.0  # a tie decides nothing


@given(st.lists(st.integers(1, 10**6), min_size=2, max_size=30, unique=True))
def test_any_growing_function_of_the_runtime_ranks_perfectly(seconds: list[int]) -> None:
    observed = np.array(seconds, dtype=float)
    assert rank_accuracy(np.log(observed), observed) == 1.0
    assert rank_accuracy(-observed, observed) == 0.0


def test_an_expansion_of_order_d_has_as_many_columns_as_the_paper_says() -> None:
    assert expanded_columns(2, 2) == 5  # a1, a2, a1^2, a1 a2, a2^2, without the constant of equation 4
    assert expanded_columns(18, 3) == math.comb(21, 3) - 1


def test_sigma_follows_the_law_of_total_variance_and_not_the_printed_formula() -> None:
    # Runtimes of 100 s and more with nothing to tell them apart: each tree predicts the mean, with their variance.
    seconds = np.array([100.0, 102.0] * 20)
    sample = Sample(("same",), np.ones((40, 1)), seconds)
    moments = Trees(1).fit(sample).moments(np.ones((1, 1)))
    assert moments.mean[0] == pytest.approx(101.0)
    assert moments.sigma[0] == pytest.approx(1.0)
    printed = math.sqrt(101.0**2 + 1.0 - 101.0)
    assert printed > 100  # "- mu" would be a hundred seconds wide


def test_a_leaf_of_one_run_has_the_least_variance() -> None:
    sample = Sample(("x",), np.arange(12.0)[:, None], np.linspace(50.0, 61.0, 12))
    moments = Trees(1).fit(sample).moments(sample.values)
    assert moments.sigma == pytest.approx(np.full(12, math.sqrt(LEAST_VARIANCE)), rel=1e-3)
    assert moments.mean == pytest.approx(sample.seconds)


def test_importances_follow_algorithm_1_on_each_node() -> None:
    sample = solver(60, 3)
    forest = ExtraTreesRegressor(5, random_state=0).fit(sample.values, sample.seconds)
    by_hand = np.zeros(4)
    for tree in (estimator.tree_ for estimator in forest):
        own = np.zeros(4)
        for node in range(tree.node_count):
            left, right = tree.children_left[node], tree.children_right[node]
            if left != -1:
                sizes, errors = tree.n_node_samples, tree.impurity
                gain = sizes[node] * errors[node] - sizes[left] * errors[left] - sizes[right] * errors[right]
                own[tree.feature[node]] += gain
        by_hand += own / tree.n_node_samples[0]
    assert importances(sample, trees=5) == pytest.approx(by_hand / by_hand.sum())


def test_what_is_known_late_and_what_says_nothing_is_dropped() -> None:
    sample = solver(200, 1)
    known_at = np.column_stack([np.full(200, 0.01), np.full(200, 0.02), 0.9 * sample.seconds, np.full(200, 0.03)])
    assert by_time(known_at * sample.seconds.mean(), sample.seconds, 0.05).tolist() == [0, 1, 3]
    kept = by_importance(sample, 0.95)
    assert sample.names[kept[0]] == "size"
    assert "useless" not in [sample.names[i] for i in kept[:2]]
    assert importances(sample)[kept].sum() >= 0.95 - 1e-9
    assert importances(sample)[kept[:-1]].sum() < 0.95


def test_the_stack_is_no_worse_than_the_best_of_its_members() -> None:
    learned, scored = solver(150, 1), solver(300, 2)
    stack = Stack().fit(learned)
    assert sum(stack.weights.values()) == pytest.approx(1)
    assert min(stack.weights.values()) >= 0
    members = [ape(BY_NAME[name].make(0).fit(learned).predict(scored.values), scored) for name in stack.weights]
    assert ape(stack.predict(scored.values), scored) <= 1.1 * min(members)


def test_the_same_seed_gives_the_same_prediction_and_leaves_its_input_alone() -> None:
    learned, scored = solver(60, 1), solver(20, 2)
    before = learned.values.copy()
    once, again = (Stack(seed=5).fit(learned).predict(scored.values) for _ in range(2))
    assert once.tolist() == again.tolist()
    assert (learned.values == before).all()


def test_conformal_limits_hold_the_share_they_promise_where_errors_differ_from_place_to_place() -> None:
    rng = np.random.default_rng(7)

    def runs(n: int) -> tuple[Sample, np.ndarray]:
        x = rng.uniform(0, 1, n)
        truth = 10 * np.ones(n)
        return Sample(("x",), x[:, None], truth * np.exp(rng.normal(0, 0.02 + 0.3 * (x > 0.7), n))), truth

    (learned, before), (scored, predicted) = runs(2_000), runs(20_000)
    limits = Conformal(learned, before).limits(scored.values, predicted)
    inside = (limits.lower <= scored.seconds) & (scored.seconds <= limits.upper)
    assert 0.93 < inside.mean() < 0.97
    noisy = scored.values[:, 0] > 0.75
    quiet = scored.values[:, 0] < 0.65
    assert np.median((limits.upper / limits.lower)[noisy]) > 1.5 * np.median((limits.upper / limits.lower)[quiet])


def test_limits_between_levels_are_as_far_as_left_out_levels_show() -> None:
    """seconds = 10 exp(bumps of x): a learner that returns the nearest level's is right at levels and wrong between."""
    rng = np.random.default_rng(3)

    def runs(n: int, levels: np.ndarray) -> Sample:
        x, y = rng.choice(levels, n), rng.uniform(0, 1, n)
        return Sample(("x", "y"), np.column_stack([x, y]), 10 * np.exp(0.1 * x + rng.normal(0, 0.02, n)))

    def nearest(sample: Sample) -> Callable[[np.ndarray], np.ndarray]:
        known = np.unique(sample.values[:, 0])
        return lambda values: 10 * np.exp(0.1 * known[np.abs(values[:, :1] - known).argmin(axis=1)])

    learned, between = runs(400, np.arange(1.0, 9.0)), runs(400, np.arange(1.5, 8.5))
    limits = {}
    for name, refit in (("with", nearest), ("without", None)):
        conformal = Conformal(learned, nearest(learned)(learned.values), refit=refit)
        for where, those in (("at", learned), ("between", between)):
            found = conformal.limits(those.values, nearest(learned)(those.values))
            inside = (found.lower <= those.seconds) & (those.seconds <= found.upper)
            limits[name, where] = float(inside.mean())
    assert limits["without", "between"] < 0.6
    assert limits["with", "between"] > 0.85
    assert limits["with", "at"] == pytest.approx(limits["without", "at"], abs=0.02)


def test_too_few_runs_for_a_level_give_no_finite_limits() -> None:
    sample = solver(18, 1)
    limits = Conformal(sample, sample.seconds * 1.1).limits(sample.values, sample.seconds)
    assert np.isinf(limits.upper).all()
    assert (limits.lower == 0).all()


def test_a_few_runs_on_a_new_machine_do_with_a_source_what_they_cannot_do_alone() -> None:
    source = BY_NAME["trees-log"].make(0).fit(solver(800, 1))
    few, rest = solver(20, 2, speed=2.5), solver(400, 3, speed=2.5)
    alone = ape(Trees(1).fit(few).predict(rest.values), rest)
    assert ape(Transfer(source).fit(few).predict(rest.values), rest) < alone / 2
    assert ape(RatioTransfer(source).fit(few).predict(rest.values), rest) < 0.25


def test_held_out_predictions_come_from_learners_that_have_not_seen_the_run() -> None:
    class Memory:
        def fit(self, sample: Sample) -> Memory:
            self.seen = dict(zip(sample.values[:, 0], sample.seconds, strict=True))
            return self

        def predict(self, values: np.ndarray) -> np.ndarray:
            return np.array([self.seen.get(x, 1.0) for x in values[:, 0]])

    sample = Sample(("x",), np.arange(50.0)[:, None], np.full(50, 9.0))
    assert held_out(Maker("memory", "", lambda _: Memory()), sample, 0).tolist() == [1.0] * 50


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 30))
def test_expansions_are_finite_for_zeros_and_negative_numbers(features: int, runs: int) -> None:
    values = np.random.default_rng(features).normal(0, 1e6, (runs, features))
    values[0] = 0
    assert np.isfinite(logarithms(values)).all()
    assert ratios(values).shape == (runs, features**2)


@pytest.mark.parametrize("name", [maker.name for maker in LEARNERS])
def test_every_learner_predicts_positive_seconds_and_refuses_what_is_no_number(name: str) -> None:
    learned = solver(40, 1)
    model = BY_NAME[name].make(0).fit(learned)
    predicted = model.predict(solver(30, 2).values)
    assert (predicted > 0).all()
    with pytest.raises(ValueError, match=r"run 0: feature 'ranks' is nan, expected a finite number"):
        model.predict(np.array([[1.0, math.nan, 0.0, 0.0]]))


@pytest.mark.parametrize(
    ("seconds", "message"),
    [
        ([1.0, 0.0], "run 1 took 0.0 seconds, expected a finite time above 0"),
        ([math.inf, 1.0], "run 0 took inf seconds"),
        ([1.0], r"values are \(2, 1\), expected 1 runs by 1 features"),
    ],
)
def test_a_sample_names_what_is_wrong_with_it(seconds: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sample(("x",), np.array([[1.0], [2.0]]), np.array(seconds))


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(ValueError, match="9 runs, expected at least 10"):
        Stack().fit(solver(9, 1))


@pytest.mark.parametrize("maker", LEARNERS, ids=lambda maker: maker.name)
def test_the_fewest_runs_that_are_taken_do_for_every_learner(maker: Maker) -> None:
    assert np.isfinite(held_out(maker, solver(10, 1), seed=1)).all()
