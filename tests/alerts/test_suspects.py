"""Nodes that delay job after job, of which each alone shows little."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from barograph_alerts.attribution.fleet import NodeRanking
from barograph_alerts.attribution.node_phases import MIN_SECONDS, SETTLED_SECONDS, NodePhases
from barograph_alerts.attribution.suspects import SuspectRows, suspects
from barograph_alerts.processor import Scorer
from helpers.jobs import verdict
from helpers.nodes_study import NodesPlan, NodesStudy


def phases(job: str, own: dict[str, float], count: int = 1000, class_id: int = 7) -> dict:
    """Rows of a class. own: seconds per rank and interval, by node; two ranks each."""
    n = len(own)
    return {
        "job": [job] * n,
        "host": list(own),
        "class_id": np.full(n, class_id, np.uint64),
        "world": np.zeros(n, np.int64),
        "ranks": np.full(n, 2),
        "count": np.full(n, count),
        "own_seconds": np.array([2.0 * count * one for one in own.values()]),
    }


def nodes(job: str, first: str, hosts: list[str]) -> dict:
    return {"job": [job] * len(hosts), "host": hosts, "first": np.array([int(host == first) for host in hosts])}


def taken(compared: NodePhases) -> list:
    compared.take(100.0)
    return compared.take(100.0 + SETTLED_SECONDS)


def test_nodes_are_compared_within_their_classes_in_whatever_order_they_report():
    compared = NodePhases()
    compared.read_phases(phases("j", {"a": 0.010}))
    compared.read_phases(phases("j", {"c": 0.012, "b": 0.010, "d": 0.010}))
    compared.read_phases(phases("j", {"a": 0.1, "b": 0.1, "c": 0.1, "d": 0.1}, count=10, class_id=8))
    [(job, excess, _)] = taken(compared)
    assert job == "j"
    assert max(excess, key=excess.__getitem__) == "c"
    # Eleven seconds are compared, ten of them in the class in which c is slower.
    assert excess["c"] == pytest.approx(math.log(1.2) * 10 / 11, rel=1e-6)
    assert excess["a"] == pytest.approx(0.0, abs=1e-9)
    assert not compared.waiting


def test_rows_that_still_arrive_are_waited_for():
    compared = NodePhases()
    compared.read_phases(phases("j", {"a": 0.01, "b": 0.01}))
    assert compared.take(0.0) == []
    compared.read_phases(phases("j", {"c": 0.012}))
    assert compared.take(SETTLED_SECONDS) == []
    [(_, excess, _)] = compared.take(2 * SETTLED_SECONDS)
    assert set(excess) == {"a", "b", "c"}


def test_the_node_of_rank_0_is_not_compared():
    compared = NodePhases()
    compared.read_phases(phases("j", {"a": 0.02, "b": 0.01, "c": 0.01}))
    compared.read_nodes(nodes("j", "a", ["a", "b", "c"]))
    [(_, excess, _)] = taken(compared)
    assert set(excess) == {"b", "c"}


@pytest.mark.parametrize(
    "rows",
    [
        [phases("j", {"a": 0.01})],
        [phases("j", {"a": 0.01, "b": 0.01}, count=int(MIN_SECONDS / 0.01) - 10)],
        [phases("j", {"a": 0.01, "b": 0.01}), phases("j", {"a": 0.01}, class_id=8)],
        [phases("j", {"a": 0.01, "b": -0.01})],
    ],
    ids=["one node", "too short", "another class is not known of all", "negative"],
)
def test_jobs_that_show_nothing_are_no_evidence(rows):
    compared = NodePhases()
    for one in rows:
        compared.read_phases(one)
    assert taken(compared) == []
    assert not compared.waiting


def campaign(jobs: int, slow: float, seed: int, *, many: int = 64, per_job: int = 8) -> Scorer:
    """A scorer after jobs on random nodes, whose own work differs by 3 %. n0 is in every other one, and slower."""
    rng = np.random.default_rng(seed)
    scorer = Scorer()
    others = [f"n{i}" for i in range(1, many)]
    for number in range(jobs):
        hosts = [*rng.choice(others, per_job - 1, replace=False).tolist(), "n0" if number % 2 else others[number % 3]]
        own = {host: 0.01 * (1 + 0.03 * rng.standard_normal()) for host in dict.fromkeys(hosts)}
        if "n0" in own:
            own["n0"] *= 1 + slow
        ended = {"jobs": {"job": [f"j{number}"], "workload": [f"lab/app{number}@8x1"]}}
        scorer.observe("scores", verdict(ended, 2.0), 0.0)
        scorer.observe("phases", phases(f"j{number}", own), 0.0)
        scorer.observe("nodes", nodes(f"j{number}", next(iter(own)), list(own)), 0.0)
        scorer.step(float(number * 100))
        scorer.step(float(number * 100) + SETTLED_SECONDS)
    return scorer


def test_a_slow_node_is_suspected_over_thirty_jobs_of_which_none_says_much():
    scorer = campaign(60, 0.06, seed=2)
    [first, *rest] = scorer.suspects()
    assert first.host == "n0"
    assert first.suspected
    assert first.record.jobs == 30
    assert first.excess == pytest.approx(0.06, abs=0.03)
    assert not any(one.suspected for one in rest)


def test_without_a_slow_node_hardly_any_is_suspected():
    # Of 40 facilities at most one in twenty is expected to suspect any; six or more would be one chance in sixty.
    false = sum(any(one.suspected for one in campaign(60, 0.0, seed=seed).suspects()) for seed in range(40))
    assert false < 6


def test_a_node_that_delays_half_of_its_jobs_by_a_tenth_and_the_others_not_at_all_is_suspected():
    ranking = NodeRanking()
    for number in range(40):
        others = [f"m{number}-{i}" for i in range(7)]
        if number % 2:
            ranking.add(["n0", *others], ["n0"], 0.1)
        else:
            ranking.compare(dict.fromkeys(["n0", *others], 0.0))
    first = suspects(ranking, 10)[0]
    assert (first.host, first.suspected, first.record.jobs) == ("n0", True, 40)
    assert first.excess == pytest.approx(1.1**0.5 - 1)


def test_a_node_that_half_of_its_jobs_blame_is_suspected_though_their_phases_show_next_to_nothing():
    """Nodes report before the verdict is there, which says more than they do, and counts alone."""
    scorer, hosts = Scorer(), ["a", "b", "c", "d", "e"]
    for number in range(16):
        name, is_slow = f"lab/{number}.0.0", number % 2 > 0
        row = {"log_offset": [number + 1], "job": [name], "workload": ["lab/app@5x1"], "app": ["app"], "user": ["u"],
               "nodes": [5], "cluster": ["lab"], "params": ["{}"], "ranks": [5], "host": ["a"],
               "started_at": [0.0]}  # fmt: skip
        scorer.observe("jobs", row, 0.0)
        scorer.observe("phases", phases(name, {"a": 0.01, "b": 0.01001, "c": 0.01, "d": 0.00999, "e": 0.01}), 0.0)
        scorer.step(100.0 * number)
        scorer.step(100.0 * number + SETTLED_SECONDS)
        found = {"cause": ["straggler" if is_slow else "none"], "members": ['["b"]' if is_slow else "[]"],
                 "hosts": [json.dumps(hosts)]}  # fmt: skip
        scorer.observe("scores", verdict({"jobs": row}, 1.0 + is_slow) | found, 0.0)
        scorer.step(100.0 * number + 10.0)
    [first, *_] = scorer.suspects()
    assert (first.host, first.suspected, first.record.jobs) == ("b", True, 16)
    assert first.record.blamed >= 8
    assert [one.host for one in scorer.suspects() if one.suspected] == ["b"]


def test_the_log_has_a_row_when_the_evidence_has_changed_and_one_when_it_is_gone():
    rows, nodes_ = SuspectRows(), campaign(60, 0.06, seed=2).nodes
    found = suspects(nodes_, 10)
    first = [output.columns for output in rows.rows(found, 1.0)]
    assert [(row["host"], row["suspected"]) for row in first if row["suspected"]] == [("n0", 1)]
    assert list(rows.rows(found, 2.0)) == []
    healed = [one._replace(score=0.1) for one in found]
    assert {output.columns["suspected"] for output in rows.rows(healed, 3.0)} == {0}
    assert list(rows.rows(healed, 4.0)) == []


def test_a_node_that_becomes_slow_is_named_on_most_machines_and_no_other_on_any():
    plans = [
        NodesPlan(nodes=60, jobs=12, hours=0.3, slow=1 / 60, factor=1.3, onset_hours=0.18, seed=n) for n in range(4)
    ]
    results = [NodesStudy(plan).run() for plan in plans]
    assert sum(result.wrong for result in results) == 0
    # Where it was slow before its jobs began, few jobs show too little.
    assert sum(result.found for result in results) >= 3


def test_nodes_whose_works_have_no_ratio_are_compared_by_logarithms():
    """A hostile node writes 1e-320 s where the others have years."""
    phases_of = NodePhases()
    phases_of.read_phases(phases("j", {"a": 1e-320, "b": 1e8, "c": 1e8, "d": 1e8}, count=1))
    phases_of.take(0.0)
    [compared] = phases_of.take(100.0)
    assert compared.excess["a"] < -700
