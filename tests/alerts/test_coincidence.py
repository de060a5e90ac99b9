"""What coincides with a slowdown: said beside the cause, never as one."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph_alerts.attribution.coincidence import MIN_RUNS, Coincidences, Neighbour
from barograph_alerts.processor import Scorer
from helpers.jobs import Simulation, part

ONSET = 1000.0


def after_runs(count: int = 4) -> Coincidences:
    """Runs of one workload on n1 and n2."""
    surroundings = Coincidences()
    for _ in range(count):
        surroundings.ended("w", ("n1", "n2"))
    return surroundings


def texts(surroundings: Coincidences, hosts: str, blamed: str = "", near: tuple[Neighbour, ...] = ()) -> list[str]:
    found = surroundings.find("w", hosts.split(), blamed.split(), ONSET, near)
    return [one.text for one in found]


def test_a_node_that_no_earlier_run_was_on_is_said():
    assert texts(after_runs(), "n1 n2") == []
    assert texts(after_runs(), "n1 n3") == ["first run on n3 (4 runs before)"]
    [one] = after_runs().find("w", ["n1", "n3"], [], ONSET, [])
    assert one.numbers == {"new_nodes": 1, "earlier_runs": 4}


@pytest.mark.parametrize("runs", range(6))
def test_a_node_is_called_new_from_as_many_earlier_runs_on_as_tell_that(runs):
    expected = [f"first run on n3 ({runs} runs before)"] if runs >= MIN_RUNS else []
    assert texts(after_runs(runs), "n3") == expected


def test_a_job_that_began_on_the_same_node_shortly_before_is_said_first():
    near = (Neighbour("lab/9.0.0", frozenset({"n1", "n7"}), ONSET - 3),)
    assert texts(after_runs(), "n1 n3", near=near) == ["start of lab/9.0.0 on n1", "first run on n3 (4 runs before)"]
    assert texts(after_runs(), "n2", near=near) == []


@given(st.lists(st.floats(-100, 100), max_size=20), st.floats(-100, 100))
def test_neighbours_began_at_most_30_s_before_an_onset_or_2_s_after_it(starts, onset):
    surroundings = Coincidences()
    for at in starts:
        surroundings.began("a", at)
    assert sorted(surroundings.near(onset)) == sorted((at, "a") for at in starts if onset - 30 <= at <= onset + 2)


def node_blocks(job: dict, host: str, own_seconds: np.ndarray, wait_seconds: np.ndarray) -> dict:
    count = len(own_seconds)
    return {
        "job": job["jobs"]["job"] * count, "host": [host] * count, "world": np.zeros(count, np.int64),
        "ranks": np.ones(count, np.int64), "first_index": 64 * np.arange(count), "length": np.full(count, 64),
        "count": np.full(count, 64), "own_rank": np.zeros(count, np.int64), "own_rank_seconds": own_seconds,
        "own_seconds": own_seconds, "p2p_seconds": np.zeros(count), "wait_seconds": wait_seconds,
        "least_wait_seconds": wait_seconds, "ended_at": job["blocks"]["ended_at"][63::64],
    }  # fmt: skip


def longer(rows: dict, length: int) -> dict:
    """The same work in blocks of so many."""
    count = len(rows["host"]) // length
    sums = ("length", "count", "own_rank_seconds", "own_seconds", "p2p_seconds", "wait_seconds", "least_wait_seconds")
    last = {name: values[length - 1 :: length][:count] for name, values in rows.items()}
    return {
        **last,
        "first_index": rows["first_index"][::length][:count],
        **{name: rows[name][: count * length].reshape(count, length).sum(axis=1) for name in sums},
    }


def run_on(
    scorer: Scorer,
    simulation: Simulation,
    hosts: tuple[str, str],
    *,
    slow: bool,
    nodes_late: bool = False,
    nodes: int = 2,
    lengths: tuple[int, int] = (1, 1),
) -> dict:
    """A job on two nodes; where it becomes slow in the middle the second one works longer. Returns its last score.

    nodes_late: what nodes say comes after all blocks of the job. nodes: how many the job has. lengths: of the blocks of
    the two nodes, in blocks of 64 sync points.
    """
    job = simulation.job(slow_from=6400 if slow else None, factor=5.0)
    scorer.observe("jobs", {**job["jobs"], "nodes": [nodes], "host": [hosts[0]]}, 0.0)
    sums = job["blocks"]["sum_seconds"].reshape(-1, 64).sum(axis=1)
    usual = np.minimum(sums, np.median(sums[: len(sums) // 2]))
    work = [node_blocks(job, hosts[0], usual, sums - usual), node_blocks(job, hosts[1], sums, 0 * sums)]
    work = [longer(rows, length) for rows, length in zip(work, lengths, strict=True)]
    last = {}
    for start in range(0, simulation.intervals, 640):
        page = part(job["blocks"], start, start + 640)
        for rows, length in () if nodes_late else zip(work, lengths, strict=True):
            at = range(start // 64 // length, (start // 64 + 10) // length)
            scorer.observe("node_blocks", part(rows, at.start, at.stop), 0.0)
        scorer.observe("blocks", page, 0.0)
        for output in scorer.step(float(page["ended_at"][-1])):
            last = dict(output.columns)
    for at, rows in itertools.product(range(0, simulation.intervals // 64, 10), work if nodes_late else ()):
        scorer.observe("node_blocks", part(rows, at, at + 10), 0.0)
    scorer.observe("runs", job["runs"], 0.0)
    for output in scorer.step(float(page["ended_at"][-1]) + 1):
        last = dict(output.columns)
    return last


@pytest.fixture(scope="module")
def life() -> tuple[Scorer, list[dict]]:
    """Four healthy runs on n1 and n2, then three on which n3 holds up n1."""
    simulation, scorer = Simulation(intervals=10240), Scorer()
    rows = [run_on(scorer, simulation, ("n1", "n2"), slow=False) for _ in range(4)]
    rows += [run_on(scorer, simulation, ("n1", "n3"), slow=True) for _ in range(3)]
    return scorer, rows


def test_the_sentence_of_an_alarm_names_the_new_node_and_the_row_its_figures(life):
    _, rows = life
    first, second = rows[4], rows[5]
    assert (first["state"], first["cause"], json.loads(first["members"])) == ("slow", "straggler", ["n3"])
    assert "; coincides with: first run on n3 (4 runs before); ran " in first["sentence"]
    assert json.loads(first["evidence"])["new_nodes"] == 1
    assert json.loads(first["hosts"]) == ["n1", "n3"]
    # It is new only once.
    assert second["cause"] == "straggler"
    assert "coincides" not in second["sentence"]
    assert "coincides" not in rows[0]["sentence"]


def test_what_nodes_say_after_the_last_block_of_a_job_still_names_the_one_that_held_it_up():
    simulation, scorer = Simulation(intervals=10240), Scorer()
    for _ in range(4):
        run_on(scorer, simulation, ("n1", "n2"), slow=False)
    last = run_on(scorer, simulation, ("n1", "n3"), slow=True, nodes_late=True)
    assert (last["state"], last["cause"], json.loads(last["members"])) == ("slow", "straggler", ["n3"])


def test_evidence_against_nodes_and_where_workloads_ran_outlive_a_restart(life):
    scorer, rows = life
    again = Scorer()
    for row in rows:
        again.observe("scores", {name: [value] for name, value in row.items()}, 0.0)
    assert scorer.nodes.ranking(9)[0][:2][0] == "n3"
    assert again.nodes.ranking(9) == scorer.nodes.ranking(9)
    simulation = Simulation(seed=3, intervals=10240)
    simulation._made = 50
    assert "first run on n4 (7 runs before)" in run_on(again, simulation, ("n1", "n4"), slow=True)["sentence"]


def test_nodes_with_blocks_of_different_lengths_are_compared_and_the_late_one_is_named():
    simulation, scorer = Simulation(intervals=10240), Scorer()
    for slow in (False, False, False, True):
        last = run_on(scorer, simulation, ("n1", "n2"), slow=slow, lengths=(2, 1))
    assert (last["cause"], json.loads(last["members"])) == ("straggler", ["n2"])
    assert scorer.sync_points == {"compared": 4 * 2 * 10240}


def test_without_the_rows_of_a_node_the_sentence_says_that_nodes_could_not_be_compared():
    simulation, scorer = Simulation(intervals=10240), Scorer()
    for slow in (False, False, False, True):
        last = run_on(scorer, simulation, ("n1", "n1"), slow=slow)
    assert (last["state"], last["cause"], last["members"]) == ("slow", "unknown", "[]")
    assert ": nodes could not be compared: no common sync points of 2 before and since then (score" in last["sentence"]
    assert set(scorer.sync_points) == {"missing", "repeated"}
