"""A machine of many nodes before the scorer, in simulated time: who is named, and the processor time of an hour.

`make bench PYTEST="-k thousand_nodes"`. $BAROGRAPH_NODES_HOURS hours (1), 1,000 nodes, 200 jobs an hour, 2 % of the
nodes 1.2 times as slow, from before the first hour and from a time within it. Jobs of programs that never ran before,
and of 40 that have run three times each, and with no slow node.

`make bench PYTEST="-k nodes_of_many_draws"`: the same for $BAROGRAPH_NODES_SEEDS draws (6), slow from the begin, from
what nodes report at the ends of jobs alone, beside what an oracle can name.

`make bench PYTEST="-k one_job_of_thousands"`: rows, time and memory of a single job at its end, and while it runs.

`make bench PYTEST="-k series_of_nodes"`: the test of nodes among themselves on $BAROGRAPH_NODES_JOBS (1000) healthy and
a fifth as many slow jobs.
"""

from __future__ import annotations

import os
import time
import tracemalloc

import numpy as np
import pytest

from barograph_alerts.detection.alarm import ALPHA
from barograph_alerts.processor import Scorer
from barograph_lab.studies.alerts.tally import DetectorTally
from helpers.node_series import SECONDS, alarms, always_alarms, draw
from helpers.nodes_study import NodesPlan, NodesStudy

pytestmark = pytest.mark.timeout(24 * 3600)
HOURS = float(os.environ.get("BAROGRAPH_NODES_HOURS", "1"))
JOBS = int(os.environ.get("BAROGRAPH_NODES_JOBS", "1000"))
SEED = 36
SEEDS = range(1, 1 + int(os.environ.get("BAROGRAPH_NODES_SEEDS", "6")))
FACTOR, ONSET, AFTER = 1.2, 30, 60
"""Of the work of a slow node, from span ONSET on, for AFTER spans."""
SPANS, SYNCS, CLASSES = 20, 32, 16
"""Of a job of thousands of nodes; sync points in a span, and classes of which each node has a row."""


def test_a_thousand_nodes() -> None:
    for programs, slow, onset in ((0, 0.02, 0.0), (0, 0.02, 0.7), (40, 0.02, 0.0), (40, 0.02, 0.7), (40, 0.0, 0.0)):
        plan = NodesPlan(1000, round(200 * HOURS), HOURS, slow, onset_hours=onset, programs=programs)
        result = NodesStudy(plan).run()
        print(
            f"\n{f'{programs} programs with a history' if programs else 'no history'}, slow within {onset:g} h:"
            f" {result.found} of {result.used} slow nodes named, {result.wrong} others;"
            f" {result.rows:,} rows of nodes, {result.seconds / HOURS:.1f} s of a core per hour"
        )
        assert result.wrong <= max(1, 0.05 * (result.found + result.wrong))


@pytest.mark.parametrize(("programs", "slow"), [(0, 0.02), (0, 0.0), (40, 0.02)])
def test_nodes_of_many_draws(programs: int, slow: float) -> None:
    plans = [NodesPlan(1000, 200, 1.0, slow, programs=programs, seed=seed, live=False) for seed in SEEDS]
    results = [NodesStudy(plan).run() for plan in plans]
    used, found, wrong = (sum(getattr(one, name) for one in results) for name in ("used", "found", "wrong"))
    possible, others = sum(one.possible for one in results), sum(one.possible_wrong for one in results)
    print(
        f"\n{programs or 'no'} programs with a history, {slow:.0%} slow, {len(results)} draws: {found} of {used} named"
        f" ({', '.join(str(one.found) for one in results)}), {wrong} others; oracle: {possible}, {others} others"
    )
    assert wrong <= max(1, 0.05 * (found + wrong))


def test_the_cost_of_ten_to_ten_thousand_nodes() -> None:
    costs = {}
    for nodes in (10, 100, 1000, 10_000):
        # As busy, for a shorter time where there are more.
        hours = min(0.5, 200 / nodes)
        result = NodesStudy(NodesPlan(nodes=nodes, jobs=max(1, nodes // 4), hours=hours)).run()
        costs[nodes] = result.seconds / (3600 * hours)
        print(f"\n{nodes:,} nodes: {result.rows:,} rows in {hours:g} h, {100 * costs[nodes]:.3f} % of a core")
    assert costs[10_000] < 1.0


def test_series_of_nodes() -> None:
    print(f"\nalpha {ALPHA / 16:g}; work x {FACTOR:g} from span {ONSET} of {SECONDS:g} s on, noise up to as drawn")
    healthy = DetectorTally()
    for nodes in (2, 4, 16, 64):
        rng = np.random.default_rng((SEED, nodes))
        alarmed = 0
        for _ in range(JOBS):
            at, _ = alarms(draw(rng, nodes))
            alarmed += at >= 0
            healthy.add(None, [at] if at >= 0 else [])
        print(f"{nodes} nodes: {alarmed} of {JOBS} healthy jobs of 300 spans alarm")
        for noise in (0.01, 0.02, 0.04):
            after, wrong = [], 0
            for _ in range(JOBS // 5):
                series = draw(rng, nodes, ONSET + AFTER, FACTOR, ONSET, noise)
                at, names = alarms(series)
                wrong += bool(set(names) - {f"n{series.slow}"})
                after += [at - ONSET + 1] if names == (f"n{series.slow}",) and at >= ONSET else []
            middle = f"{np.median(after):.0f} (9 of 10: {np.quantile(after, 0.9):.0f})" if after else "-"
            print(f"  noise of {noise:.0%}: {len(after)} of {JOBS // 5} named, after {middle} spans; others: {wrong}")
    low, high = healthy.interval
    print(f"healthy: {healthy.false} of {healthy.healthy}, {low:.3%} to {high:.3%}")
    assert low <= ALPHA / 16


def test_series_of_nodes_that_are_slow_from_the_begin() -> None:
    healthy = DetectorTally()
    for nodes, runs in ((nodes, runs) for nodes in (2, 4, 16, 64) for runs in (1, 2, 3, 8)):
        rng = np.random.default_rng((SEED, nodes, runs))
        wrong = [always_alarms(rng, nodes, runs)[0] for _ in range(JOBS // 2)]
        found = [always_alarms(rng, nodes, runs, FACTOR) for _ in range(JOBS // 5)]
        for at in wrong:
            healthy.add(None, [at] if at >= 0 else [])
        named = [at for at, names in found if names == ("n1",)]
        others = sum(bool(set(names) - {"n1"}) for _, names in found)
        soon = sum(at <= 8 for at in named)
        print(
            f"\n{nodes} nodes, {runs} runs before: {sum(at >= 0 for at in wrong)} of {len(wrong)} healthy jobs alarm;"
            f" x {FACTOR:g} from the begin: {len(named)} of {len(found)} named, {soon} within 8 s; others: {others}"
        )
    low, high = healthy.interval
    print(f"healthy: {healthy.false} of {healthy.healthy}, {low:.3%} to {high:.3%}; alpha {ALPHA / 32:.4%}")
    assert low <= ALPHA / 32


def one_job(nodes: int) -> tuple[float, float, int]:
    """A job of so many nodes before the scorer: processor time while it runs and at its end, rows at its end."""
    hosts, name, rng = [f"n{k}" for k in range(nodes)], ["lab/1.0.0"], np.random.default_rng(nodes)
    jobs, zeros = name * nodes, np.zeros(nodes)
    scorer = Scorer()
    scorer.observe(
        "jobs",
        {"log_offset": [1], "job": name, "workload": ["lab/app"], "app": ["app"], "user": ["u"], "nodes": [nodes],
         "started_at": [0.0], "cluster": ["lab"], "params": ["{}"], "ranks": [nodes], "host": ["n0"]},
        0.0,
    )  # fmt: skip
    running = 0.0
    for i in range(SPANS):
        own, at = 0.06 * SYNCS * rng.lognormal(0, 0.01, nodes), SECONDS * (i + 1)
        longest = np.array([own.max()])
        node_blocks = {
            "job": jobs, "host": hosts, "world": zeros, "ranks": zeros + 1, "first_index": zeros + SYNCS * i,
            "length": zeros + SYNCS, "count": zeros + SYNCS, "own_rank": np.arange(nodes), "own_rank_seconds": own,
            "own_seconds": own, "p2p_seconds": zeros, "wait_seconds": longest - own,
            "least_wait_seconds": longest - own, "ended_at": zeros + at,
        }  # fmt: skip
        blocks = {
            "job": name, "world": np.array([0]), "class_id": np.array([7], np.uint64),
            "first_index": np.array([SYNCS * i]), "count": np.array([SYNCS]), "sum_seconds": longest,
            "max_seconds": longest / SYNCS, "ended_at": np.array([at]),
        }  # fmt: skip
        began = time.process_time()
        scorer.observe("node_blocks", node_blocks, at)
        scorer.observe("blocks", blocks, at)
        scorer.step(at)
        running += time.process_time() - began
    phases = [
        {"job": jobs, "host": hosts, "class_id": np.full(nodes, class_id, np.uint64), "world": np.zeros(nodes, int),
         "ranks": np.ones(nodes, int), "count": np.full(nodes, 1000),
         "own_seconds": 10.0 * rng.lognormal(0, 0.01, nodes)}
        for class_id in range(CLASSES)
    ]  # fmt: skip
    first = (np.arange(nodes) == 0).astype(int)
    began = time.process_time()
    for columns in phases:
        scorer.observe("phases", columns, 1000.0)
    for _ in range(2):
        scorer.observe("nodes", {"job": jobs, "host": hosts, "first": first}, 1000.0)
    scorer.step(1000.0)
    scorer.step(1010.0)
    ended = time.process_time() - began
    assert scorer.suspects()
    return running, ended, (CLASSES + 2) * nodes


def test_one_job_of_thousands_of_nodes() -> None:
    for nodes in (100, 1000, 4000, 10_000):
        running, ended, rows = one_job(nodes)
        tracemalloc.start()
        one_job(nodes)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(
            f"\n{nodes:,} nodes: {100 * running / (SECONDS * SPANS):.2f} % of a core while it runs,"
            f" {rows:,} rows of phases and nodes at the end in {ended:.2f} s, {peak / 1e6:.0f} MB at most"
        )
