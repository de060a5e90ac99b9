"""Evidence over many jobs: false-discovery control of alarms, straggling nodes, and slowdowns of the whole facility."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

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
TAILS: Final = (0.003, 0.01, 0.03)
"""Bets that a node is in this share of the ordinary nodes of jobs of such a size, by its excess."""
HIT: Final = 0.9
"""What is staked on that."""
UNUSUAL: Final = 100
"""E-value from which a node is ordinary no longer: more than one job can give."""
MAX_COMPARED: Final = 2**17
"""Excesses of nodes in jobs that are kept; those of the oldest jobs are dropped."""
MIN_POOL: Final = 100
"""Excesses in jobs of one size, up to a factor of two, below which they tell nothing of a node."""
MIN_NODES: Final = 6
"""Nodes of a job below which its excesses tell little of their spread."""
MIN_SPREAD: Final = 0.01
"""The spread of the nodes of a job is at least this: smaller differences are those of the nodes themselves."""
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

Floats: TypeAlias = npt.NDArray[np.float64]
Places: TypeAlias = npt.NDArray[np.int64]


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
    excess: sum over `compared` jobs of the logarithm of its own work over the
    median of the job's nodes.
    """

    blamed: int = 0
    jobs: int = 0
    bets: tuple[float, ...] = (0.0,) * len(BETS)
    excess: float = 0.0
    compared: int = 0
    places: float = 0.0


class _Comparison(NamedTuple):
    """The nodes of a job, and their excesses over the spread of the job."""

    hosts: tuple[str, ...]
    excesses: Floats


class _Pool(NamedTuple):
    """Excesses in jobs of one size, in descending order. reach: number of those that are as large or larger."""

    places: Places
    reach: Places


class NodeRanking:
    """Which nodes are the slowest in job after job.

    In a job of m nodes an ordinary node has any rank r by its own work with probability 1 / m. A bet with exponent k
    gives e = (r**k - (r - 1)**k) m**(1 - k), of mean 1: m**(1 - k) for the slowest. The product over a node's jobs is
    an e-process, and so is the mean of those of BETS.

    How much slower it is counts as well: with p the share of ordinary nodes in jobs of such a size that had as large an
    excess, over the spread of their job, a bet on p <= q gives HIT / q, else (1 - HIT) / (1 - q), of mean 1 at most
    while ordinary nodes are exchangeable. The mean over TAILS of their products is another e-process.

    Nodes with an e-value of UNUSUAL or more are ordinary no longer: the others are compared once more without them,
    until there are no further ones. It is more than one job can give, so not the largest excesses are left out, but
    those that are the same nodes' again.

    Where runs of a job's workload before it have shown what each place has, a node is compared with that: p is the
    probability that Student's t is as far above it, and MIN_EXCESS more, and gives (1 + KAPPA p**(KAPPA - 1)) / 2, of
    mean 1. It is what one job can say by itself. The product of these has the weight OF_PLACES.

    e-BH over all nodes decides which are significant: the expected share of ordinary ones among these is at most
    FALSE_NODES. score: log E over the logarithm of what e-BH asks for, so above 1 is significant.
    """

    def __init__(self) -> None:
        self._records: OrderedDict[str, NodeRecord] = OrderedDict()
        self._compared: deque[_Comparison] = deque()
        self._size = 0
        """Of all these."""
        self._ranked: list[tuple[str, float]] | None = None
        """Names and scores in descending order, None where a job was added since."""

    def add(self, members: Sequence[str], blamed: Iterable[str]) -> None:
        """Add a job with a straggler. members: all its nodes, two or more; blamed: some of them, not all."""
        blamed_members, m = set(blamed), len(members)
        b = len(blamed_members)
        if m < 2 or not 0 < b < m:
            return
        # Those blamed share the first ranks, the others the rest.
        hit = [b ** (k - 1) * m ** (1 - k) for k in BETS]
        missed = [(m**k - b**k) / (m - b) * m ** (1 - k) for k in BETS]
        for name in members:
            self._record(name, hit if name in blamed_members else missed, is_blamed=name in blamed_members)

    def compare(self, excess: Mapping[str, float]) -> None:
        """Add a job without a straggler. excess: logarithms of own work over the median of the nodes, two or more."""
        m = len(excess)
        if m < 2:
            return
        ranked = sorted(excess, key=lambda name: -excess[name])
        for rank, name in enumerate(ranked, 1):
            e = [(rank**k - (rank - 1) ** k) * m ** (1 - k) for k in BETS]
            self._record(name, e, is_blamed=rank == 1)
            record = self._records[name]
            self._records[name] = record._replace(excess=record.excess + excess[name], compared=record.compared + 1)
        if m < MIN_NODES:
            return
        values = np.fromiter(excess.values(), float, m)
        spread = max(1.4826 * float(np.median(np.abs(values))), MIN_SPREAD)
        self._compared.append(_Comparison(tuple(excess), values / spread))
        self._size += m
        while self._size > MAX_COMPARED and len(self._compared) > 1:
            self._size -= len(self._compared.popleft().hosts)

    def compare_places(self, hosts: Sequence[str], beyond: PlaceLevels, excess: Mapping[str, float]) -> None:
        """Add a job of a workload whose runs before have shown what each place has.

        beyond: by node, excess over that. excess: as was given to `compare`, empty where that was not called.
        """
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
        """The nodes with the largest e-values, at most `count`: name, record and score."""
        if self._ranked is None:
            self._ranked = self._rank()
        found = [(name, self._records[name], score) for name, score in self._ranked[:count]]
        return [one for one in found if one[1].blamed or one[1].places > 0]

    def _rank(self) -> list[tuple[str, float]]:
        names = list(self._records)
        if not names:
            return []
        ranks = np.logaddexp.reduce([one.bets for one in self._records.values()], axis=1) - math.log(len(BETS))
        places = np.array([one.places for one in self._records.values()])
        pools = self._pools({name: place for place, name in enumerate(names)})
        # The last place is that of nodes which are not known any more.
        unusual = np.zeros(len(names) + 1, bool)
        while True:
            tails = np.logaddexp.reduce(_tails(pools, unusual), axis=1)[:-1] - math.log(len(TAILS))
            log_e = np.logaddexp(ranks, tails) + math.log((1 - OF_PLACES) / 2)
            log_e = np.logaddexp(log_e, places + math.log(OF_PLACES))
            found = log_e >= math.log(UNUSUAL)
            if not (found & ~unusual[:-1]).any():
                break
            unusual[:-1] |= found
        discovered = len(e_bh(dict(zip(names, log_e.tolist(), strict=True)), FALSE_NODES))
        limit = math.log(len(names) / (FALSE_NODES * max(discovered, 1)))
        order = np.argsort(-log_e, kind="stable")
        return [(names[place], max(0.0, float(log_e[place]) / limit)) for place in order]

    def _pools(self, places: Mapping[str, int]) -> list[_Pool]:
        """The excesses in jobs of each size of which enough are known. places: of nodes."""
        sizes: dict[int, list[_Comparison]] = {}
        for one in self._compared:
            sizes.setdefault(len(one.hosts).bit_length(), []).append(one)
        pools = []
        for jobs in sizes.values():
            excesses = np.concatenate([job.excesses for job in jobs])
            if excesses.size < MIN_POOL:
                continue
            nodes = (places.get(host, len(places)) for job in jobs for host in job.hosts)
            order = np.argsort(-excesses, kind="stable")
            ordered = -excesses[order]
            reach = np.searchsorted(ordered, ordered, side="right")
            pools.append(_Pool(np.fromiter(nodes, np.int64, excesses.size)[order], reach))
        return pools

    def _record(self, name: str, e: Sequence[float], *, is_blamed: bool) -> None:
        self._ranked = None
        record = self._records.get(name, NodeRecord())
        bets = tuple(before + math.log(one) for before, one in zip(record.bets, e, strict=True))
        record = record._replace(blamed=record.blamed + is_blamed, jobs=record.jobs + 1, bets=bets)
        lru.store(self._records, name, record, NODES)


def _tails(pools: Iterable[_Pool], unusual: npt.NDArray[np.bool_]) -> Floats:
    """The log e-values of TAILS, by node. unusual: nodes with which no other is compared."""
    found = np.zeros((unusual.size, len(TAILS)))
    for places, reach in pools:
        is_other = unusual[places]
        as_large = np.cumsum(~is_other)[reach - 1] + is_other
        p = as_large / (places.size - np.count_nonzero(is_other) + is_other)
        for number, q in enumerate(TAILS):
            log_e = np.where(p <= q, math.log(HIT / q), math.log((1 - HIT) / (1 - q)))
            found[:, number] += np.bincount(places, log_e, unusual.size)
    return found
