"""Evidence over many jobs: false-discovery control of alarms, straggling nodes, and slowdowns of the whole facility."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barograph_modeler.state import lru

FALSE_DISCOVERIES: Final = 0.1
"""Expected share of healthy jobs among discoveries, at most."""
FACILITY_JOBS: Final = 3
FACILITY_SHARE: Final = 0.5
"""This many slow jobs at once, and this share of all, suggest a common cause."""
NODES: Final = 10_000
"""Nodes kept; the least recently used are evicted."""
BET: Final = 0.5
"""Share bet on a node being blamed again."""


def e_bh(log_e: Mapping[str, float], q: float = FALSE_DISCOVERIES) -> frozenset[str]:
    """The e-BH procedure (Wang and Ramdas 2022, JRSS B 84(3)): the names of the rejected null hypotheses.

    With e_(1) >= e_(2) >= ..., the first k, for the largest k with e_(k) >= n / (q k). The false-discovery rate is at
    most q under any dependence.

    >>> sorted(e_bh({"a": math.log(40), "b": math.log(25), "c": 0.0, "d": 0.0}, 0.1))
    ['a', 'b']
    """
    ranked = sorted(log_e, key=lambda name: -log_e[name])
    n, kept = len(ranked), 0
    for k, name in enumerate(ranked, 1):
        if log_e[name] >= math.log(n / (q * k)):
            kept = k
    return frozenset(ranked[:kept])


def facility_share(slow: int, judged: int) -> float:
    """The share of slow jobs if a common cause is likely; else 0."""
    share = slow / judged if judged else 0.0
    return share if slow >= FACILITY_JOBS and share >= FACILITY_SHARE else 0.0


class NodeRecord(NamedTuple):
    """A node's jobs on several nodes: in how many it was the slowest or the straggler, of how many, the log e-value.

    excess: sum over `compared` jobs of the logarithm of its own work over the median of the job's nodes.
    """

    blamed: int
    jobs: int
    log_e: float
    excess: float = 0.0
    compared: int = 0


class NodeRanking:
    """Which nodes are blamed in job after job.

    In a job of m nodes an ordinary node is the straggler, or has the most own work, with probability 1 / m. The bet BET
    on "blamed" gives e = BET m where it was and (1 - BET) m / (m - 1) where it was not, of mean 1; their product over
    the node's jobs is an e-process. score is log E over log(nodes / alpha): above 1 the node is slow. The probability
    that any ordinary node ever scores above 1 is at most alpha.
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self._records: OrderedDict[str, NodeRecord] = OrderedDict()

    def add(self, members: Sequence[str], blamed: Iterable[str], excess: Mapping[str, float] | None = None) -> None:
        """Add a job. members: all its nodes, two or more; blamed: some of them, not all.

        excess: logarithms of own work over the median of the job's nodes, of those that were compared.
        """
        blamed_members, m = set(blamed), len(members)
        if m < 2 or not 0 < len(blamed_members) < m:
            return
        for name in members:
            record = self._records.get(name, NodeRecord(0, 0, 0.0))
            e = BET * m / len(blamed_members) if name in blamed_members else (1 - BET) * m / (m - len(blamed_members))
            record = record._replace(
                blamed=record.blamed + (name in blamed_members),
                jobs=record.jobs + 1,
                log_e=record.log_e + math.log(e),
            )
            if excess and name in excess:
                record = record._replace(excess=record.excess + excess[name], compared=record.compared + 1)
            lru.store(self._records, name, record, NODES)

    def ranking(self, count: int) -> list[tuple[str, NodeRecord, float]]:
        """The nodes with the largest e-values, at most `count`: name, record and score."""
        limit = math.log(max(len(self._records), 1) / self.alpha)
        worst = sorted(self._records.items(), key=lambda item: -item[1].log_e)[:count]
        return [(name, record, max(0.0, record.log_e / limit)) for name, record in worst if record.blamed]
