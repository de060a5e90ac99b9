"""The grey-box model: its vectors, its learners and its use in the back-test; Oliveira's model."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barograph_lab.studies.greybox.fraction import TooFewRuns
from barograph_lab.studies.greybox.greybox import METHODS, GreyBox, Softplus
from barograph_lab.studies.greybox.oliveira import LOWER, UPPER, Oliveira, minimize
from barograph_lab.studies.greybox.samples import Points, contexts, vectors, with_originals
from barograph_lab.studies.greybox.speedup import overhead, speedup
from barograph_lab.studies.rivals.papers import MODELS
from barograph_modeler.scaling.history import Runs

SHARE = 0.95
SCALES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]

each_method = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)


def tau_of(n, m):
    """An overhead that grows with the ranks, more slowly for large problems."""
    return 1 / (1 + 0.02 * n / m**0.3)


def application(factor=tau_of, scales=SCALES, sizes=(1.0, 2.0, 4.0), nodes=None):
    """Points of an application with a known overhead, w = 1, serial time m; and its runs."""
    n, m = (grid.ravel().astype(float) for grid in np.meshgrid(scales, sizes))
    seconds = m / (speedup(n, 1, SHARE) * factor(n, m))
    runs = Runs.of(n, seconds, size=m, nodes=None if nodes is None else nodes(n))
    group = np.unique(m, return_inverse=True)[1].astype(np.intp)
    return Points.of(runs, group, np.ones(n.size), overhead(seconds, m, n, 1, SHARE)), runs


@given(st.integers(0, 1000), st.sampled_from([8.0, 16.0, 32.0]))
@settings(max_examples=25)
def test_vectors_are_four_runs_up_to_half_the_cutoff_and_one_beyond_of_one_size(seed, c_f):
    points, _ = application()
    targets = np.flatnonzero((points.ranks > c_f / 2) & (points.ranks <= c_f))
    x = vectors(points, targets, contexts(points, c_f / 2), 1, np.random.default_rng(seed))
    assert x.shape == (targets.size, 16)
    original, w, body = x[:, 0], x[:, 1], np.concatenate([x[:, 2:], points.tau[targets, None]], axis=1)
    ranks, size, tau = np.moveaxis(body.reshape(-1, 5, 3), 2, 0)
    assert ((ranks[:, :4] > 1) & (ranks[:, :4] <= c_f / 2)).all()
    assert ((ranks[:, 4] > c_f / 2) & (ranks[:, 4] <= c_f)).all()
    assert (size == size[:, :1]).all()
    assert np.allclose(tau, tau_of(ranks, size))
    assert (original == size[:, 0]).all()
    assert (w == 1).all()
    if c_f >= 16:  # pools of at least four runs
        assert all(len(set(row)) == 4 for row in ranks[:, :4])


def test_two_levels_of_parallelism_add_nodes_and_ranks_per_node():
    points, _ = application(nodes=lambda n: np.ceil(n / 4))
    assert points.levels == 2
    targets = np.flatnonzero(points.ranks == 32)
    x = vectors(points, targets, contexts(points, 16), points.levels, np.random.default_rng(0))
    assert x.shape == (3, 26)
    assert x[0, -4:].tolist() == [32, 8, 4, 1]  # N, nodes, per node, m
    one_level, _ = application(nodes=lambda n: n)
    assert one_level.levels == 1


def test_the_time_of_a_run_does_not_affect_its_own_prediction():
    points, _ = application()
    targets = np.flatnonzero(points.ranks > 16)
    model = GreyBox(METHODS[0], points.select(points.ranks <= 16), 16, seed=0)
    before = model.predict(points, targets, 8)
    blind = Points(**(vars(points) | {"tau": np.where(points.ranks > 16, np.nan, points.tau)}))
    assert (before == model.predict(blind, targets, 8)).all()


@each_method
def test_where_amdahls_law_is_exact_the_overhead_is_1(method):
    points, _ = application(factor=lambda n, m: np.ones_like(n))
    targets = np.flatnonzero((points.ranks > 8) & (points.ranks <= 16))
    tau = GreyBox(method, points.select(points.ranks <= 16), 16, seed=1).predict(points, targets, 8)
    assert tau == pytest.approx(1, abs=0.02)


@each_method
def test_the_overhead_is_learned_at_the_targets_and_depends_on_the_seed_only(method):
    points, _ = application()
    targets = np.flatnonzero((points.ranks > 16) & (points.ranks <= 32))
    model = GreyBox(method, points, 32, seed=1)
    tau = model.predict(points, targets, 16)
    assert tau == pytest.approx(points.tau[targets], rel=0.1)
    assert (GreyBox(method, points, 32, seed=1).predict(points, targets, 16) == tau).all()


def test_the_network_minimizes_the_squared_error_of_tau_not_of_its_linear_output():
    rng = np.random.default_rng(0)
    # Constant inputs: the best constant for tau is its mean; that for log(exp(tau) - 1) is far below.
    tau = rng.choice([0.02, 1.0], 500)
    constant = Softplus(0).fit(np.zeros((tau.size, 16)), tau).predict(np.zeros((1, 16)))[0]
    of_linear_output = np.logaddexp(0, np.mean(np.log(np.expm1(tau))))
    assert constant == pytest.approx(tau.mean(), abs=0.02)
    assert of_linear_output < tau.mean() - 0.3


@each_method
def test_a_size_far_from_the_only_learned_one_has_a_bounded_prediction(method):
    points, _ = application(sizes=(1e3, 1e9))
    trained = (points.size == 1e3) & (points.ranks <= 16)
    model = GreyBox(method, points.select(trained), 16, seed=0)
    found = model.predict(points, np.flatnonzero((points.size == 1e9) & (points.ranks == 16)), 8)
    assert 0.5 < found[0] < 2


def test_no_size_with_runs_on_both_sides_of_half_the_cutoff_is_refused():
    points, _ = application(scales=[1, 2])
    with pytest.raises(TooFewRuns, match="no size has runs with 1 < N <= c_h and runs with c_h < N <= c_f"):
        GreyBox(METHODS[0], points, 2, seed=0)


def test_a_size_without_runs_at_small_scale_has_no_prediction():
    points, _ = application()
    alone = Points(**(vars(points) | {"group": np.where(points.size == 4, 99, points.group).astype(np.intp)}))
    kept = alone.select((alone.size < 4) | (alone.ranks > 16))
    model = GreyBox(METHODS[0], kept.select(kept.ranks <= 16), 16, seed=0)
    found = model.predict(kept, np.flatnonzero(kept.ranks == 32), 8)
    assert np.isnan(found).tolist() == [False, False, True]


def test_training_vectors_pair_runs_with_the_serial_run_of_every_size_up_to_theirs():
    """Section 3: m_original is the size of a serial run, w = m_original / m, and tau is over that serial run."""
    points, runs = application()
    serial = {1.0: 1.0, 2.0: 2.2, 4.0: 5.0}  # not in proportion to the work
    own = Points.of(
        runs, points.group, points.w, overhead(runs.seconds, [serial[m] for m in runs.size], runs.ranks, 1, SHARE)
    )
    paired = with_originals(own, serial)
    pairs = set(zip(paired.size.tolist(), (paired.w * paired.size).tolist(), strict=True))
    assert pairs == {(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4)}
    assert len(set(paired.group.tolist())) == 6
    seconds = paired.size / (speedup(paired.ranks, 1, SHARE) * tau_of(paired.ranks, paired.size))
    originals = np.array([serial[m] for m in np.rint(paired.w * paired.size)])
    assert paired.tau == pytest.approx(overhead(seconds, originals, paired.ranks, paired.w, SHARE))


def test_repeats_and_originals_are_one_training_target():
    points, _ = application()
    small = points.select(points.ranks <= 16)
    alone = GreyBox(METHODS[0], small, 16, seed=0)
    assert alone.targets == 6  # 12 and 16 ranks of three sizes
    paired = with_originals(small.joined(small), {1.0: 1.0, 2.0: 2.0, 4.0: 4.0})
    assert GreyBox(METHODS[0], paired, 16, seed=0).targets == 6


def test_extrapolated_features_are_named_with_their_distance():
    points, _ = application()
    learned = points.select((points.ranks <= 16) & (points.size <= 2))
    model = GreyBox(METHODS[0], learned, 16, seed=0)
    inside = model.beyond(points, np.flatnonzero((points.ranks == 12) & (points.size == 2)), 8)
    assert inside == {}
    found = model.beyond(points, np.flatnonzero((points.ranks == 32) & (points.size == 4)), 8)
    # 32 ranks where 12 to 16 were learned; size 4 where 1 to 2 were; w is 1 throughout.
    assert found.pop("tau", 0.0) < 0.5
    assert found == {"processes": 4.0, "m": 2.0, "m_original": 2.0}


# In the back-test


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_a_model_gives_a_curve_or_a_reason_and_positive_seconds_or_nan(model):
    _, runs = application(scales=[1, 2, 4, 8, 16])
    one_scale = Runs.of([4, 4], [1.0, 1.1], size=[3, 3])
    curves = model.fit({"good": runs, "one scale": one_scale}, 0)
    assert isinstance(curves["one scale"], str)
    assert "expected" in curves["one scale"]
    curve = curves["good"]
    assert not isinstance(curve, str)
    nodes = np.full(4, np.nan)
    known = curve(np.array([1.0, 8.0, 32.0, 1e6]), nodes, np.full(4, 2.0))
    assert (known > 0).all()
    unseen = curve(np.array([8.0]), nodes[:1], np.array([3.0]))
    assert np.isnan(unseen[0]) or unseen[0] > 0


@each_method
def test_problems_of_one_application_are_learned_together(method):
    model = next(model for model in MODELS if model.name == method.name)
    _, runs = application()
    problems = {str(m): runs.select(runs.size == m) for m in (1.0, 2.0, 4.0)}
    curves = model.fit(problems, 0)
    for name, curve in curves.items():
        assert not isinstance(curve, str)
        part = problems[name].select(problems[name].ranks > 16)
        assert curve(part.ranks, part.nodes, part.size) == pytest.approx(part.seconds, rel=0.1)


# Oliveira's model and its particle swarm


@given(st.integers(0, 50))
@settings(max_examples=10, deadline=None)
def test_the_swarm_finds_the_minimum_of_a_paraboloid_and_stays_in_bounds(seed):
    middle = np.array([0.3, -0.7, 0.9])

    def cost(positions):
        assert (np.abs(positions) <= 1).all()
        return np.sum((positions - middle) ** 2, axis=1)

    assert minimize(cost, -np.ones(3), np.ones(3), seed=seed, particles=30, iterations=200) == pytest.approx(
        middle, abs=1e-3
    )


def test_oliveiras_speedup_by_hand():
    # f = 0.5 + 1/4 + 0.5 * 0.5**1 = 1, so S = 1 / (0 + 1/4 + Q), Q = 0.1 + 0.3 * 4 / 2**1 = 0.7.
    model = Oliveira(np.array([0.5, 1.0, 0.5, 0.5, 0.1, 0.3, 2.0]), smallest=7.0)
    assert model.speedup(np.array([4.0]), np.array([7.0])) == pytest.approx(1 / 0.95)
    # The next size, n = 2: f = 0.5 + 1/4 + 0.125 = 0.875, Q = 0.1 + 1.2 / 4 = 0.4.
    assert model.speedup(np.array([4.0]), np.array([14.0])) == pytest.approx(1 / (0.125 + 0.875 / 4 + 0.4))


def test_oliveiras_model_recovers_its_own_speedups():
    truth = Oliveira(np.array([0.97, 0.0, -0.2, 0.5, 0.002, 0.0004, 1.5]), smallest=1.0)
    n, m = (grid.ravel().astype(float) for grid in np.meshgrid([1, 2, 4, 8, 16, 32], [1, 2, 4]))
    measured = truth.speedup(n, m)
    found = Oliveira.fit(n, m, measured, seed=0)
    assert found.speedup(n, m) == pytest.approx(measured, rel=0.03)
    assert ((found.parameters >= LOWER) & (found.parameters <= UPPER)).all()
