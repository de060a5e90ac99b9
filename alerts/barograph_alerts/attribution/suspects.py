"""Nodes that delay job after job: what is known of them, and rows of `suspects`."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from barograph_alerts.attribution.fleet import MIN_EXCESS, NodeRanking, NodeRecord
from barograph_collector.daemon.runner import Output
from barograph_modeler.state import lru

MIN_SCORE: Final = 0.5
"""Score from which a node is in the log."""
STEP: Final = 0.1
"""Change of the score after which there is a further row."""
MAX_NODES: Final = 1_000
ADVICE: Final = "a benchmark of processor and memory beside another node"


class Suspect(NamedTuple):
    """A node. excess: mean of its own work over the median of its jobs' nodes, as a share.

    suspected: whether the evidence is significant, and large enough to matter.
    """

    host: str
    record: NodeRecord
    score: float
    excess: float
    suspected: bool


def suspects(nodes: NodeRanking, count: int) -> list[Suspect]:
    """The nodes with most evidence, at most `count`."""
    found = []
    for host, record, score in nodes.ranking(count):
        excess = math.expm1(record.excess / record.jobs)
        # What an alarm puts down to a node matters, however few of its jobs that were.
        matters = excess >= MIN_EXCESS or record.log_e > 0
        found.append(Suspect(host, record, score, excess, score > 1 and matters))
    return found


class SuspectRows:
    """Rows of `suspects`, for nodes whose evidence has changed."""

    def __init__(self) -> None:
        self._reported: OrderedDict[str, tuple[float, bool]] = OrderedDict()

    def rows(self, found: list[Suspect], now: float) -> Iterator[Output]:
        """Rows of nodes whose score has changed by STEP, or is below MIN_SCORE again. now: Unix seconds."""
        current = {one.host: one for one in found if one.score >= MIN_SCORE}
        for one in current.values():
            before, was = self._reported.get(one.host, (-math.inf, False))
            if abs(one.score - before) >= STEP or was != one.suspected:
                lru.store(self._reported, one.host, (one.score, one.suspected), MAX_NODES)
                yield _row(one, now)
        known = {one.host: one for one in found}
        for host in [host for host in self._reported if host not in current]:
            del self._reported[host]
            if host in known:
                yield _row(known[host]._replace(suspected=False), now)


def _row(one: Suspect, now: float) -> Output:
    columns = {
        "host": one.host,
        "jobs": one.record.jobs,
        "blamed": one.record.blamed,
        "score": one.score,
        "excess": one.excess,
        "suspected": int(one.suspected),
        "advice": ADVICE,
        "time": now,
    }
    return Output("suspects", 1, columns)
