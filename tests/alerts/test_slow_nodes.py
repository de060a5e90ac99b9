"""Jobs on several nodes before the scorer, of which one is slow: what is said, and when."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from barograph_alerts.attribution.kernel.pressure import NODE
from barograph_alerts.attribution.node_phases import SETTLED_SECONDS
from barograph_alerts.processor import Scorer
from barograph_modeler.learning.learner import Learner
from helpers.pressures import columns, row

NODES, SYNCS, SPANS = 6, 64, 24
SECONDS, CLASS = 0.03, 7
"""Own work of a step; 64 of them and what all wait for are a span of 2 s."""
WORKLOAD = f"lab/app@{NODES}x{NODES}"
HOSTS = [f"n{k}" for k in range(NODES)]

Work = Callable[[int, int], float]
Kernel = Callable[[int, int], dict[str, Any]]
Columns = dict[str, Any]


class Machine:
    """Runs jobs of one workload one after the other, before a modeler and alerts."""

    def __init__(self) -> None:
        self.scorer, self._learner = Scorer(), Learner()
        self._rng = np.random.default_rng(1)
        self._now, self._jobs = 1_700_000_000.0, 0

    def run(self, work: Work, kernel: Kernel | None = None, late: int = 0) -> list[tuple[float, Columns]]:
        """A job. Seconds since its begin and rows of `scores`.

        work: of a node in a span, as a share of the usual. kernel: what the kernel of a node shows of the span, so many
        spans late.
        """
        self._jobs += 1
        name, began = f"lab/{self._jobs}.0.0", self._now
        self._observe("jobs", {
            "log_offset": [self._jobs], "job": [name], "workload": [WORKLOAD], "app": ["app"], "user": ["u"],
            "nodes": [NODES], "started_at": [began], "cluster": ["lab"], "params": ["{}"], "ranks": [NODES],
            "host": ["n0"],
        })  # fmt: skip
        rows: list[tuple[float, Columns]] = []
        untold: deque[Columns] = deque()
        total = np.zeros(NODES)
        nodes = {
            "job": [name] * NODES, "host": HOSTS, "first": (np.arange(NODES) == 0).astype(int), "number": [0] * NODES,
            "lowest": list(range(NODES)), "ranks": [1] * NODES, "world": [NODES] * NODES,
        }  # fmt: skip
        self._observe("nodes", nodes)
        for i in range(SPANS):
            factors = np.array([work(i, k) for k in range(NODES)])
            own = SECONDS * factors * self._rng.lognormal(0, 0.02, (SYNCS, NODES))
            lengths = own.max(axis=1) + 1e-3
            self._now += float(lengths.sum())
            total += own.sum(axis=0)
            self._observe("node_blocks", self._node_rows(name, i, own, lengths))
            if kernel is not None:
                span = float(lengths.sum())
                shown = [
                    row(self._now - span, rank, HOSTS[k], span, **kernel(i, k))
                    for k in range(NODES)
                    for rank in (NODE, k)
                ]
                untold.append(columns([one | {"job": name} for one in shown]))
                if len(untold) > late:
                    self._observe("pressures", untold.popleft())
            self._observe("blocks", {
                "job": [name] * SYNCS, "world": np.zeros(SYNCS, np.int64), "first_index": SYNCS * i + np.arange(SYNCS),
                "class_id": np.full(SYNCS, CLASS, np.uint64), "count": np.ones(SYNCS, np.int64),
                "sum_seconds": lengths, "sum_squares": lengths**2, "sum_cubes": lengths**3, "min_seconds": lengths,
                "max_seconds": lengths, "ended_at": self._now - lengths.sum() + np.cumsum(lengths),
            })  # fmt: skip
            rows += [(self._now - began, dict(one.columns)) for one in self.scorer.step(self._now)]
        count = SYNCS * SPANS
        self._observe("phases", {
            "job": [name] * NODES, "host": HOSTS, "class_id": np.full(NODES, CLASS, np.uint64),
            "world": np.zeros(NODES, np.int64), "ranks": np.ones(NODES, np.int64), "count": np.full(NODES, count),
            "own_seconds": total, "busiest_seconds": total,
        })  # fmt: skip
        self._observe("nodes", nodes)
        self._observe("runs", {"job": [name], "runtime_seconds": [self._now - began], "exit_status": [0],
                               "intervals": [count]})  # fmt: skip
        for _ in range(3):
            rows += [(self._now - began, dict(one.columns)) for one in self.scorer.step(self._now)]
            self._now += SETTLED_SECONDS
        rows = [(at, one) for at, one in rows if "sentence" in one]
        self._learn({key: [value] for key, value in rows[-1][1].items()})
        return rows

    def _node_rows(self, name: str, i: int, own: np.ndarray, lengths: np.ndarray) -> Columns:
        waits, zeros = (lengths[:, None] - own).sum(axis=0), np.zeros(NODES)
        return {
            "job": [name] * NODES, "host": HOSTS, "world": [0] * NODES, "ranks": [1] * NODES,
            "first_index": [SYNCS * i] * NODES, "length": [SYNCS] * NODES, "count": [SYNCS] * NODES,
            "last_rank": list(range(NODES)), "last_count": [SYNCS] * NODES, "late_seconds": zeros,
            "own_rank": list(range(NODES)), "own_rank_seconds": own.sum(axis=0), "own_seconds": own.sum(axis=0),
            "p2p_seconds": zeros, "wait_seconds": waits, "least_wait_seconds": waits,
            "ended_at": [self._now] * NODES,
        }  # fmt: skip

    def _observe(self, table: str, columns: Columns) -> None:
        self.scorer.observe(table, columns, self._now)
        if table in ("jobs", "blocks", "runs"):
            self._learner.observe(table, columns, self._now)

    def _learn(self, score: Columns) -> None:
        self._learner.observe("scores", score, self._now)
        for output in self._learner.step(self._now):
            columns = {k: [v] * output.rows if np.isscalar(v) else v for k, v in output.columns.items()}
            self.scorer.observe(output.table, columns, self._now)


def usual(i: int, k: int) -> float:
    return 1.0


def grown(i: int, k: int) -> float:
    """What one node has is more from its eighth span on."""
    return 1.9 if k == 4 and i >= 8 else 1.0


def computing(i: int, k: int) -> dict[str, Any]:
    """Ranks that compute, or spin while they wait, on a node that is as fast as ever."""
    return {"run_seconds": 1.0, "clock_hz": 2.7e9}


def named(rows: list[tuple[float, Columns]]) -> list[tuple[float, list[str], str]]:
    return [
        (at, json.loads(row["members"]), row["sentence"]) for at, row in rows if row["cause"] not in ("none", "unknown")
    ]


def test_without_a_history_a_node_is_named_within_ten_seconds_of_becoming_slow():
    rows = Machine().run(lambda i, k: 1.2 if k == 2 and i >= 8 else 1.0)
    found = named(rows)
    assert found[0][0] < 8 * 2.0 + 10
    assert all(members == ["n2"] for _, members, _ in found)
    assert ": n2 worked " in found[0][2]
    assert rows[-1][1]["state"] == "slow"


def test_work_of_a_burst_is_that_of_its_time_and_not_of_the_time_after_it():
    """Twice the work for 3 spans of 2 s: 30 ms a sync point more, also once 5 windows have been as usual again."""
    machine = Machine()
    for _ in range(2):
        machine.run(lambda i, k: 1.0)
    rows = machine.run(lambda i, k: 1.0 + (k == 2 and 12 <= i < 15))
    more = [json.loads(one["evidence"])["own"] for _, one in rows if one["cause"] == "straggler"]
    assert more[-1] == pytest.approx(SECONDS, rel=0.15)


def test_a_node_that_was_slow_from_the_begin_is_named_where_healthy_runs_are_known():
    assert named(Machine().run(lambda i, k: 1.2 if k == 2 else 1.0)) == []
    machine = Machine()
    for _ in range(3):
        assert machine.run(usual)[-1][1]["state"] == "healthy"
    found = named(machine.run(lambda i, k: 1.2 if k == 2 else 1.0))
    assert found[0][0] < 8
    assert all(members == ["n2"] for _, members, _ in found)
    assert "x its history since " in found[0][2]
    assert "ms longer per sync point than nodes at its place in earlier runs" in found[0][2]


def test_a_slow_node_at_a_place_with_less_work_than_others_is_named_once_it_delays_the_job():
    """Others have as much work as it has now, from the program."""
    machine = Machine()
    for _ in range(3):
        assert machine.run(lambda i, k: 0.8 if k == 2 else 1.0)[-1][1]["state"] == "healthy"
    found = named(machine.run(lambda i, k: 1.2 if k == 2 else 1.0))
    assert found[0][0] < 13
    assert all(members == ["n2"] for _, members, _ in found)


def test_a_job_that_is_slow_on_all_nodes_is_not_the_fault_of_the_place_with_most_work():
    machine = Machine()
    for _ in range(3):
        machine.run(lambda i, k: 1.3 if k == 2 else 1.0)
    rows = machine.run(lambda i, k: 1.3 * (1.3 if k == 2 else 1.0))
    assert rows[-1][1]["state"] == "slow"
    assert {tuple(members) for _, members, _ in named(rows)} <= {("all",)}, named(rows)


def test_nodes_without_any_work_are_left_out():
    """Of three nodes one works for nothing: only two remain to be compared, and none where the work of all ends."""
    found = Machine().run(lambda i, k: 0.0 if k == 0 or (k > 1 and i >= 16) else 1.3 if k == 4 and i >= 8 else 1.0)
    assert {tuple(members) for _, members, _ in named(found)} == {("n4",)}


def test_a_place_to_which_the_program_gives_more_work_is_blamed_for_nothing():
    machine = Machine()
    for _ in range(5):
        rows = machine.run(lambda i, k: 1.2 if k == 2 else 1.0)
        assert named(rows) == []
        assert rows[-1][1]["state"] == "healthy"


def test_a_node_that_the_program_gives_more_to_in_a_first_run_is_blamed_for_nothing():
    """As a mesh that adapts does."""
    machine = Machine()
    rows = machine.run(grown, computing)
    assert {one["state"] for _, one in rows} <= {"unknown", "healthy", "inconclusive", "slow"}
    assert [one for _, one in rows if one["cause"] == "straggler"] == []
    final = rows[-1][1]
    assert (final["state"], final["cause"], json.loads(final["members"])) == ("inconclusive", "more-work", ["n4"])
    assert "x its pace before since " in final["sentence"] or "x its own first windows since " in final["sentence"]
    assert ": n4 computed 27" in final["sentence"]
    assert (
        "per sync point, at the same speed as far as counters show: more work, or slower in a way" in final["sentence"]
    )
    assert "(score" not in final["sentence"], "that of the alarm was taken back"
    assert json.loads(final["hosts"]) == HOSTS
    assert final["score"] <= 1
    # What it does more is known from then on.
    assert {one["state"] for _, one in machine.run(grown, computing)} == {"healthy"}


@pytest.mark.parametrize(
    "shown",
    [
        {"run_seconds": 0.5},
        {"clock_hz": 1.6e9},
        {"run_seconds": 0.55, "delay_seconds": 0.45},
    ],
    ids=["asleep", "slower", "core"],
)
def test_a_node_that_is_slower_is_named_in_a_first_run(shown):
    """It sleeps, its cores are slower, or others take them."""

    def kernel(i: int, k: int) -> dict[str, Any]:
        return computing(i, k) | (shown if k == 4 and i >= 8 else {})

    rows = Machine().run(grown, kernel)
    found = named(rows)
    assert found[0][0] < 8 * 2.0 + 20
    assert all(members == ["n4"] for _, members, _ in found)
    assert rows[-1][1]["state"] == "slow"


def test_a_node_that_was_named_is_not_taken_back_while_kernels_are_waited_for():
    def kernel(i: int, k: int) -> dict[str, Any]:
        return computing(i, k) | ({"run_seconds": 0.5} if k == 4 and i >= 8 else {})

    rows = Machine().run(grown, kernel, late=12)
    first = named(rows)[0][0]
    assert [one["members"] for at, one in rows if at >= first and one["members"] != '["n4"]'] == []
    assert rows[-1][1]["state"] == "slow"


@pytest.mark.parametrize("late", [0, 2])
def test_a_node_that_computes_more_in_a_run_that_is_slower_than_its_history_is_not_blamed(late):
    """As one that does so in each run, and others take the cores of all meanwhile."""
    machine = Machine()
    for _ in range(2):
        assert machine.run(usual, computing)[-1][1]["state"] == "healthy"
    rows = machine.run(grown, computing, late)
    assert [one for _, one in rows if one["cause"] == "straggler"] == []
    final = rows[-1][1]
    assert (final["state"], final["cause"], json.loads(final["members"])) == ("slow", "more-work", ["n4"])
    assert ": n4 computed 27" in final["sentence"]
    assert " ms longer per sync point, at the same speed as far as counters show (score " in final["sentence"]


def test_a_slow_node_is_named_after_growth_that_was_the_programs_own():
    def work(i: int, k: int) -> float:
        return grown(i, k) * (1.5 if k == 2 and i >= 18 else 1.0)

    def kernel(i: int, k: int) -> dict[str, Any]:
        return computing(i, k) | ({"run_seconds": 0.6} if k == 2 and i >= 18 else {})

    # The node that works most makes all wait; what n2 has becomes more than that.
    rows = Machine().run(lambda i, k: work(i, k) * (1.5 if k == 2 else 1.0), kernel)
    assert [members for _, members, _ in named(rows) if members not in (["n4"], ["n2"])] == []
    assert rows[-1][1]["state"] == "slow"
    assert json.loads(rows[-1][1]["members"]) == ["n2"]


def test_beside_a_node_that_is_slower_one_that_computes_more_is_not_named():
    machine = Machine()
    for _ in range(2):
        assert machine.run(usual, computing)[-1][1]["state"] == "healthy"

    def work(i: int, k: int) -> float:
        return 1.8 if k == 2 and i >= 8 else grown(i, k)

    def kernel(i: int, k: int) -> dict[str, Any]:
        return computing(i, k) | ({"run_seconds": 0.55, "stopped_seconds": 0.45} if k == 2 and i >= 8 else {})

    found = named(machine.run(work, kernel))
    assert [members for _, members, _ in found][-1] == ["n2"]
