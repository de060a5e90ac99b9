"""Evidence over many jobs: false-discovery control of alarms, straggling nodes, and slowdowns of the whole facility."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

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
TAILS: Final = (0.01, 0.03)
"""Bets that a node is in this share of all nodes of jobs of such a size, by its excess."""
HIT: Final = 0.9
"""What is staked on that."""
POOL: Final = 4096
"""Excesses kept of jobs of one size, up to a factor of two; the oldest are dropped."""
MIN_POOL: Final = 100
MIN_NODES: Final = 6
"""Nodes of a job below which its excesses tell little of their spread."""
MIN_SPREAD: Final = 0.01
"""The spread of the nodes of a job is at least this: smaller differences are those of the nodes themselves."""
FALSE_NODES: Final = 0.05
"""Expected share of ordinary nodes among the significant ones, at most."""


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

    bets: the log e-value of each of BETS and TAILS. excess: sum over `compared` jobs of the logarithm of its own work
    over the median of the job's nodes.
    """

    blamed: int = 0
    jobs: int = 0
    bets: tuple[float, ...] = (0.0,) * (len(BETS) + len(TAILS))
    excess: float = 0.0
    compared: int = 0

    @property
    def log_e(self) -> float:
        """The logarithm of the node's e-value, the mean of those of the bets; half of the weight is that of TAILS."""
        largest = max(self.bets)
        each = [math.exp(one - largest) for one in self.bets]
        ranks, tails = each[: len(BETS)], each[len(BETS) :]
        return largest + math.log(0.5 * sum(ranks) / len(ranks) + 0.5 * sum(tails) / len(tails))


class NodeRanking:
    """Which nodes are the slowest in job after job.

    In a job of m nodes an ordinary node has any rank r by its own work with probability 1 / m. A bet with exponent k
    gives e = (r**k - (r - 1)**k) m**(1 - k), of mean 1: m**(1 - k) for the slowest. The product over a node's jobs is
    an e-process, and so is the mean of those of BETS.

    How much slower it is counts as well: with p the share of nodes in earlier jobs of such a size that had as large an
    excess, over the spread of their job, a bet on p <= q gives HIT / q, else (1 - HIT) / (1 - q), of mean 1 at most
    while ordinary nodes are exchangeable. Slow nodes among the earlier ones make p larger.

    e-BH over all nodes decides which are significant: the expected share of ordinary ones among these is at most
    FALSE_NODES. score: log E over the logarithm of what e-BH asks for, so above 1 is significant.
    """

    def __init__(self) -> None:
        self._records: OrderedDict[str, NodeRecord] = OrderedDict()
        self._pools: dict[int, deque[float]] = {}
        """Excesses over the spread of their job, by the bit length of its number of nodes."""

    def add(self, members: Sequence[str], blamed: Iterable[str]) -> None:
        """Add a job with a straggler. members: all its nodes, two or more; blamed: some of them, not all."""
        blamed_members, m = set(blamed), len(members)
        b = len(blamed_members)
        if m < 2 or not 0 < b < m:
            return
        # Those blamed share the first ranks, the others the rest.
        hit = [b ** (k - 1) * m ** (1 - k) for k in BETS]
        missed = [(m**k - b**k) / (m - b) * m ** (1 - k) for k in BETS]
        hit, missed = hit + [1.0] * len(TAILS), missed + [1.0] * len(TAILS)
        for name in members:
            self._record(name, hit if name in blamed_members else missed, is_blamed=name in blamed_members)

    def compare(self, excess: Mapping[str, float]) -> None:
        """Add a job without a straggler. excess: logarithms of own work over the median of the nodes, two or more."""
        m = len(excess)
        if m < 2:
            return
        ranked = sorted(excess, key=lambda name: -excess[name])
        tails = self._tails(list(excess.values()))
        for rank, name in enumerate(ranked, 1):
            e = [(rank**k - (rank - 1) ** k) * m ** (1 - k) for k in BETS]
            self._record(name, e + tails(excess[name]), is_blamed=rank == 1)
            record = self._records[name]
            self._records[name] = record._replace(excess=record.excess + excess[name], compared=record.compared + 1)

    def _tails(self, excesses: Sequence[float]) -> Callable[[float], list[float]]:
        """The e-values of TAILS by the excess of a node of this job, which counts for later ones."""
        if len(excesses) < MIN_NODES:
            return lambda excess: [1.0] * len(TAILS)
        spread = max(1.4826 * median(map(abs, excesses)), MIN_SPREAD)
        pool = self._pools.setdefault(len(excesses).bit_length(), deque(maxlen=POOL))
        known = sorted(pool)
        pool.extend(one / spread for one in excesses)
        if len(known) < MIN_POOL:
            return lambda excess: [1.0] * len(TAILS)

        def tails(excess: float) -> list[float]:
            p = (1 + len(known) - bisect_left(known, excess / spread)) / (1 + len(known))
            return [HIT / q if p <= q else (1 - HIT) / (1 - q) for q in TAILS]

        return tails

    def ranking(self, count: int) -> list[tuple[str, NodeRecord, float]]:
        """The nodes with the largest e-values, at most `count`: name, record and score."""
        log_e = {name: record.log_e for name, record in self._records.items()}
        worst = sorted(log_e, key=lambda name: -log_e[name])
        discovered = len(e_bh(log_e, FALSE_NODES))
        limit = math.log(max(len(worst), 1) / (FALSE_NODES * max(discovered, 1)))
        found = [(name, self._records[name], max(0.0, log_e[name] / limit)) for name in worst[:count]]
        return [one for one in found if one[1].blamed]

    def _record(self, name: str, e: Sequence[float], *, is_blamed: bool) -> None:
        record = self._records.get(name, NodeRecord())
        bets = tuple(before + math.log(one) for before, one in zip(record.bets, e, strict=True))
        record = record._replace(blamed=record.blamed + is_blamed, jobs=record.jobs + 1, bets=bets)
        lru.store(self._records, name, record, NODES)
