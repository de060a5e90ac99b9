"""How long nodes usually take for a fixed computation, over the jobs that have run there."""

from __future__ import annotations

import math
from collections import OrderedDict
from statistics import median
from typing import Final

from barograph_modeler.state import lru

NODES: Final = 10_000
JOBS: Final = 16
"""Latest jobs of a node that count."""
FEWEST: Final = 3
SAMPLED: Final = 200
"""Nodes, those with the newest jobs, that one is compared with."""


class NodeSpeeds:
    """Mean processor seconds of the computation (`compute_seconds` of `pressures`) by node and job."""

    def __init__(self) -> None:
        self._nodes: OrderedDict[str, OrderedDict[str, tuple[float, float]]] = OrderedDict()

    def add(self, host: str, job: str, compute_seconds: float, span: float) -> None:
        """Add a row of a node. span: its length in seconds. Unknown times do not count."""
        if not compute_seconds > 0 or not span > 0:
            return
        jobs = lru.get(self._nodes, host, OrderedDict, NODES)
        total, seconds = lru.get(jobs, job, lambda: (0.0, 0.0), JOBS)
        jobs[job] = total + compute_seconds * span, seconds + span

    def usual(self, job: str, host: str) -> float:
        """The median over the other jobs on a node, from FEWEST on; else NaN."""
        found = [total / seconds for name, (total, seconds) in self._nodes.get(host, {}).items() if name != job]
        return median(found) if len(found) >= FEWEST else math.nan

    def relative(self, host: str) -> float:
        """The median of a node over that of all nodes; NaN where fewer than FEWEST jobs or other nodes are known."""
        own = self.usual("", host)
        others = [one for name in list(self._nodes)[-SAMPLED:] if name != host and (one := self.usual("", name)) > 0]
        return own / median(others) if own > 0 and len(others) >= FEWEST else math.nan
