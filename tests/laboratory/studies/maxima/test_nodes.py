import math

import numpy as np
import pytest

from barograph_lab.studies.maxima import nodes
from barograph_lab.studies.maxima.nodes import inter_node, intra_node

NODES, PER_NODE, INTERVALS = 8, 4, 400
RANKS = 2048
BOTH = pytest.mark.parametrize("bootstrap", [inter_node, intra_node])


def gumbel_times(seed, spread=0.0):
    """Times of ranks: Gumbel of location 100 and scale 2, with node effects of standard deviation `spread`."""
    rng = np.random.default_rng(seed)
    return rng.gumbel(100, 2, size=(NODES, PER_NODE, INTERVALS)) + spread * rng.normal(size=(NODES, 1, 1))


@BOTH
@pytest.mark.parametrize("method", ["pwm", "mom"])
def test_expected_maximum_of_independent_ranks_is_projected(bootstrap, method):
    truth = 100 + 2 * (math.log(RANKS) + np.euler_gamma)
    found = bootstrap(gumbel_times(1), RANKS, seed=1, method=method)
    assert found.lower < truth < found.upper
    assert found.expected == pytest.approx(truth, abs=2.0)
    assert found.upper - found.lower < 15


@BOTH
def test_at_the_scale_observed_the_mean_maximum_is_projected(bootstrap):
    times = gumbel_times(2)
    found = bootstrap(times, NODES * PER_NODE, seed=1)
    assert found.expected == pytest.approx(times.max(axis=(0, 1)).mean(), abs=0.6)


def test_each_node_is_projected_alone_so_that_unlike_nodes_widen_the_limits():
    like, unlike = (inter_node(gumbel_times(3, spread), RANKS, seed=1) for spread in (0.0, 10.0))
    assert unlike.upper - unlike.lower > 2 * (like.upper - like.lower)
    # The maximum over one rank of each node is that of the slowest node, so all rank indices are alike.
    pooled = intra_node(gumbel_times(3, 10.0), RANKS, seed=1)
    assert pooled.upper - pooled.lower < unlike.upper - unlike.lower


@pytest.mark.parametrize(("count", "replicas"), [(1, 1000), (8, 1000), (20, 1000), (24, 1200)])
def test_50_replicas_for_each_series_and_at_least_1000_in_all(count, replicas):
    times = np.random.default_rng(1).gumbel(size=(count, 3, 30))
    assert inter_node(times, 100, seed=1).replicas == replicas
    assert intra_node(times.transpose(1, 0, 2), 100, seed=1).replicas == replicas


@BOTH
def test_results_depend_on_the_seed_and_times_are_not_modified(bootstrap):
    times = gumbel_times(4)
    before = times.copy()
    first = bootstrap(times, RANKS, seed=1)
    assert bootstrap(times, RANKS, seed=1) == first
    assert bootstrap(times, RANKS, seed=2) != first
    assert (times == before).all()


@BOTH
def test_constant_times_are_projected_as_they_are(bootstrap):
    found = bootstrap(np.full((2, 2, 20), 0.5), 64, seed=1)
    assert (found.lower, found.expected, found.upper) == (0.5, 0.5, 0.5)


def test_bad_arguments_are_refused_by_name():
    with pytest.raises(
        ValueError, match=r"^times have shape \(3, 20\), expected \(nodes, ranks of a node, intervals\)$"
    ):
        inter_node(np.ones((3, 20)), 64, seed=1)
    with pytest.raises(ValueError, match=r"^times have 14 intervals, expected at least 15$"):
        inter_node(np.ones((3, 2, 14)), 64, seed=1)
    times = np.ones((3, 2, 20))
    times[2, 1, 5] = math.inf
    with pytest.raises(ValueError, match=r"^time of node 2 rank 1 interval 5 is inf, expected finite numbers$"):
        intra_node(times, 64, seed=1)
    with pytest.raises(ValueError, match=r"^scale factor is 0.5, expected at least 1$"):
        inter_node(np.ones((3, 2, 20)), 1, seed=1)
    assert nodes.SERIES_REPLICAS == 50
