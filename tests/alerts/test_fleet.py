"""What is said of many jobs and nodes at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from barograph_alerts.attribution.fleet import NodeRanking, closed_e_bh, facility_share


def test_of_many_healthy_jobs_hardly_any_round_of_discoveries_is_false():
    rng = np.random.default_rng(5)
    false = total = 0
    for _ in range(300):
        # Healthy e-values, the most unruly there are: 200 with probability 1/200; and five of slow jobs.
        healthy = {f"h{i}": math.log(200) if rng.random() < 1 / 200 else -5.0 for i in range(200)}
        found = closed_e_bh({**healthy, **{f"s{i}": math.log(1000) for i in range(5)}}, 0.1)
        false += sum(name.startswith("h") for name in found) / max(1, len(found))
        total += sum(name.startswith("s") for name in found)
    assert false / 300 <= 0.1
    assert total == 300 * 5


def test_all_subsets_of_the_discoveries_have_evidence_and_e_bh_never_discovers_more():
    rng = np.random.default_rng(8)
    for _ in range(300):
        e = np.exp(rng.normal(1.5, 2.0, rng.integers(1, 9)))
        names = [f"j{i}" for i in range(e.size)]
        sets = [frozenset(np.flatnonzero([i >> k & 1 for k in range(e.size)]).tolist()) for i in range(1, 2**e.size)]

        def holds(jobs, sets=sets, e=e):
            return all(np.mean(e[list(a)]) >= len(a & jobs) / (0.1 * len(jobs)) for a in sets)

        largest = max((len(jobs) for jobs in sets if holds(jobs)), default=0)
        found = closed_e_bh(dict(zip(names, np.log(e).tolist(), strict=True)), 0.1)
        assert len(found) == largest
        assert found == {names[i] for i in np.argsort(-e)[: len(found)]}
        order = np.sort(e)[::-1]
        assert len(found) >= max((k for k in range(1, e.size + 1) if order[k - 1] >= e.size / (0.1 * k)), default=0)


def test_one_jobs_evidence_must_outweigh_the_number_of_jobs():
    lone = {"a": math.log(400)}
    assert closed_e_bh(lone) == {"a"}
    assert closed_e_bh({**lone, **{f"h{i}": 0.0 for i in range(99)}}) == frozenset()
    assert closed_e_bh({}) == frozenset()


def test_a_node_blamed_in_most_of_its_jobs_stands_out_and_its_neighbours_do_not():
    rng = np.random.default_rng(1)
    nodes = NodeRanking()
    names = [f"n{i:04d}" for i in range(64)]
    for _ in range(15):
        members = ["n0007", *rng.choice([n for n in names if n != "n0007"], 7, replace=False)]
        nodes.add(members, ["n0007"] if rng.random() < 0.9 else [members[3]])
    [(name, record, score), *others] = nodes.ranking(10)
    assert name == "n0007"
    assert record.jobs == 15
    assert record.blamed >= 12
    assert score > 1
    assert all(other[2] < 1 for other in others)


def test_many_slow_jobs_at_once_are_one_cause_and_few_are_not():
    assert facility_share(2, 2) == 0
    assert facility_share(3, 100) == 0
    assert facility_share(60, 100) == 0.6
    assert facility_share(0, 0) == 0


def facility(seed: int, jobs: int, slow: int, uneven: float = 0.0) -> tuple[NodeRanking, set[str]]:
    """300 nodes that differ by 1 % in jobs of 16, whose work differs by 2 %; so many nodes are 20 % slower.

    uneven: share of the jobs that give one of their nodes 5 to 50 % more work.
    """
    rng = np.random.default_rng(seed)
    ranking = NodeRanking()
    speeds = 0.01 * rng.standard_normal(300)
    speeds[:slow] += math.log(1.2)
    for _ in range(jobs):
        nodes = rng.choice(300, 16, replace=False)
        own = speeds[nodes] + 0.02 * rng.standard_normal(16)
        own[0] += rng.uniform(0.05, 0.5) if rng.random() < uneven else 0.0
        ranking.compare({f"n{node}": float(x) for node, x in zip(nodes, own - np.median(own), strict=True)})
    return ranking, {f"n{node}" for node in range(slow)}


def test_nodes_that_are_a_fifth_slower_stand_out_after_three_jobs_of_each():
    found, wrong = 0, 0
    for seed in range(10):
        ranking, slow = facility(seed, jobs=56, slow=6)
        significant = {name for name, _, score in ranking.ranking(300) if score > 1}
        found, wrong = found + len(significant & slow), wrong + len(significant - slow)
    assert found >= 40
    assert wrong <= 2


@pytest.mark.parametrize("uneven", [0.0, 0.2])
def test_of_ordinary_nodes_none_stands_out_by_how_slow_it_is(uneven: float):
    rankings = [facility(seed, 60, 0, uneven)[0].ranking(300) for seed in range(30)]
    assert sum(any(score > 1 for _, _, score in ranking) for ranking in rankings) <= 4


def test_nodes_that_are_slow_do_not_hide_each_other():
    """With one node in ten slow, the excess of a slow one is no exception among all nodes, only among ordinary ones."""
    ranking, slow = facility(1, jobs=120, slow=30)
    assert {name for name, _, score in ranking.ranking(300) if score > 1} == slow


def scores_of(programs: Sequence[str]) -> dict[str, float]:
    """Scores after 64 nodes had as many jobs of 16 nodes as `programs`; n0 did 20 % more in each."""
    rng, ranking = np.random.default_rng(3), NodeRanking()
    for program in programs:
        for nodes in rng.permutation(64).reshape(4, 16):
            own = 0.02 * rng.standard_normal(16)
            own[nodes == 0] += 0.18
            ranking.compare(
                {f"n{node}": float(x) for node, x in zip(nodes, own - np.median(own), strict=True)}, program
            )
    return {name: score for name, _, score in ranking.ranking(64)}


def test_a_node_that_was_slow_in_few_jobs_stands_out_unless_they_are_of_one_program():
    """A program may give a place more work in each of its runs, and a site may begin it on the same nodes each time."""
    assert {name for name, score in scores_of(["a", "b", "c"]).items() if score > 1} == {"n0"}
    assert scores_of(["a", "a", "a"])["n0"] < 1


def test_a_node_that_became_slow_stands_out_and_one_that_was_repaired_does_not():
    def scores(work: Sequence[float]) -> dict[str, float]:
        rng, ranking = np.random.default_rng(4), NodeRanking()
        for more in work:
            for nodes in rng.permutation(64).reshape(4, 16):
                own = 0.02 * rng.standard_normal(16)
                own[nodes == 0] += more
                ranking.compare({f"n{node}": float(x) for node, x in zip(nodes, own - np.median(own), strict=True)})
        return {name: score for name, _, score in ranking.ranking(64)}

    assert scores([0.0] * 20 + [0.18] * 4)["n0"] > 1
    assert scores([0.18] * 4 + [0.0] * 20).get("n0", 0.0) < 1
