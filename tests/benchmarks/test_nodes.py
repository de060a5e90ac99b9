"""A machine of many nodes before the scorer, in simulated time: who is named, and the processor time of an hour.

`make bench PYTEST="-k thousand_nodes"`. $BAROGRAPH_NODES_HOURS hours (1), 1,000 nodes, 200 jobs an hour, 2 % of the
nodes 1.2 times as slow, from before the first hour and from a time within it.
"""

from __future__ import annotations

import os

import pytest

from barograph_alerts.studies.nodes import NodesPlan, NodesStudy

pytestmark = pytest.mark.timeout(24 * 3600)
HOURS = float(os.environ.get("BAROGRAPH_NODES_HOURS", "1"))


def test_a_thousand_nodes() -> None:
    for onset in (0.0, 0.7):
        plan = NodesPlan(nodes=1000, jobs=round(200 * HOURS), hours=HOURS, onset_hours=onset)
        result = NodesStudy(plan).run()
        print(
            f"\nslow within {onset:g} h: {result.found} of {result.used} slow nodes named, {result.wrong} others;"
            f" {result.rows:,} rows of nodes, {result.seconds / HOURS:.1f} s of a core per hour"
        )
        assert result.wrong <= max(1, 0.05 * (result.found + result.wrong))


def test_the_cost_of_ten_to_ten_thousand_nodes() -> None:
    costs = {}
    for nodes in (10, 100, 1000, 10_000):
        # As busy, for a shorter time where there are more.
        hours = min(0.5, 200 / nodes)
        result = NodesStudy(NodesPlan(nodes=nodes, jobs=max(1, nodes // 4), hours=hours)).run()
        costs[nodes] = result.seconds / (3600 * hours)
        print(f"\n{nodes:,} nodes: {result.rows:,} rows in {hours:g} h, {100 * costs[nodes]:.3f} % of a core")
    assert costs[10_000] < 1.0
