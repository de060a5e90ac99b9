"""The work of a job's nodes, or of the ranks of its only node, from rows of `node_blocks`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from barograph_alerts.attribution.work import Work, WorkSpan

WAITING: Final = 64
"""Incomplete blocks kept per job; the oldest are dropped."""
BUSIEST: Final = "the busiest rank"
OTHERS: Final = "the other ranks"

Row = Mapping[str, Any]


class NodeWork:
    """Joins the rows of all nodes of one job for the same sync points.

    nodes: number of nodes; a block is complete with a row of each. In a job on one node the row has the rank with the
    most work: the members are that rank, named BUSIEST, and the mean of the others.
    """

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._waiting: OrderedDict[tuple[int, int, int], list[Row]] = OrderedDict()

    def add(self, row: Row) -> WorkSpan | None:
        """Add a row of `node_blocks`; returns the work span that it completes."""
        if self._nodes <= 1:
            return _of_ranks(row)
        key = int(row["world"]), int(row["first_index"]), int(row["length"])
        rows = self._waiting.setdefault(key, [])
        rows.append(row)
        if len(rows) < self._nodes:
            if len(self._waiting) > WAITING:
                self._waiting.popitem(last=False)
            return None
        del self._waiting[key]
        return WorkSpan(max(float(one["ended_at"]) for one in rows), tuple(_of_nodes(rows)), exact=True)


def _of_nodes(rows: list[Row]) -> Iterator[Work]:
    """The work of each node. The others waited for the node whose last rank waited least."""
    waits = [float(row["least_wait_seconds"]) for row in rows]
    least = min(waits)
    blame = (sum(waits) - least) / (len(rows) - 1) - least
    for row, wait in zip(rows, waits, strict=True):
        ranks = int(row["ranks"])
        waited = (float(row["p2p_seconds"]) + float(row["wait_seconds"])) / ranks
        last = blame if wait == least else 0.0
        yield Work(str(row["host"]), int(row["count"]), float(row["own_seconds"]) / ranks, waited, last)


def _of_ranks(row: Row) -> WorkSpan | None:
    ranks, count = int(row["ranks"]), int(row["count"])
    if ranks < 2:
        return None
    own, busiest = float(row["own_seconds"]), float(row["own_rank_seconds"])
    waited = float(row["p2p_seconds"]) + float(row["wait_seconds"])
    least = float(row["least_wait_seconds"])
    others = (waited - least) / (ranks - 1)
    first = Work(BUSIEST, count, busiest, least, others, f"rank {int(row['own_rank'])}")
    rest = Work(OTHERS, count, (own - busiest) / (ranks - 1), others, 0.0)
    return WorkSpan(float(row["ended_at"]), (first, rest), exact=True)
