"""What a program gives to each place among its nodes, learned from healthy runs, and what a node does beyond that."""

from __future__ import annotations

import math

import numpy as np
import pytest

from barograph_alerts.attribution import imbalance
from barograph_alerts.attribution.fleet import NodeRanking
from barograph_alerts.attribution.imbalance import Imbalances
from barograph_alerts.attribution.node_phases import SETTLED_SECONDS, NodeComparison, NodePhases
from barograph_alerts.places import (
    MAX_FREEDOM,
    MAX_RUNS,
    PRIOR_EXCESS,
    NodeRanks,
    PlaceHistory,
    PlaceWork,
    over_median_of_others,
)

NODES = 6
GIVEN = np.array([0.4, 0.0, 0.0, 0.1, -0.2, 0.0])
"""What the program gives to each place, logarithms."""


def work(rng: np.random.Generator, hosts: list[str] | None = None, slow: str = "", factor: float = 1.2) -> PlaceWork:
    """One run, on nodes that differ by 1 %."""
    names = hosts or [f"n{k}" for k in range(NODES)]
    logs = GIVEN[: len(names)] + 0.01 * rng.standard_normal(len(names))
    logs += [math.log(factor) * (name == slow) for name in names]
    return PlaceWork(tuple(names), {1: (100.0, over_median_of_others(logs))})


def test_nodes_are_placed_by_their_lowest_ranks_once_all_ranks_are_known() -> None:
    ranks = NodeRanks()
    ranks.add("c", 0, 2, 6)
    ranks.add("a", 4, 2, 6)
    assert not ranks.is_whole
    assert ranks.places() == ()
    ranks.add("b", 2, 2, 6)
    assert ranks.is_whole
    assert ranks.places() == ("c", "b", "a")
    ranks.add("b", -1, 2, 6)
    assert (ranks.is_whole, ranks.places()) == (True, ())


def test_what_the_program_gives_is_no_excess_of_a_node() -> None:
    rng, history = np.random.default_rng(1), PlaceHistory(NODES)
    for _ in range(4):
        history.add(work(rng))
    beyond = history.beyond(work(rng, slow="n4"))
    assert beyond is not None
    # Of places near the median, which moves as well.
    assert beyond.excess.argmax() == 4
    assert beyond.excess[4] == pytest.approx(math.log(1.2), abs=0.05)
    assert np.abs(np.delete(beyond.excess, 4)).max() < 0.05
    assert beyond.freedom == 4 + 3 * (NODES - 1)


def test_one_run_tells_as_much_as_the_prior_says_and_many_no_more_than_heavy_tails_allow() -> None:
    rng, history = np.random.default_rng(1), PlaceHistory(NODES)
    history.add(work(rng))
    first = history.levels({1: 1.0})
    assert first is not None
    assert first.freedom == 4
    assert first.scale.tolist() == pytest.approx([PRIOR_EXCESS * math.sqrt(2)] * NODES)
    for _ in range(3 * MAX_RUNS):
        history.add(work(rng))
    later = history.levels({1: 1.0})
    assert later is not None
    assert later.freedom == MAX_FREEDOM
    assert (later.scale < first.scale).all()
    assert later.excess.tolist() == pytest.approx(over_median_of_others(GIVEN).tolist(), abs=0.02)


def test_classes_are_weighed_by_their_time_and_unknown_ones_make_it_unknown() -> None:
    history = PlaceHistory(2)
    history.add(PlaceWork(("a", "b"), {1: (1.0, np.array([0.5, -0.5])), 2: (1.0, np.array([0.0, 0.0]))}))
    only, half = history.levels({1: 3.0}), history.levels({1: 1.0, 2: 1.0})
    assert only is not None
    assert half is not None
    assert only.excess.tolist() == pytest.approx([0.5, -0.5])
    assert half.excess[0] == pytest.approx(math.log((math.exp(0.5) + 1) / 2))
    assert history.levels({1: 1.0, 3: 1.0}) is None
    assert history.levels({}) is None
    assert history.beyond(PlaceWork(("a", "b", "c"), {1: (1.0, np.zeros(3))})) is None


def compared(job: str, places: PlaceWork) -> NodeComparison:
    return NodeComparison(job, dict.fromkeys(places.hosts, 0.0), places)


@pytest.mark.parametrize("verdict_first", [True, False])
def test_healthy_runs_are_the_history_of_their_workload_in_whatever_order_rows_come(verdict_first: bool) -> None:
    rng, known = np.random.default_rng(1), Imbalances()
    for job, is_healthy in (("a", True), ("b", False), ("c", True)):
        for is_verdict in (verdict_first, not verdict_first):
            if is_verdict:
                known.add_verdict(job, "w", is_healthy=is_healthy)
            else:
                known.add(compared(job, work(rng, slow="" if is_healthy else "n1", factor=3.0)))
    history = known.places_of("w")
    assert history is not None
    levels = history.levels({1: 1.0})
    assert levels is not None
    assert levels.freedom == 4 + NODES - 1  # of two runs
    assert abs(levels.excess[1]) < 0.05
    assert known.places_of("other") is None


def test_what_is_known_of_places_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imbalance, "MAX_VALUES", 4 * 2 * NODES)
    rng, known = np.random.default_rng(1), Imbalances()
    for number in range(20):
        known.add_verdict(f"j{number}", f"w{number}", is_healthy=True)
        known.add(compared(f"j{number}", work(rng)))
    assert [number for number in range(20) if known.places_of(f"w{number}") is not None] == [16, 17, 18, 19]


def test_a_workload_on_another_number_of_nodes_begins_anew() -> None:
    rng, known = np.random.default_rng(1), Imbalances()
    for number, hosts in enumerate((["a", "b", "c"], ["a", "b"])):
        known.add_verdict(f"j{number}", "w", is_healthy=True)
        known.add(compared(f"j{number}", work(rng, hosts)))
    history = known.places_of("w")
    assert history is not None
    assert history.places == 2


def fleet(rng: np.random.Generator, slow: set[str], uneven: float, jobs: int = 60) -> NodeRanking:
    """Jobs of programs that ran before, on six of 200 nodes, of which some are 1.2 times as slow."""
    ranking = NodeRanking()
    for _ in range(jobs):
        given, history = uneven * rng.standard_normal(NODES), PlaceHistory(NODES)
        for _ in range(3):
            history.add(PlaceWork((), {1: (100.0, over_median_of_others(given + 0.01 * rng.standard_normal(NODES)))}))
        hosts = tuple(f"n{k}" for k in rng.choice(200, NODES, replace=False))
        logs = given + 0.01 * rng.standard_normal(NODES) + [math.log(1.2) * (name in slow) for name in hosts]
        places = PlaceWork(hosts, {1: (100.0, over_median_of_others(logs))})
        excess = dict(zip(hosts[1:], (logs - np.median(logs))[1:].tolist(), strict=True))
        beyond = history.beyond(places)
        assert beyond is not None
        ranking.compare(excess)
        ranking.compare_places(hosts, beyond, excess)
    return ranking


@pytest.mark.parametrize("uneven", [0.01, 0.2])
def test_one_job_names_a_slow_node_where_its_program_has_run_before(uneven: float) -> None:
    """60 jobs of six are 1.8 jobs a node."""
    slow = {"n1", "n2", "n3", "n4"}
    ranking = fleet(np.random.default_rng(5), slow, uneven)
    named = {name for name, _, score in ranking.ranking(200) if score > 1}
    assert named == slow
    assert all(record.excess / record.jobs > 0.1 for name, record, _ in ranking.ranking(200) if name in named)


@pytest.mark.parametrize("uneven", [0.01, 0.2])
def test_of_ordinary_nodes_none_is_named(uneven: float) -> None:
    ranking = fleet(np.random.default_rng(6), set(), uneven, jobs=200)
    assert not [name for name, _, score in ranking.ranking(200) if score > 1]


def test_places_come_from_the_rows_of_nodes_and_of_phases() -> None:
    phases = NodePhases()
    hosts = ["b", "a", "c"]
    phases.read_phases(
        {"job": ["j"] * 3, "host": hosts, "class_id": [7] * 3, "world": [0] * 3, "ranks": [2] * 3, "count": [1000] * 3,
         "own_seconds": [20.0, 20.0, 20.0], "busiest_seconds": [10.0, 12.0, 10.0]}
    )  # fmt: skip
    phases.read_nodes(
        {"job": ["j"] * 3, "host": hosts, "first": [0, 1, 0], "number": [0] * 3, "lowest": [2, 0, 4], "ranks": [2] * 3,
         "world": [6] * 3}
    )  # fmt: skip
    phases.take(0.0)
    ((_, excess, places),) = phases.take(SETTLED_SECONDS)
    assert excess == pytest.approx({"b": 0.0, "c": 0.0})
    assert places is not None
    assert places.hosts == ("a", "b", "c")
    seconds, found = places.classes[7]
    assert seconds == pytest.approx(10.0)
    assert found.tolist() == pytest.approx([math.log(1.2), -math.log(1.1), -math.log(1.1)], abs=0.005)


def test_a_slow_node_in_a_healthy_run_hides_no_later_one() -> None:
    rng, history, clean = np.random.default_rng(3), PlaceHistory(NODES), PlaceHistory(NODES)
    for number in range(6):
        history.add(work(rng, slow="n4" if number == 3 else "", factor=1.5))
        clean.add(work(rng))
    known, usual = history.levels({1: 1.0}), clean.levels({1: 1.0})
    assert known is not None
    assert usual is not None
    assert np.abs(known.excess - usual.excess).max() < 0.05
    assert (known.scale < 2.5 * usual.scale).all()
