"""The expected work of the slowest rank on values whose truth is known."""

import numpy as np
import pytest

from barograph_modeler.forecasts.parts.maximum import Deviations, deviations_of, expected_slowest, last_of_nodes


def rng():
    return np.random.default_rng(3)


def test_the_slowest_of_normal_ranks_is_that_of_simulated_ones():
    """Nodes differ by 3 %, ranks in a node by 2 %, intervals by 1 %; 256 nodes of 16 ranks."""
    r = rng()
    b, w = 0.03 * r.standard_normal((400, 256, 1)), 0.02 * r.standard_normal((400, 256, 16))
    e = 0.01 * r.standard_normal((400, 256, 16))
    simulated = 1 + (b + w + e).max(axis=(1, 2))
    deviations = deviations_of(0.01 * r.standard_normal(20_000), np.ones(20_000))
    mean, lasting = expected_slowest(deviations, np.array([0.03]), np.array([0.02]), 16, np.array([256.0]))
    assert mean[0, 0] == pytest.approx(simulated.mean(), abs=0.002)
    assert lasting[0, 0] == pytest.approx(simulated.std(), rel=0.2)


def test_ranks_of_one_node_that_share_its_speed_have_a_smaller_maximum():
    none = Deviations(np.zeros(1), np.ones(1))
    spread, little = np.array([0.03]), np.array([0.001])
    shared, _ = expected_slowest(none, spread, little, 16, np.array([16.0]))
    apart, _ = expected_slowest(none, spread, little, 1, np.array([256.0]))
    assert shared[0, 0] < apart[0, 0] - 0.01


def test_the_tail_goes_on_beyond_the_largest_value_seen():
    """Exponential deviations: the expected maximum of 100,000 is log 100,000 + 0.577."""
    seen = rng().exponential(size=5000)
    found = deviations_of(seen, np.ones(5000))
    assert found.values[-1] > seen.max()
    mean, _ = expected_slowest(found, np.zeros(1), np.zeros(1), 1, np.array([1e5]))
    assert mean[0, 0] - 1 == pytest.approx(np.log(1e5) + 0.577, rel=0.15)


@pytest.mark.parametrize("lasting", [0.0, 0.05, 0.5], ids=["alike", "differ", "one is far behind"])
def test_the_last_of_several_nodes_is_later_than_the_last_on_average(lasting):
    nodes, per_node, intervals = 6, 4, 20_000
    jitter = 0.1 * rng().standard_normal((intervals, nodes, per_node))
    node_arrivals = 1 + lasting * np.arange(nodes) / nodes + jitter.max(axis=2)
    means = node_arrivals.mean(axis=0)
    values = np.quantile(jitter, (np.arange(200) + 0.5) / 200)
    found = last_of_nodes(Deviations(values, np.full(200, 1 / 200)), per_node, means)
    assert found == pytest.approx((node_arrivals.max(axis=1) - means.max()).mean(), abs=0.005)
