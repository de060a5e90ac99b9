"""The test for nodes that work longer than the other nodes of their job do in the same sync points."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from barograph_alerts.detection.change import TESTED
from barograph_modeler.maxima.runtime import PRIOR_RUNS, posterior_spread

KAPPA: Final = 0.1
"""The calibrator's exponent, as in `RuntimeTest`: a slow node is far out in the tail."""
FLOOR: Final = 1e-5
"""Lower bound of p-values."""
MIN_SPANS: Final = 3
"""Consecutive spans in which a node is slow before an alarm, however slow it is."""
FREEDOM: Final = 6
"""Degrees of freedom of the tail."""
QUANTILES: Final = (0.5, 0.9, 0.99)
"""Shares of the absolute residuals that must be within those of the tail."""
PRIOR_CORRELATION: Final = 0.2
PRIOR_PAIRS: Final = 10
"""The prior of the correlation of consecutive spans, with the weight of so many."""
PRIOR_EXCESS: Final = 0.015
"""The prior of the spread of the largest excess between runs: half of PRIOR_SPREAD, that of their runtimes."""
MIN_SCALE: Final = 0.005
"""Spans of a node differ by this share at least."""
SETTLING: Final = (4, 6, 8, 12, 16, 24, 32)
"""Numbers of spans of one kind of work at which its levels are estimated again."""
EARLY: Final = 3
EARLY_RESIDUALS: Final = 40
"""The same where that are so many residuals of all nodes."""
ALIKE: Final = 0.8
"""Share of the time in the same classes of intervals from which on spans are of one kind of work."""
MAX_KINDS: Final = 8
"""Kinds of work that are learned; spans of others are not tested."""
SHARE: Final = 0.5
"""Nodes are slow that have this share of the largest excess."""
RECENT: Final = 32
"""Newest spans kept one by one."""
RECOVERED: Final = 3
"""An alarm ends after this many consecutive spans that are nearer to the levels than to what they were."""

Floats = npt.NDArray[np.float64]


class NodeSpan(NamedTuple):
    """What the nodes of a job did between the same sync points. Times are Unix seconds.

    most, mean: seconds of own work per sync point, above 0, of each node's rank with most, and of its ranks; or of
    messages. pace: seconds per sync point. classes: seconds of the job's intervals by class id meanwhile.
    """

    started_at: float
    ended_at: float
    most: Mapping[str, float]
    mean: Mapping[str, float]
    pace: float
    classes: Mapping[int, float]


class JobNodes(NamedTuple):
    """The nodes of a job. first: that of rank 0.

    excesses: the largest excess of any other node's own work in each healthy run of like work, logarithms over the
    median of these nodes.
    """

    number: int = 1
    first: str = ""
    excesses: tuple[float, ...] = ()


ONE_NODE: Final = JobNodes()


class SlowNodes(NamedTuple):
    """Nodes that work longer than usual. slowdown: actual over usual time of the job since `started_at`."""

    names: tuple[str, ...]
    started_at: float
    slowdown: float


class _Tested(NamedTuple):
    """A span that was tested. excess: of each node over its level; usual: the pace of its kind of work."""

    started_at: float
    excess: Floats
    pace: float
    usual: float


@dataclass
class _Kind:
    """One kind of work: its first spans, and what is usual for each node."""

    shares: Mapping[int, float]
    starts: list[float] = field(default_factory=list)
    rows: list[Floats] = field(default_factory=list)
    means: list[Floats] = field(default_factory=list)
    """Excess over the median of all nodes but the first, of the means of ranks."""
    paces: list[float] = field(default_factory=list)
    levels: Floats = field(default_factory=lambda: np.empty(0))
    scales: Floats = field(default_factory=lambda: np.empty(0))
    error: float = 0.0
    power: float = 1.0
    """Independent spans for each one."""
    usual: float = math.nan

    @property
    def settled(self) -> bool:
        """Whether levels are known."""
        return bool(self.levels.size)


class _Excursions:
    """The e-process of each node, their mean, and Page's CUSUM of each. alpha: of the mean."""

    def __init__(self, alpha: float) -> None:
        self._threshold = math.log(1 / alpha)
        self.log_e = 0.0
        self.sums: Floats = np.empty(0)
        self.starts: Floats = np.empty(0)
        """Begin of each node's excursion, infinite where there is none."""
        self._log_m: Floats = np.empty(0)
        self._t = 0

    @property
    def score(self) -> float:
        """log E over log(1 / alpha), at least 0."""
        return max(0.0, self.log_e / self._threshold)

    @property
    def worst(self) -> int:
        """The node with most evidence, -1 without any."""
        return int(self.sums.argmax()) if (self.sums > 0).any() else -1

    def reset(self) -> None:
        """Restart with the next span."""
        self.log_e, self._t = 0.0, 0
        self.sums, self.starts, self._log_m = np.empty(0), np.empty(0), np.empty(0)

    def grow(self, size: int) -> None:
        """Have so many nodes or more."""
        self.sums, self.starts = _padded(self.sums, size, 0.0), _padded(self.starts, size, np.inf)
        self._log_m = _padded(self._log_m, size, -np.inf)

    def add(self, started_at: float, z: Floats, power: float) -> None:
        """Add a span. z: of each node, NaN where unknown."""
        self.grow(z.size)
        known = np.isfinite(z)
        log_e = np.zeros(z.size)
        p = np.maximum(stdtr(FREEDOM, -z[known]), FLOOR)
        log_e[known] = power * (math.log(KAPPA) + (KAPPA - 1) * np.log(p))
        self._t += 1
        self._log_m = log_e + np.logaddexp(self._log_m, -math.log(self._t * (self._t + 1)))
        each = np.logaddexp(self._log_m, -math.log(self._t + 1))
        self.log_e = float(np.logaddexp.reduce(each)) - math.log(z.size)
        fresh = self.sums <= 0
        self.sums = np.where(fresh, 0.0, self.sums) + log_e
        self.starts = np.where(fresh, started_at, self.starts)
        self.starts[self.sums <= 0] = np.inf


class NodeTest:
    """An e-process for each node, and their mean for the job.

    With x the logarithm of a node's own work over the median of the others between the same sync points, and L the
    median of x in the first spans, the p-value of a span is that of

        (x - L - T) / s        T = log(1 + TESTED margin) + 2 error(L)

    by Student's t with FREEDOM degrees of freedom. s is the least scale with which QUANTILES of the residuals are
    within those of that distribution, of all nodes and of the node itself. A p-value becomes an e-value, and these M
    and E as in `Sequential`. The mean of E over the nodes is an e-process as well, whatever their dependence.

    What the nodes have in common, such as a slower phase or network, is in no x, so the job needs no history. Only
    spans of one kind of work are compared, those whose time is in the same classes of intervals: what the program gives
    a node in another phase is learned by itself.

    A node that was slow from the begin of the job is tested where the history tells how unevenly the work is divided:
    the same, with the largest excess of earlier runs in place of L, and as tolerance the limit of one more run, as in
    `tolerance`. Half of alpha is for this, in equal parts for the tolerance and the test.

    alpha: of the test. margin: as in `Evidence`.
    """

    def __init__(self, alpha: float, margin: float, nodes: JobNodes) -> None:
        self._margin = margin
        self._first = nodes.first
        self._places: dict[str, int] = {}
        self._kinds: list[_Kind] = []
        self._begins: list[float] = []
        """Begins of the first spans of the job."""
        self._limit = _limit(nodes.excesses, alpha / 4, margin)
        """The excess of an ordinary node by the history; NaN without one."""
        self._changed = _Excursions(alpha if math.isnan(self._limit) else alpha / 2)
        self._always = _Excursions(alpha / 4)
        self.reset()

    def reset(self) -> None:
        """Restart the test with the next span; levels remain."""
        self._changed.reset()
        self._always.reset()
        self.recovered_at = math.nan
        """Begin of the spans since the alarm in which the slow nodes have recovered; NaN if they have not."""
        self._recent: deque[_Tested] = deque(maxlen=RECENT)
        self._near = 0

    @property
    def score(self) -> float:
        """log E over log(1 / alpha), at least 0; above 1 there are slow nodes, unless they delay nobody."""
        return max(self._changed.score, self._always.score)

    @property
    def log_e(self) -> float:
        """Log e-value of the hypothesis that no node is slow."""
        return float(np.logaddexp(self._changed.log_e, self._always.log_e)) - math.log(2)

    def add(self, span: NodeSpan, *, disturbed: bool) -> bool:
        """Add the next span of two nodes or more; returns whether it could be tested.

        disturbed: an alarm is open, nothing is learned.
        """
        if len(self._begins) < EARLY:
            self._begins.append(span.started_at)
        x, mean = self._excess(span.most), self._mean_excess(span.mean)
        kind = self._kind(span.classes)
        if kind is None:
            return False
        if was_settled := kind.settled:
            excess = x - _padded(kind.levels, x.size)
            tolerance = math.log1p(TESTED * self._margin) + 2 * kind.error
            self._changed.add(span.started_at, (excess - tolerance) / _padded(kind.scales, x.size), kind.power)
            self._recent.append(_Tested(span.started_at, excess, span.pace, kind.usual))
            self._test_always(span.started_at, mean, kind)
        if not disturbed and len(kind.rows) < SETTLING[-1]:
            kind.starts.append(span.started_at)
            kind.rows.append(x)
            kind.means.append(mean)
            kind.paces.append(span.pace)
            count = len(kind.rows)
            if count in SETTLING or (count == EARLY and count * x.size >= EARLY_RESIDUALS):
                self._settle(kind)
                if not was_settled:
                    for started_at, one in zip(kind.starts, kind.means, strict=True):
                        self._test_always(started_at, one, kind)
        return kind.settled

    def drop_since(self, at: float) -> None:
        """Drop what was learned since the begin of a disturbance."""
        for kind in self._kinds:
            count = bisect_left(kind.starts, at)
            del kind.starts[count:], kind.rows[count:], kind.means[count:], kind.paces[count:]

    def slow(self) -> SlowNodes | None:
        """The nodes of the excursion with most evidence, if they delay the job by the margin or more."""
        if (worst := self._changed.worst) < 0 or self._changed.score <= 1:
            return None
        since = [one for one in self._recent if one.started_at >= self._changed.starts[worst]]
        if len(since) < MIN_SPANS:
            return None
        size = self._changed.sums.size
        excess = np.array([_padded(one.excess, size) for one in since])
        # The first span may have begun before.
        full = excess[:, worst] >= SHARE * np.nanmax(excess[:, worst])
        mean = np.nanmean(np.where(np.isnan(excess[full]), 0.0, excess[full]), axis=0)
        slow = (mean >= SHARE * mean[worst]) & (self._changed.sums >= SHARE * self._changed.sums[worst])
        actual = math.fsum(one.pace for one, whole in zip(since, full, strict=True) if whole)
        slowdown = actual / math.fsum(one.usual for one, whole in zip(since, full, strict=True) if whole)
        if slow.sum() > size / 2 or not slowdown >= 1 + self._margin:
            return None
        return SlowNodes(self._names(slow), since[0].started_at, slowdown)

    def always_slow(self, slowdown: float) -> SlowNodes | None:
        """The nodes that are slow since the begin, if the job is slower than its history by the margin or more.

        slowdown: actual time of the job over that of its history; NaN if unknown.
        """
        test = self._always
        if (worst := test.worst) < 0 or test.score <= 1 or not slowdown >= 1 + self._margin:
            return None
        slow = test.sums >= SHARE * test.sums[worst]
        if test.starts[worst] > self._begins[-1] or slow.sum() > slow.size / 2:
            return None
        return SlowNodes(self._names(slow), float(test.starts[worst]), slowdown)

    def _names(self, which: npt.NDArray[np.bool_]) -> tuple[str, ...]:
        return tuple(name for name, place in self._places.items() if place < which.size and which[place])

    def follow(self, slow: SlowNodes) -> None:
        """Look whether these nodes have recovered with the latest span that was tested, after an alarm."""
        places = [self._places[name] for name in slow.names]
        excess = [_padded(one.excess, len(self._places))[places] for one in self._recent]
        near = np.fmax.reduce(excess[-1]) < SHARE * np.fmax.reduce(excess, axis=None)
        self._near = self._near + 1 if near else 0
        if self._near >= RECOVERED:
            self.recovered_at = self._recent[-self._near].started_at

    def _excess(self, own: Mapping[str, float]) -> Floats:
        """The logarithm of each node's own work over the median of the others; NaN for nodes that are not there."""
        for name in own:
            self._places.setdefault(name, len(self._places))
        x = np.full(len(self._places), np.nan)
        logs = np.log(np.fromiter(own.values(), float, len(own)))
        x[[self._places[name] for name in own]] = logs - _median_of_others(logs)
        return x

    def _kind(self, classes: Mapping[int, float]) -> _Kind | None:
        """The kind of work of a span; None where its classes are not known, or there are too many kinds."""
        total = math.fsum(classes.values())
        if not total > 0:
            return None
        shares = {one: seconds / total for one, seconds in classes.items()}
        for kind in self._kinds:
            if math.fsum(min(share, kind.shares.get(one, 0.0)) for one, share in shares.items()) >= ALIKE:
                return kind
        if len(self._kinds) >= MAX_KINDS:
            return None
        self._kinds.append(_Kind(shares))
        return self._kinds[-1]

    def _mean_excess(self, own: Mapping[str, float]) -> Floats:
        """The same over the median of all nodes but the first, whose ranks often do what no others do."""
        x = np.full(len(self._places), np.nan)
        names = [name for name in own if name != self._first]
        if not math.isnan(self._limit) and len(names) > 1:
            logs = np.log([own[name] for name in names])
            x[[self._places[name] for name in names]] = logs - np.median(logs)
        return x

    def _test_always(self, started_at: float, mean: Floats, kind: _Kind) -> None:
        if not math.isnan(self._limit):
            self._always.add(started_at, (mean - self._limit) / _padded(kind.scales, mean.size), kind.power)

    def _settle(self, kind: _Kind) -> None:
        """Estimate the levels from all spans so far, without those of open excursions."""
        size = len(self._places)
        rows = np.array([_padded(row, size) for row in kind.rows])
        self._changed.grow(size)
        rows[np.array(kind.starts)[:, None] >= self._changed.starts] = np.nan
        count = np.isfinite(rows).sum(axis=0)
        usable = count >= EARLY
        kind.levels, kind.scales = np.full(size, np.nan), np.full(size, np.nan)
        if not usable.any():
            return
        kind.levels[usable] = np.nanmedian(rows[:, usable], axis=0)
        residuals = rows - kind.levels
        correlation = _correlation(residuals)
        kind.power = (1 - correlation) / (1 + correlation)
        # About a level estimated from few spans, deviations are smaller than about the true one.
        spans = max(len(rows) * kind.power, 1.5)
        values = np.abs(residuals[np.isfinite(residuals)])
        wider = math.sqrt(spans / (spans - 1)) * (1 + 2 / math.sqrt(values.size * kind.power))
        each = [_scale(np.abs(one[np.isfinite(one)])) for one in residuals.T[usable]]
        pooled = wider * _scale(values)
        kind.scales[usable] = np.maximum(pooled, each)
        kind.error = 1.25 * pooled / math.sqrt(spans)
        kind.usual = float(np.median(kind.paces))


def _limit(excesses: Sequence[float], alpha: float, margin: float) -> float:
    """What the largest excess of one more run exceeds with probability alpha; NaN without runs."""
    if not excesses:
        return math.nan
    runs = len(excesses)
    spread = posterior_spread(float(np.std(excesses, ddof=1)) if runs > 1 else math.nan, runs, PRIOR_EXCESS)
    reach = float(stdtrit(PRIOR_RUNS + runs - 1, 1 - alpha)) * spread * math.sqrt(1 + 1 / runs)
    return float(np.mean(excesses)) + max(math.log1p(TESTED * margin), reach)


def _correlation(residuals: Floats) -> float:
    """The correlation of a node's residuals in consecutive spans, with a prior; 0 to 0.9. residuals: spans x nodes."""
    limit = 3 * 1.4826 * float(np.nanmedian(np.abs(residuals))) + MIN_SCALE
    clipped = np.clip(residuals, -limit, limit)
    pairs = clipped[1:] * clipped[:-1]
    known = np.isfinite(pairs)
    square = float(np.nanmean(clipped**2))
    if not square > 0:
        return 0.0
    prior = PRIOR_PAIRS * PRIOR_CORRELATION
    found = (float(pairs[known].sum()) / square + prior) / (int(known.sum()) + PRIOR_PAIRS)
    # An estimate about a median of the same spans is too low.
    return min(max(found + (1 + 3 * found) / len(residuals), 0.0), 0.9)


def _scale(residuals: Floats) -> float:
    """The least scale of the tail with which QUANTILES of absolute residuals are within it."""
    ordered, found = np.sort(residuals), MIN_SCALE
    for quantile in QUANTILES:
        place = math.ceil(quantile * ordered.size) - 1
        if place < ordered.size - 1 or quantile == QUANTILES[0]:
            found = max(found, float(ordered[place]) / float(stdtrit(FREEDOM, (1 + quantile) / 2)))
    return found


def _median_of_others(values: Floats) -> Floats:
    """For each of two values or more, the median of the rest."""
    order = np.argsort(values)
    ranked, places = values[order], np.empty(values.size, np.int64)
    places[order] = np.arange(values.size)

    high = (values.size - 1) // 2
    upper: Floats = np.where(high < places, ranked[high], ranked[high + 1])
    if values.size % 2 == 0:
        return upper
    lower: Floats = np.where(high - 1 < places, ranked[high - 1], ranked[high])
    return 0.5 * (lower + upper)


def _padded(values: Floats, size: int, with_: float = np.nan) -> Floats:
    return np.append(values, np.full(size - values.size, with_)) if values.size < size else values
