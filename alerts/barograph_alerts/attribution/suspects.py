"""Nodes that delay job after job: what is known of them, which check suggests itself, and rows of `suspects`."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from barograph_alerts.attribution.fleet import MIN_EXCESS, NodeRanking, NodeRecord
from barograph_collector.daemon.runner import Output
from barograph_modeler.state import lru

MIN_SCORE: Final = 0.5
"""Score from which a node is in the log."""
STEP: Final = 0.1
"""Change of the score after which there is a further row."""
MAX_NODES: Final = 1_000
SLOW_PROBE: Final = 1.03
"""Time of the fixed computation over its median on other nodes from which the processor is suggested."""

Probe = Callable[[str], float]
"""The fixed computation of a node relative to the median of other nodes; NaN if unknown."""


class Suspect(NamedTuple):
    """A node. excess: mean of its own work over the median of its jobs' nodes, as a share; NaN if never compared.

    suspected: whether the evidence is significant, and large enough to matter.
    """

    host: str
    record: NodeRecord
    score: float
    excess: float
    suspected: bool
    check: str


def suspects(nodes: NodeRanking, probe: Probe, count: int) -> list[Suspect]:
    """The nodes with most evidence, at most `count`."""
    found = []
    for host, record, score in nodes.ranking(count):
        excess = math.expm1(record.excess / record.compared) if record.compared else math.nan
        matters = not excess < MIN_EXCESS
        found.append(Suspect(host, record, score, excess, score > 1 and matters, _check(probe(host))))
    return found


def _check(ratio: float) -> str:
    if ratio >= SLOW_PROBE:
        return f"a fixed computation takes {ratio:.2f} times as long as on other nodes: clock, power limit, temperature"
    if not math.isnan(ratio):
        return "a fixed computation is as fast as on other nodes: memory bandwidth and errors, other processes"
    return "a benchmark of processor and memory beside another node"


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
        "check": one.check,
        "at": now,
    }
    return Output("suspects", 1, columns)
