"""Laws of phases on values whose truth is known."""

import numpy as np
import pytest

from barograph_modeler.parts.communication import LinearLaw, collective_terms
from barograph_modeler.parts.growth import PowerLaw
from barograph_modeler.parts.maximum import Deviations, deviations_of, expected_slowest, last_of_nodes
from barograph_modeler.parts.measurement import PhaseMeasurement, PhaseRun
from barograph_modeler.parts.predictor import PhasesPredictor
from barograph_modeler.parts.work import WorkLaw


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


def test_small_problems_on_few_ranks_show_how_work_goes_on():
    """Work falls by 40 % below a load of 100, which only small problems had; full nodes slow all ranks."""

    def law(load, r):
        return load * (1 - 0.4 / (1 + (load / 100) ** 2)) * (1 + 0.1 * np.log2(r))

    rows = [(n / p, min(p, 8)) for n in (6400, 51200, 409600) for p in (1, 2, 4, 8, 16, 32, 64)]
    loads, per_node = np.array(rows).T
    found = WorkLaw(loads, per_node, law(loads, per_node)).draw(200.0, 8.0, 400, rng())
    assert np.median(found) == pytest.approx(law(200.0, 8.0), rel=0.03)


def test_a_tree_is_learned_on_few_nodes():
    nodes, per_node = np.array([1, 1, 1, 2, 4, 8.0]), np.array([2, 4, 8, 8, 8, 8.0])
    law = LinearLaw(
        collective_terms(nodes, per_node, np.zeros(6)), 1 * np.log2(per_node) + 5 * np.log2(nodes), 50, rng()
    )
    found = law.draw(collective_terms(np.array([1024.0]), np.array([8.0]), np.zeros(1))[0], rng())
    assert np.median(found) == pytest.approx(3 + 50, rel=0.05)


@pytest.mark.parametrize("lasting", [0.0, 0.05, 0.5], ids=["alike", "differ", "one is far behind"])
def test_the_last_of_several_nodes_is_later_than_the_last_on_average(lasting):
    nodes, per_node, intervals = 6, 4, 20_000
    jitter = 0.1 * rng().standard_normal((intervals, nodes, per_node))
    node_arrivals = 1 + lasting * np.arange(nodes) / nodes + jitter.max(axis=2)
    means = node_arrivals.mean(axis=0)
    values = np.quantile(jitter, (np.arange(200) + 0.5) / 200)
    found = last_of_nodes(Deviations(values, np.full(200, 1 / 200)), per_node, means)
    assert found == pytest.approx((node_arrivals.max(axis=1) - means.max()).mean(), abs=0.005)


def test_counts_that_grow_with_size_go_on_growing():
    sizes = np.array([1e3, 1e4, 1e5, 1e6])
    found = PowerLaw(sizes, np.ones(4), 10 * sizes**0.33).draw(1e8, 1.0, 200, rng())
    assert np.median(found) == pytest.approx(10 * 1e8**0.33, rel=0.1)


def test_few_runs_and_odd_classes_are_errors():
    one = PhaseMeasurement(200, 0.1, 0.0, 0.0, np.zeros(1), np.ones(1), 0.1, 0.0, 0.0, 0.0, 1e-4, 8.0)
    runs = [PhaseRun(ranks, 1, 1.0, 30.0, 9.0, {"site 0": one}) for ranks in (1, 2, 4, 8)]
    with pytest.raises(ValueError, match="3 runs, expected at least 4"):
        PhasesPredictor(runs[:3])
    odd = PhaseRun(8, 1, 1.0, 1.0, 0.0, {"elsewhere": next(iter(runs[0].phases.values()))})
    with pytest.raises(ValueError, match="a run has classes elsewhere, expected site 0"):
        PhasesPredictor([*runs, odd])
    with pytest.raises(ValueError, match="nodes are 9, expected 1 to 8"):
        PhaseRun(8, 9, 1.0, 1.0, 0.0, {})
