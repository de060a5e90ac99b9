"""What is said of many jobs and nodes at once."""

from __future__ import annotations

import math

import numpy as np
import pytest

from barograph_alerts.attribution.fleet import NodeRanking, e_bh, facility_share


def test_of_many_healthy_jobs_hardly_any_round_of_discoveries_is_false():
    rng = np.random.default_rng(5)
    false = total = 0
    for _ in range(300):
        # Healthy e-values, the most unruly there are: 200 with probability 1/200; and five of slow jobs.
        healthy = {f"h{i}": math.log(200) if rng.random() < 1 / 200 else -5.0 for i in range(200)}
        found = e_bh({**healthy, **{f"s{i}": math.log(1000) for i in range(5)}}, 0.1)
        false += sum(name.startswith("h") for name in found) / max(1, len(found))
        total += sum(name.startswith("s") for name in found)
    assert false / 300 <= 0.1
    assert total == 300 * 5


def test_one_jobs_evidence_must_outweigh_the_number_of_jobs():
    lone = {"a": math.log(400)}
    assert e_bh(lone) == {"a"}
    assert e_bh({**lone, **{f"h{i}": 0.0 for i in range(99)}}) == frozenset()
    assert e_bh({}) == frozenset()


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


@pytest.mark.parametrize("m", [2, 8, 500])
def test_the_bet_on_a_node_is_fair(m):
    fair = 0.0
    for blamed in (True, False):
        nodes = NodeRanking()
        members = [f"n{i}" for i in range(m)]
        nodes.add(members, [members[0] if blamed else members[1]])
        record = nodes._records["n0"]
        fair += math.exp(record.log_e) * (1 / m if blamed else 1 - 1 / m)
    assert fair == pytest.approx(1)


def test_many_slow_jobs_at_once_are_one_cause_and_few_are_not():
    assert facility_share(2, 2) == 0
    assert facility_share(3, 100) == 0
    assert facility_share(60, 100) == 0.6
    assert facility_share(0, 0) == 0
