"""The slowest rank of a node and of all nodes: by ranks whose differences are known."""

import numpy as np
import pytest

from barograph.views.intervals import interval_sentences
from barograph_modeler.forecasts.history import Application, WorkloadPlace
from barograph_modeler.forecasts.parts.history import PartsHistory
from barograph_modeler.forecasts.parts.phased_run import PhasedRun
from barograph_modeler.forecasts.parts.slowest import slowest_rank
from helpers.phases import node_rows

INTERVALS = 200


def own_work(nodes: int, per_node: int, seed: int, between: float = 0.06) -> np.ndarray:
    """10 ms per interval, as (nodes, intervals, ranks of a node): nodes differ, ranks differ, and intervals do."""
    rng = np.random.default_rng(seed)
    lasting = between * rng.standard_normal((nodes, 1, 1)) + 0.03 * rng.standard_normal((nodes, 1, per_node))
    return 0.01 * (1 + lasting + 0.04 * rng.standard_normal((nodes, INTERVALS, per_node)))


def measured(own: np.ndarray) -> list[PhasedRun]:
    nodes, _, per_node = own.shape
    history = PartsHistory()
    place = WorkloadPlace("w", Application("lab", "solver"), (), nodes * per_node, nodes)
    for node, work in enumerate(own):
        history.read(node_rows("j", f"n{node}", work))
    history.end("j", place, 10.0)
    return history.of([(place, None)])[place]


def test_the_slowest_of_a_node_and_of_more_nodes_is_that_of_a_larger_machine():
    law = [own_work(128, 4, seed=seed) for seed in range(200, 204)]
    of_node = [np.median(one.max(axis=2).mean(axis=1)) / one.mean() for one in law]
    of_all = [one.max(axis=(0, 2)).mean() / one.mean() for one in law]
    inside = 0
    for seed in range(1, 13):
        runs = measured(own_work(16, 4, seed=seed))
        (class_id,) = runs[0].classes
        found = slowest_rank(runs, class_id, 512, None)
        assert found is not None
        assert (found.per_node, found.nodes) == (4, 128)
        assert found.of_node[1] == pytest.approx(np.mean(of_node), abs=0.02)
        assert found.of_all[1] > found.of_node[1] + 0.05
        inside += sum(found.of_all[0] < one < found.of_all[2] for one in of_all)
    # 48 are promised 95 %: 45.6. Four share a history each.
    assert 40 <= inside <= 47


def test_more_ranks_on_each_node_have_a_slower_one():
    runs = measured(own_work(16, 4, seed=1))
    (class_id,) = runs[0].classes
    found, fuller = (slowest_rank(runs, class_id, 512, nodes) for nodes in (None, 32))
    assert (fuller.per_node, fuller.nodes) == (16, 32)
    assert fuller.of_node[1] > found.of_node[1]


def test_one_node_does_not_show_how_nodes_differ():
    runs = measured(own_work(1, 8, seed=3))
    (class_id,) = runs[0].classes
    found = slowest_rank(runs, class_id, 64, None)
    assert found is not None
    assert (found.nodes, found.of_all) == (8, None)
    assert found.of_node[1] > 1.03
    here = slowest_rank(runs, class_id, 8, None)
    assert here.of_all == here.of_node
    assert slowest_rank(runs, class_id + 1, 8, None) is None


@pytest.mark.parametrize(
    ("slowest", "text"),
    [
        (
            {"per_node": 8, "nodes": 64, "of_node": [1.05, 1.09, 1.1], "of_all": [1.2, 1.214, 1.3]},
            "  The slowest of 8 ranks on a node works 1.09 times as long as a mean rank (1.05 to 1.1); the slowest on"
            " 64 nodes works 1.21 times as long as a mean rank (1.2 to 1.3).",
        ),
        (
            {"per_node": 8, "nodes": 64, "of_node": [1.05, 1.09, 1.1], "of_all": None},
            "  The slowest of 8 ranks on a node works 1.09 times as long as a mean rank (1.05 to 1.1); how nodes differ"
            " is unknown, as all runs had one.",
        ),
    ],
)
def test_the_answer_has_a_line_by_node_and_rank(slowest, text):
    row = {"class": "1", "share": 1.0, "lower_seconds": 1.0, "expected_seconds": 1.0, "upper_seconds": 1.0}
    row |= {"expected_maximum_seconds": 1.0, "method": "tracked", "from_ranks": [512], "slowest": slowest}
    answer = {"ranks": 512, "refusal": None, "level": 0.95, "conditions": [], "intervals": [row]}
    assert interval_sentences(answer, {})[1] == text
