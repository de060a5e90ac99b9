"""Which nodes are slow, by how much more they did than the other nodes of their jobs: a mixture of slow and others."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import expit, gammaln, logsumexp

from barograph_alerts.places import PlaceLevels, over_median_of_others

MAX_COMPARED: Final = 2**17
"""Excesses of nodes in jobs that are kept; those of the oldest jobs are dropped."""
MIN_SPREAD: Final = 0.01
"""The nodes of a job differ by this share at least."""
USUAL_SPREAD: Final = 0.02
"""That of a program's work, where few jobs have shown it."""
PRIOR_SPREADS: Final = 4
"""Weight of the usual spread beside that of a job's own nodes, in nodes, and in the usual one, in jobs."""
MAX_FREEDOM: Final = 20
"""Degrees of freedom of Student's t: however many nodes, they differ with heavier tails than a normal distribution."""
MAX_SPREADS: Final = 256
"""Newest jobs whose spreads make the usual one."""
SLOWNESS: Final = np.geomspace(math.log(1.05), math.log(2.5), 12)
"""How much slower slow nodes may be, logarithms, each as likely."""
LOWEST: Final = -3.0
"""Scales below the others beyond which a node is no less likely slow."""
MIN_DENSITY: Final = -40.0
"""Lower bound of logarithms of densities."""
PRIOR_ALWAYS: Final = (1.0, 2.0)
"""Slow nodes that were slow in all of their jobs, of so many, beside those that were observed; the others are slow
since any one of them, each as likely."""
PRIOR_SLOW: Final = (0.1, 100.0)
PRIOR_UNEVEN: Final = (1.0, 50.0)
"""Slow nodes, and nodes to which a program gives more, of so many, beside those that were observed."""
STEPS: Final = 3
"""Iterations each time; the next begins where the last has ended."""
MAX_FALSE: Final = 0.2
"""A node that is ordinary with a higher probability is never significant."""

Floats = npt.NDArray[np.float64]


class _Compared(NamedTuple):
    """The nodes of a job. densities: logarithms, nodes x (1 + SLOWNESS), if it is ordinary or so slow."""

    nodes: npt.NDArray[np.int64]
    densities: npt.NDArray[np.float32]


class SlowProbabilities(NamedTuple):
    """By node, the probability that it is ordinary; and the largest with which a node is significant."""

    ordinary: Mapping[str, float]
    limit: float

    def score(self, host: str) -> float:
        """By the odds that a node is slow: 1 at the limit, above it is significant; 0 where it is less likely."""
        p = max(self.ordinary.get(host, 1.0), 1e-12)
        if p >= 0.5:
            return 0.0
        return math.log1p((1 - p) / p) / math.log1p((1 - self.limit) / self.limit)


class NodeExcesses:
    """A mixture model of all nodes, of which it estimates the shares as it is asked.

    A node is ordinary, or with the probability w it is slow: in all of its jobs or since one of them, by one of
    SLOWNESS. Its excess in a job, the logarithm of its own work over the median of the others, is distributed

        (1 - v) t(x) + v u(x)                if it is ordinary
        (1 - v) t(x - d) + v u(x)            if it is slow by d

    with t Student's distribution, of the scale in which the others differ, and u the mean of t(x - d) over SLOWNESS: v
    is how often a program gives a node so much more work. One job cannot tell that from a slow node, but the shares
    w and v of all nodes and jobs can, and the share of slow nodes that always were: a slow node is slow again in other
    jobs. So a single job is evidence as far as those nodes that had several were slow in these too.

    Programs give the same place more work in each run. Where runs before it have shown how much, that is subtracted.
    Elsewhere a program counts once on each node, however many runs and inputs there are.

    The node of rank 0, which often has work of its own, counts only where it is known how much.

    The expected share of ordinary ones among the significant is the mean of their probabilities, at most `false`.
    """

    def __init__(self) -> None:
        self._jobs: deque[_Compared] = deque()
        self._size = 0
        """Of all these."""
        self._ids: dict[str, int] = {}
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Programs and nodes that were compared without a history."""
        self._spreads: deque[float] = deque(maxlen=MAX_SPREADS)
        self._always = PRIOR_ALWAYS[0] / PRIOR_ALWAYS[1]
        self._slow = PRIOR_SLOW[0] / PRIOR_SLOW[1]
        self._uneven = PRIOR_UNEVEN[0] / PRIOR_UNEVEN[1]

    def add(self, excess: Mapping[str, float], program: str = "") -> None:
        """Add a job, of a program that has not shown yet how it divides its work. program: its name, if known.

        excess: logarithms of own work over that of the others, of two nodes or more.
        """
        if len(excess) < 2:
            return
        x = np.fromiter(excess.values(), float, len(excess))
        beyond = over_median_of_others(x)
        distances = np.abs(beyond)
        usual = (PRIOR_SPREADS * USUAL_SPREAD + math.fsum(self._spreads)) / (PRIOR_SPREADS + len(self._spreads))
        ordered, freedom = np.sort(distances), min(PRIOR_SPREADS + x.size - 2, MAX_FREEDOM)
        own = _spreads_without(ordered, np.searchsorted(ordered, distances))
        found = (PRIOR_SPREADS * usual**2 + (x.size - 2) * own**2) / (PRIOR_SPREADS + x.size - 2)
        scale = np.sqrt(np.maximum(found, MIN_SPREAD**2) * (1 + 1.57 / (x.size - 1)))
        self._spreads.append(_spread(ordered))
        hosts = list(excess)
        fresh = np.ones(len(hosts), bool)
        if program:
            fresh = np.array([(program, host) not in self._seen for host in hosts])
            for host in hosts:
                self._seen[program, host] = None
            while len(self._seen) > MAX_COMPARED:
                self._seen.popitem(last=False)
        self._add(np.array(hosts)[fresh].tolist(), beyond[fresh], scale[fresh], freedom)

    def add_places(self, hosts: Sequence[str], beyond: PlaceLevels) -> None:
        """Add a job of which it is known what its places have. beyond: of each node, excess over that."""
        self._add(hosts, beyond.excess, beyond.scale, beyond.freedom)

    def probabilities(self, false: float) -> SlowProbabilities:
        """How likely each node is ordinary after its newest job. false: expected share of these among the others."""
        if not self._jobs:
            return SlowProbabilities({}, false)
        nodes = np.concatenate([one.nodes for one in reversed(self._jobs)])
        order = np.argsort(nodes, kind="stable")
        densities = np.concatenate([one.densities for one in reversed(self._jobs)])[order]
        slots = _Slots(nodes[order], densities)
        for _ in range(STEPS):
            ordinary, uneven, always = slots.ordinary(self._slow, self._uneven, self._always)
            slow = float((1 - ordinary).sum())
            of_slow = float(((1 - ordinary) * always).sum())
            self._always = (PRIOR_ALWAYS[0] + of_slow) / (PRIOR_ALWAYS[1] + slow)
            self._slow = (PRIOR_SLOW[0] + slow) / (PRIOR_SLOW[1] + ordinary.size)
            # A node that was slow and was repaired has many.
            of_programs = float((ordinary * np.minimum(uneven, 1.0)).sum())
            self._uneven = (PRIOR_UNEVEN[0] + of_programs) / (PRIOR_UNEVEN[1] + float((ordinary * slots.jobs).sum()))
        names = {number: host for host, number in self._ids.items()}
        found = {names[number]: p for number, p in zip(slots.nodes.tolist(), ordinary.tolist(), strict=True)}
        return SlowProbabilities(found, _limit(np.sort(ordinary), false))

    def _add(self, hosts: Sequence[str], excess: Floats, scale: Floats, freedom: int) -> None:
        if not len(hosts):
            return
        x = np.clip(excess, LOWEST * scale, SLOWNESS[-1])[:, None]
        shifts = np.concatenate([[0.0], SLOWNESS])
        densities = np.maximum(_log_t((x - shifts) / scale[:, None], freedom) - np.log(scale)[:, None], MIN_DENSITY)
        if len(self._ids) > MAX_COMPARED:
            self._forget()
        nodes = np.array([self._ids.setdefault(host, len(self._ids)) for host in hosts])
        self._jobs.append(_Compared(nodes, densities.astype(np.float32)))
        self._size += len(hosts)
        while self._size > MAX_COMPARED and len(self._jobs) > 1:
            self._size -= len(self._jobs.popleft().nodes)

    def _forget(self) -> None:
        """Forget the names of nodes without a job."""
        known = np.unique(np.concatenate([one.nodes for one in self._jobs]))
        self._ids = {host: int(np.searchsorted(known, n)) for host, n in self._ids.items() if n in set(known.tolist())}
        self._jobs = deque(one._replace(nodes=np.searchsorted(known, one.nodes)) for one in self._jobs)


class _Slots:
    """All nodes in all of their jobs: by node, the newest job first."""

    def __init__(self, nodes: npt.NDArray[np.int64], densities: npt.NDArray[np.float32]) -> None:
        self._begins = np.flatnonzero(np.diff(nodes, prepend=-1))
        self._node = np.cumsum(np.diff(nodes, prepend=-1) != 0) - 1
        self.nodes = nodes[self._begins]
        self.jobs = np.diff(np.append(self._begins, nodes.size))
        """Of each node."""
        self._densities = densities
        self._other = logsumexp(densities[:, 1:], axis=1) - math.log(SLOWNESS.size)

    def ordinary(self, slow: float, uneven: float, always: float) -> tuple[Floats, Floats, Floats]:
        """The probability that each is ordinary; in how many jobs its program gave it more then; and the probability
        that it was slow in all of its jobs, if it is slow. Shares of all, and `always` of those that are slow.
        """
        other = self._other + np.float32(math.log(uneven))
        found = np.logaddexp(self._densities + np.float32(math.log1p(-uneven)), other[:, None])
        ratios = (found[:, 1:] - found[:, :1]).astype(float)
        # Of the newest job, of the two newest, and so on to all of a node's.
        sums = np.cumsum(ratios, axis=0)
        sums -= (sums[self._begins] - ratios[self._begins])[self._node]
        most = np.maximum.reduceat(sums, self._begins)
        later = most + np.log(np.add.reduceat(np.exp(sums - most[self._node]), self._begins))
        later -= np.log(self.jobs)[:, None]
        total = sums[self._begins + self.jobs - 1]
        first = logsumexp(total, axis=1) + math.log(always)
        either = np.logaddexp(first, logsumexp(later, axis=1) + math.log(1 - always))
        odds = either - math.log(SLOWNESS.size) + math.log(slow / (1 - slow))
        given = np.exp(other - found[:, 0]).astype(float)
        return np.asarray(expit(-odds)), np.add.reduceat(given, self._begins), np.exp(first - either)


def _spread(ordered: Floats) -> float:
    """The spread of distances from the median, in ascending order.

    Of the half and of nine tenths, so that a job of which many differ has a wide one.
    """
    # One beyond all, which is left out.
    return float(_spreads_without(np.append(ordered, math.inf), np.array([ordered.size]))[0])


def _spreads_without(ordered: Floats, places: npt.NDArray[np.int64]) -> Floats:
    """The same without the distance at each of these places, of two at least."""
    size = ordered.size - 1

    def remaining(at: int) -> Floats:
        found: Floats = ordered[at + (places <= at)]
        return found

    median = (remaining((size - 1) // 2) + remaining(size // 2)) / 2
    if size < 10:
        return 1.4826 * median
    return np.maximum(1.4826 * median, remaining(math.ceil(0.9 * size) - 1) / 1.645)


def _limit(ordered: Floats, false: float) -> float:
    """The largest probability with which a node is significant. ordered: of all, in ascending order."""
    means = np.cumsum(ordered) / np.arange(1, ordered.size + 1)
    count = int(np.count_nonzero((means <= false) & (ordered <= MAX_FALSE)))
    return max(false, float(ordered[count - 1]) * (1 + 1e-9) if count else 0.0)


def _log_t(z: Floats, freedom: int) -> Floats:
    """The logarithm of the density of Student's t."""
    norm = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * math.log(math.pi * freedom)
    return np.asarray(norm - (freedom + 1) / 2 * np.log1p(z**2 / freedom), float)
