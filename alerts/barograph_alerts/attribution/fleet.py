"""Evidence over many jobs: false-discovery control of alarms, straggling nodes, and slowdowns of the whole facility."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy.special import stdtr

from barograph_alerts.attribution.node_excess import NodeExcesses
from barograph_alerts.places import PlaceLevels
from barograph_modeler.state import lru

FALSE_DISCOVERIES: Final = 0.1
"""Expected share of healthy jobs among discoveries, at most."""
FACILITY_JOBS: Final = 3
FACILITY_SHARE: Final = 0.5
"""This many slow jobs at once, and this share of all, suggest a common cause."""
NODES: Final = 10_000
"""Nodes kept; the least recently used are evicted."""
BETS: Final = (0.05, 0.2, 0.5, 0.8)
"""Exponents of the bets on a node's rank: small ones for a broken node, the slowest in all of its jobs."""
KAPPA: Final = 0.1
"""Exponent of the bet on a node's excess over what its place has, for which half is staked."""
MIN_P: Final = 1e-7
"""Lower bound of its p-values."""
OF_PLACES: Final = 0.1
"""Weight of these bets, the others share the rest: few jobs give them much."""
MIN_EXCESS: Final = 0.02
"""Own work over that of other nodes, as a share, below which a node is not suspected: nobody would repair it."""
FALSE_NODES: Final = 0.05
"""Expected share of ordinary nodes among the significant ones, at most."""
BY_BETS: Final = 0.2
"""The part of that which is for the bets; the rest is for excesses over many jobs."""


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
    """A node's jobs on several nodes: in how many it was the slowest or the straggler, and of how many.

    bets: the log e-value of each of BETS. places: that of jobs of which it is known what its place usually has.
    excess: sum over `compared` jobs of the logarithm of its own work over the median of the job's nodes; of one with a
    straggler, of what that has cost.
    """

    blamed: int = 0
    jobs: int = 0
    bets: tuple[float, ...] = (0.0,) * len(BETS)
    excess: float = 0.0
    compared: int = 0
    places: float = 0.0


class NodeRanking:
    """Which nodes are the slowest in job after job.

    In a job of m nodes an ordinary node has any rank r by its own work with probability 1 / m. A bet with exponent k
    gives e = (r**k - (r - 1)**k) m**(1 - k), of mean 1: m**(1 - k) for the slowest. The product over a node's jobs is
    an e-process, and so is the mean of those of BETS.

    Where runs of a job's workload before it have shown what each place has, a node is compared with that: p is the
    probability that Student's t is as far above it, and MIN_EXCESS more, and gives (1 + KAPPA p**(KAPPA - 1)) / 2, of
    mean 1. It is what one job can say by itself. The product of these has the weight OF_PLACES.

    e-BH over all nodes decides which are significant: the expected share of ordinary ones among these is at most
    BY_BETS of FALSE_NODES. These bets assume next to nothing, and need many jobs. How much slower nodes are says it
    sooner (`NodeExcesses`): the rest is for what that finds. score: the larger one of log E over the logarithm of what
    e-BH asks for, and of that of the excesses, so above 1 is significant.
    """

    def __init__(self) -> None:
        self._records: OrderedDict[str, NodeRecord] = OrderedDict()
        self._excesses = NodeExcesses()
        self._ranked: list[tuple[str, float]] | None = None
        """Names and scores in descending order, None where a job was added since."""

    def add(self, members: Sequence[str], blamed: Iterable[str], excess: float = math.nan) -> None:
        """Add a job with a straggler. members: all its nodes, two or more; blamed: some of them, not all.

        excess: time of the job beyond the usual one, as a share of that; NaN if unknown.
        """
        blamed_members, m = set(blamed), len(members)
        b = len(blamed_members)
        if m < 2 or not 0 < b < m:
            return
        # Those blamed share the first ranks, the others the rest.
        hit = [b ** (k - 1) * m ** (1 - k) for k in BETS]
        missed = [(m**k - b**k) / (m - b) * m ** (1 - k) for k in BETS]
        for name in members:
            self._record(name, hit if name in blamed_members else missed, is_blamed=name in blamed_members)
            if excess >= 0:
                self._add_excess(name, math.log1p(excess) if name in blamed_members else 0.0)

    def compare(
        self,
        excess: Mapping[str, float],
        program: str = "",
        first: Mapping[str, float] | None = None,
        *,
        has_places: bool = False,
    ) -> None:
        """Add a job without a straggler. excess: logarithms of own work over the median of the nodes, two or more.

        program: its name, if known. first: the same of the node of rank 0, which is not among them. has_places: whether
        `compare_places` follows.
        """
        m = len(excess)
        if m < 2:
            return
        ranked = sorted(excess, key=lambda name: -excess[name])
        for rank, name in enumerate(ranked, 1):
            e = [(rank**k - (rank - 1) ** k) * m ** (1 - k) for k in BETS]
            self._record(name, e, is_blamed=rank == 1)
            self._add_excess(name, excess[name])
        if not has_places:
            self._excesses.add(excess, program, first)
            for name in first or ():
                record = self._records.get(name, NodeRecord())
                lru.store(self._records, name, record._replace(jobs=record.jobs + 1), NODES)

    def compare_places(self, hosts: Sequence[str], beyond: PlaceLevels, excess: Mapping[str, float]) -> None:
        """Add a job of a workload whose runs before have shown what each place has.

        beyond: by node, excess over that. excess: as was given to `compare`, empty where that was not called.
        """
        self._excesses.add_places(hosts, beyond)
        z = (beyond.excess - math.log1p(MIN_EXCESS)) / beyond.scale
        p = np.maximum(stdtr(beyond.freedom, -z), MIN_P)
        log_e = np.logaddexp(0.0, math.log(KAPPA) + (KAPPA - 1) * np.log(p)) - math.log(2)
        for name, one, more in zip(hosts, log_e.tolist(), beyond.excess.tolist(), strict=True):
            record = self._records.get(name, NodeRecord())
            record = record._replace(places=record.places + one)
            if name in excess:
                # A place with less work than others hides what is the node's.
                record = record._replace(excess=record.excess + max(more - excess[name], 0.0))
            elif excess:
                jobs, compared = record.jobs + 1, record.compared + 1
                record = record._replace(excess=record.excess + more, jobs=jobs, compared=compared)
            lru.store(self._records, name, record, NODES)
        self._ranked = None

    def ranking(self, count: int) -> list[tuple[str, NodeRecord, float]]:
        """The nodes with most evidence, at most `count`: name, record and score."""
        if self._ranked is None:
            self._ranked = self._rank()
        found = [(name, self._records[name], score) for name, score in self._ranked[:count]]
        return [one for one in found if one[1].blamed or one[1].places > 0 or one[2] > 0]

    def _rank(self) -> list[tuple[str, float]]:
        names = list(self._records)
        if not names:
            return []
        ranks = np.logaddexp.reduce([one.bets for one in self._records.values()], axis=1) - math.log(len(BETS))
        places = np.array([one.places for one in self._records.values()])
        log_e = np.logaddexp(ranks + math.log(1 - OF_PLACES), places + math.log(OF_PLACES))
        by_bets = BY_BETS * FALSE_NODES
        discovered = len(e_bh(dict(zip(names, log_e.tolist(), strict=True)), by_bets))
        bets = np.maximum(log_e / math.log(len(names) / (by_bets * max(discovered, 1))), 0.0)
        slow = self._excesses.probabilities((1 - BY_BETS) * FALSE_NODES)
        scores = np.maximum(bets, [slow.score(name) for name in names])
        # Of those with no evidence the one with most of the bets is first.
        order = np.lexsort((-log_e, -scores))
        return [(names[place], float(scores[place])) for place in order]

    def _add_excess(self, name: str, excess: float) -> None:
        record = self._records[name]
        self._records[name] = record._replace(excess=record.excess + excess, compared=record.compared + 1)

    def _record(self, name: str, e: Sequence[float], *, is_blamed: bool) -> None:
        self._ranked = None
        record = self._records.get(name, NodeRecord())
        bets = tuple(before + math.log(one) for before, one in zip(record.bets, e, strict=True))
        record = record._replace(blamed=record.blamed + is_blamed, jobs=record.jobs + 1, bets=bets)
        lru.store(self._records, name, record, NODES)
