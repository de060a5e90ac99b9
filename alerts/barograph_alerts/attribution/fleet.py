"""Evidence over many jobs: false-discovery control of alarms, straggling nodes, and slowdowns of the whole facility."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from barograph_alerts.attribution.node_excess import NodeExcesses
from barograph_alerts.places import PlaceLevels
from barograph_modeler.state import lru

FALSE_DISCOVERIES: Final = 0.1
"""Expected share of healthy jobs among discoveries, at most."""
MAX_LOG_E: Final = 60.0
"""Upper bound of the logarithms of e-values, so that their sums are exact enough."""
FACILITY_JOBS: Final = 3
FACILITY_SHARE: Final = 0.5
"""This many slow jobs at once, and this share of all, suggest a common cause."""
NODES: Final = 10_000
"""Nodes kept; the least recently used are evicted."""
MIN_BLAMED: Final = 0.05
"""Time of a job that a node to blame has cost at least, as a share, where that is not known."""
STAKE: Final = 0.8
"""Share of a node's capital that is bet in each job with a straggler on its being one."""
BY_BLAME: Final = 0.2
"""The part of FALSE_NODES that is for these bets; the rest is for excesses over many jobs."""
MIN_EXCESS: Final = 0.02
"""Own work over that of other nodes, as a share, below which a node is not suspected: nobody would repair it."""
FALSE_NODES: Final = 0.05
"""Expected share of ordinary nodes among the significant ones, at most."""


def closed_e_bh(log_e: Mapping[str, float], q: float = FALSE_DISCOVERIES) -> frozenset[str]:
    """The closed e-BH procedure (Xu, Fischer and Ramdas 2025, arXiv 2504.11759): the rejected null hypotheses.

    The r largest e-values, for the largest r such that in each set of hypotheses, m of which are among these, the mean
    e-value is at least m / (q r). The smallest mean has the m smallest of them, with those of the others whose e-values
    are below m / (q r). The false-discovery rate is at most q under any dependence. e-BH never rejects more.

    >>> sorted(closed_e_bh({"a": math.log(40), "b": math.log(15), "c": 0.0}, 0.1))
    ['a', 'b']
    """
    ranked = sorted(log_e, key=lambda name: log_e[name])
    e = np.exp(np.minimum([log_e[name] for name in ranked], MAX_LOG_E))
    n, sums = e.size, np.append(0.0, np.cumsum(e))
    if not n or sums[-1] < n / q:
        return frozenset()
    # The mean of the lower half of them is at least 1 / (2 q), so at least half are.
    most = min(n, 2 * int((e >= 1 / (2 * q)).sum()))
    for r in range(most, 0, -1):
        if e[n - r] * q * r < 1:
            continue
        m = np.arange(1, r + 1)
        least = m / (q * r)
        others = np.minimum(np.searchsorted(e, least), n - r)
        of_r = sums[n - r + m] - sums[n - r]
        if (of_r + sums[others] >= least * (m + others)).all():
            return frozenset(ranked[n - r :])
    return frozenset()


def facility_share(slow: int, judged: int) -> float:
    """The share of slow jobs if a common cause is likely; else 0."""
    share = slow / judged if judged else 0.0
    return share if slow >= FACILITY_JOBS and share >= FACILITY_SHARE else 0.0


class NodeRecord(NamedTuple):
    """A node's jobs on several nodes: in how many it was the slowest or the straggler, and of how many.

    excess: sum over the jobs of the logarithm of its own work over the median of the job's nodes; of one with a
    straggler, of what that has cost. log_e: of the bets on its being a straggler.
    """

    blamed: int = 0
    jobs: int = 0
    excess: float = 0.0
    log_e: float = 0.0

    def after(self, excess: float, *, is_blamed: bool = False) -> NodeRecord:
        """The record with one more job."""
        return self._replace(blamed=self.blamed + is_blamed, jobs=self.jobs + 1, excess=self.excess + excess)


class NodeRanking:
    """Which nodes are slow in job after job.

    `NodeExcesses` says by how much. And in a job of m nodes of which b are stragglers an ordinary one is one of these
    with probability b / m: with the bet e = 1 - STAKE, and STAKE m / b more if it is, the product over such jobs is an
    e-process, which finds nodes that are slow now and then. score: above 1 is significant; of those nodes at most
    FALSE_NODES are expected to be ordinary.
    """

    def __init__(self) -> None:
        self._records: OrderedDict[str, NodeRecord] = OrderedDict()
        self._excesses = NodeExcesses()
        self._ranked: list[tuple[str, float]] | None = None
        """Names and scores in descending order, None where a job was added since."""

    def add(self, members: Sequence[str], blamed: Iterable[str], excess: float = math.nan) -> None:
        """Add a job with a straggler. members: all its nodes, two or more; blamed: some of them, not all.

        excess: time of the job beyond the usual one, as a share of that; NaN if unknown. The nodes were slower than
        before in this job, so that it counts whatever other jobs of the program have shown.
        """
        slow = set(blamed)
        if len(members) < 2 or not 0 < len(slow) < len(members):
            return
        cost = math.log1p(excess if excess >= 0 else MIN_BLAMED)
        for name in members:
            won = STAKE * len(members) / len(slow) if name in slow else 0.0
            self._store(name, cost if name in slow else 0.0, is_blamed=name in slow)
            record = self._records[name]
            self._records[name] = record._replace(log_e=record.log_e + math.log(1 - STAKE + won))
        self._excesses.add({name: max(cost, math.log1p(MIN_BLAMED)) if name in slow else 0.0 for name in members})

    def compare(self, excess: Mapping[str, float], program: str = "", *, has_places: bool = False) -> None:
        """Add a job without a straggler. excess: logarithms of own work over the median of the nodes, two or more.

        program: its name, if known. has_places: whether `compare_places` follows.
        """
        if len(excess) < 2:
            return
        most = max(excess, key=excess.__getitem__)
        for name, one in excess.items():
            self._store(name, one, is_blamed=name == most)
        if not has_places:
            self._excesses.add(excess, program)

    def compare_places(self, hosts: Sequence[str], beyond: PlaceLevels, excess: Mapping[str, float]) -> None:
        """Add a job of a workload whose runs before have shown what each place has.

        beyond: by node, excess over that. excess: as was given to `compare`.
        """
        self._excesses.add_places(hosts, beyond)
        for name, more in zip(hosts, beyond.excess.tolist(), strict=True):
            if name in excess:
                # A place with less work than others hides what is the node's.
                record = self._records[name]
                self._records[name] = record._replace(excess=record.excess + max(more - excess[name], 0.0))
            else:
                self._store(name, more)

    def ranking(self, count: int) -> list[tuple[str, NodeRecord, float]]:
        """The nodes with most evidence, at most `count`: name, record and score."""
        if self._ranked is None:
            slow = self._excesses.probabilities((1 - BY_BLAME) * FALSE_NODES)
            threshold = math.log(max(len(self._records), 1) / (BY_BLAME * FALSE_NODES))
            scores = [(name, max(slow.score(name), one.log_e / threshold)) for name, one in self._records.items()]
            self._ranked = sorted(scores, key=lambda one: (-one[1], -self._records[one[0]].excess))
        found = [(name, self._records[name], score) for name, score in self._ranked[:count]]
        return [one for one in found if one[1].blamed or one[2] > 0]

    def _store(self, name: str, excess: float, *, is_blamed: bool = False) -> None:
        self._ranked = None
        lru.store(self._records, name, self._records.get(name, NodeRecord()).after(excess, is_blamed=is_blamed), NODES)
