"""The test for nodes that work longer than the other nodes of their job do in the same sync points."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from barograph_alerts.detection.change import TESTED
from barograph_alerts.places import PlaceHistory, Unit, over_median_of_others

KAPPA: Final = 0.1
"""The calibrator's exponent, as in `RuntimeTest`: a slow node is far out in the tail."""
KAPPAS: Final = (KAPPA, 0.5)
"""Those of the test for nodes that become slow: the larger one is for nodes that differ from span to span."""
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
MIN_SCALE: Final = 0.005
"""Spans of a node differ by this share at least."""
UNLIKE: Final = 3.0
"""A node whose spans differ by so many times what those of most nodes do says nothing about the spans of these: it may
write what the others have computed."""
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
LOOKS: Final = (3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of spans from the begin of the job after which nodes are compared with its history, from FIRST_LOOK on."""
FIRST_LOOK: Final = 3.0
"""Seconds of a job before that: nodes may begin with cold caches."""
JOINED_SECONDS: Final = 1.0
MAX_JOINED: Final = 16
"""Shorter spans, as they are early in a job, are joined before a node is compared with its own past."""
LIKELY: Final = 0.01
"""The p-value of a node from which it may be why a job is slow of which that is known."""
RECENT: Final = 32
"""Newest spans kept one by one."""
RECOVERED: Final = 3
"""An alarm ends after this many consecutive spans that are nearer to the levels than to what they were."""

Floats = npt.NDArray[np.float64]


class NodeSpan(NamedTuple):
    """What the nodes of a job did between the same sync points. Times are Unix seconds.

    most, mean: seconds of own work per sync point, above 0, of each node's rank with most, and of its ranks; or of
    messages. pace: seconds per sync point. classes: seconds of the job's intervals by class id meanwhile. places: of
    nodes among all of them, where that is known.
    """

    started_at: float
    ended_at: float
    most: Mapping[str, float]
    mean: Mapping[str, float]
    pace: float
    classes: Mapping[int, float]
    places: Mapping[str, int] = {}
    unit: Unit = "sync point"


class JobNodes(NamedTuple):
    """The nodes of a job. usual: what healthy runs of like work gave to each place."""

    number: int = 1
    usual: PlaceHistory | None = None


ONE_NODE: Final = JobNodes()


class BeyondPlaces(NamedTuple):
    """Nodes that do more than their places did in earlier runs. seconds: per sync point, of the one with most."""

    names: tuple[str, ...]
    seconds: float
    unit: Unit


class SlowNodes(NamedTuple):
    """Nodes that work longer than usual. slowdown: actual over usual time of the job since `started_at`.

    seconds: own work per unit beyond the usual, of the one with most; 0 if unknown.
    """

    names: tuple[str, ...]
    started_at: float
    slowdown: float
    seconds: float
    unit: Unit


class _Tested(NamedTuple):
    """A span that was tested. excess: of each node over its level; usual: the pace of its kind of work."""

    started_at: float
    excess: Floats
    pace: float
    usual: float


@dataclass
class _Kind:
    """One kind of work: its first spans, and what is usual for each node."""

    unit: Unit
    shares: Mapping[int, float]
    starts: list[float] = field(default_factory=list)
    rows: list[Floats] = field(default_factory=list)
    paces: list[float] = field(default_factory=list)
    levels: Floats = field(default_factory=lambda: np.empty(0))
    scales: Floats = field(default_factory=lambda: np.empty(0))
    error: Floats = field(default_factory=lambda: np.empty(0))
    power: float = 1.0
    """Independent spans for each one."""
    usual: float = math.nan

    @property
    def settled(self) -> bool:
        """Whether levels are known."""
        return bool(self.levels.size)


class _Excursions:
    """The e-processes of each node, one for each of KAPPAS, their mean, and Page's CUSUM of each. alpha: of that."""

    def __init__(self, alpha: float) -> None:
        self._threshold = math.log(1 / alpha)
        self.log_e = 0.0
        self.sums: Floats = np.empty(0)
        self.starts: Floats = np.empty(0)
        """Begin of each node's excursion, infinite where there is none."""
        self._log_m = np.empty((len(KAPPAS), 0))
        self.spans = 0
        """So many, as `windows` of `Sequential`."""

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
        self.log_e, self.spans = 0.0, 0
        self.sums, self.starts, self._log_m = np.empty(0), np.empty(0), np.empty((len(KAPPAS), 0))

    def grow(self, size: int) -> None:
        """Have so many nodes or more."""
        self.sums, self.starts = _padded(self.sums, size, 0.0), _padded(self.starts, size, np.inf)
        missing = max(size - self._log_m.shape[1], 0)
        self._log_m = np.pad(self._log_m, ((0, 0), (0, missing)), constant_values=-np.inf)

    def add(self, started_at: float, z: Floats, power: float) -> None:
        """Add a span. z: of each node, NaN where unknown."""
        self.grow(z.size)
        known = np.isfinite(z)
        log_e = np.zeros(self._log_m.shape)
        log_p = np.log(np.maximum(stdtr(FREEDOM, -z[known]), FLOOR))
        log_e[:, known] = [power * (math.log(kappa) + (kappa - 1) * log_p) for kappa in KAPPAS]
        self.spans += 1
        self._log_m = log_e + np.logaddexp(self._log_m, -math.log(self.spans * (self.spans + 1)))
        each = np.logaddexp(self._log_m, -math.log(self.spans + 1))
        self.log_e = float(np.logaddexp.reduce(each, axis=None)) - math.log(each.size)
        fresh = self.sums <= 0
        self.sums = np.where(fresh, 0.0, self.sums) + np.logaddexp.reduce(log_e) - math.log(len(KAPPAS))
        self.starts = np.where(fresh, started_at, self.starts)
        self.starts[self.sums <= 0] = np.inf


class _Standing:
    """The excess of nodes over what earlier runs gave to their places, in the first spans of a job.

    With d the median over the spans so far, the p-value of a node is that of

        (d - log(1 + TESTED margin)) / hypot(s, 1.25 r / sqrt(n))

    by Student's t, s the spread between runs with its degrees of freedom, r that of n independent spans. It is taken
    after so many spans as in LOOKS, and multiplied by the number of nodes, and by k (k + 1) for look k: the sum over
    looks and nodes of the probabilities to go below alpha is alpha at most. alpha: of the test.
    """

    def __init__(self, alpha: float, margin: float) -> None:
        self._threshold = math.log(1 / alpha)
        self._tolerance = math.log1p(TESTED * margin)
        self._rows: list[Floats] = []
        self.started_at = math.nan
        self._seconds = 0.0
        """Since then."""
        self._first = 0
        """Spans before the first look, of which a node must have been slow in half."""
        self._looks, self._next = 0, LOOKS[0]
        """How often it was tested, and after how many spans it will be; 0 for never."""
        self._log_p = 0.0
        """The least so far, of any node."""
        self._medians, self._newest = np.empty(0), np.empty(0)
        """Of each node at the latest look: d, and the logarithm of its p-value times the number of nodes."""

    @property
    def score(self) -> float:
        """Above 1 a node is slow."""
        return max(0.0, -self._log_p / self._threshold)

    @property
    def has_begun(self) -> bool:
        """Whether nodes are compared."""
        return bool(self._rows)

    @property
    def log_e(self) -> float:
        """Log e-value that the least p-value gives."""
        return math.log(KAPPA) + (KAPPA - 1) * min(self._log_p, 0.0)

    def add(self, span: NodeSpan, beyond: Floats) -> None:
        """Add a span. beyond: of each node, excess over that of its place."""
        if not self._rows:
            self.started_at = span.started_at
        self._seconds = span.ended_at - self.started_at
        if len(self._rows) < LOOKS[-1]:
            self._rows.append(beyond)

    def look(self, spread: Floats, freedom: int) -> None:
        """Test, if enough spans were added since the last look. spread: of each node's level between runs."""
        if not self._next or len(self._rows) < self._next or self._seconds < FIRST_LOOK:
            return
        self._looks, self._next = self._looks + 1, next((one for one in LOOKS if one > len(self._rows)), 0)
        self._first = self._first or len(self._rows)
        size = spread.size
        rows = np.array([_padded(row, size) for row in self._rows])
        known = np.isfinite(rows).all(axis=0) & np.isfinite(spread)
        self._medians, self._newest = np.full(size, np.nan), np.zeros(size)
        if not known.any():
            return
        median = np.median(rows[:, known], axis=0)
        first = np.median(rows[: self._first, known], axis=0)
        noise = _Noise(rows[:, known] - median)
        error = 1.25 * noise.scales / math.sqrt(max(len(rows) * noise.power, 1.0))
        z = (median - self._tolerance) / np.hypot(spread[known], error)
        log_p = np.log(np.maximum(stdtr(freedom, -z), np.finfo(float).tiny)) + math.log(size)
        # One that has become slow was not from the begin on.
        self._newest[known] = np.where(first >= SHARE * median, np.minimum(log_p, 0.0), 0.0)
        self._medians[known] = median
        self._log_p = min(self._log_p, float(self._newest.min()) + math.log(self._looks * (self._looks + 1)))

    def excess(self, place: int) -> float:
        """How much more a node did at the latest look than its place before, logarithm."""
        return float(self._medians[place])

    def slow(self, least: float, p: float = math.nan) -> npt.NDArray[np.bool_] | None:
        """The nodes whose d is `least` and SHARE of the largest or more, of those with p-values below `p`, or alpha."""
        if not self._medians.size:
            return None
        limit = -self._threshold if math.isnan(p) else math.log(p)
        likely = (self._newest <= limit) & (self._medians >= least)
        if not likely.any():
            return None
        slow = likely & (self._medians >= SHARE * np.max(self._medians[likely]))
        return slow if slow.sum() <= slow.size / 2 else None


class NodeTest:
    """An e-process for each node, and their mean for the job.

    With x the logarithm of a node's own work over the median of the others between the same sync points, and L the
    median of x in the first spans, the p-value of a span is that of

        (x - L - T) / s        T = log(1 + TESTED margin) + 2 error(L)

    by Student's t with FREEDOM degrees of freedom. s is the least scale with which QUANTILES of the residuals are
    within those of that distribution, of all nodes that differ as most do and of the node itself. A p-value becomes an
    e-value by each of KAPPAS, and these M and E as in `Sequential`. The mean of E over them and the nodes is an
    e-process as well, whatever their dependence.

    What the nodes have in common, such as a slower phase or network, is in no x, so the job needs no history. Only
    spans of one kind of work are compared, those whose time is in the same classes of intervals: what the program gives
    a node in another phase is learned by itself.

    A node that was slow from the begin of the job is tested where healthy runs of like work have shown what each place
    among the nodes has (`_Standing`). Half of alpha is for this.

    alpha: of the test. margin: as in `Evidence`.
    """

    def __init__(self, alpha: float, margin: float, nodes: JobNodes) -> None:
        self._margin = margin
        self._places: dict[str, int] = {}
        self._kinds: list[_Kind] = []
        self._usual = nodes.usual
        self._unplaced: list[tuple[NodeSpan, Floats]] = []
        """The first spans, and excesses of nodes in them, as long as it is not known which places the nodes have."""
        self._newest: NodeSpan | None = None
        self._standing = _Standing(alpha / 2, margin) if nodes.usual is not None else None
        self._changed = _Excursions(alpha if nodes.usual is None else alpha / 2)
        self._reset()

    def reset(self) -> None:
        """Restart the test with the next span; levels remain. Nodes that were slow from the begin are known by then."""
        self._standing = None
        self._reset()

    def begin_anew(self) -> None:
        """Learn what is usual with the next span. Alpha is shared with the tests so far, as in `Sequential`."""
        spans = self._changed.spans
        self._kinds, self._unplaced = [], []
        self.reset()
        self._changed.spans = spans

    def _reset(self) -> None:
        self._changed.reset()
        self._short: list[NodeSpan] = []
        """The newest spans, which are to be joined with the next one."""
        self.recovered_at = math.nan
        """Begin of the spans since the alarm in which the slow nodes have recovered; NaN if they have not."""
        self._recent: deque[_Tested] = deque(maxlen=RECENT)
        self._near = 0

    @property
    def score(self) -> float:
        """log E over log(1 / alpha), at least 0; above 1 there are slow nodes, unless they delay nobody."""
        return max(self._changed.score, self._standing.score if self._standing is not None else 0.0)

    @property
    def log_e(self) -> float:
        """Log e-value of the hypothesis that no node is slow."""
        if self._standing is None:
            return self._changed.log_e
        return float(np.logaddexp(self._changed.log_e, self._standing.log_e)) - math.log(2)

    def add(self, span: NodeSpan, *, disturbed: bool) -> bool:
        """Add the next span of two nodes or more; returns whether it was tested.

        disturbed: an alarm is open, nothing is learned.
        """
        x, self._newest = self._excess(span.most), span
        self._compare_with_history(span, x)
        if self._short and self._short[-1].unit != span.unit:
            self._short.clear()
        self._short.append(span)
        if span.ended_at - self._short[0].started_at < JOINED_SECONDS and len(self._short) < MAX_JOINED:
            return self.score > 1
        spans, self._short = self._short, []
        if len(spans) > 1:
            span = _joined(spans)
            if len(span.most) < 2:
                return self.score > 1
            x = self._excess(span.most)
        kind = self._kind(span)
        if kind is None:
            return False
        if kind.settled:
            excess = x - _padded(kind.levels, x.size)
            tolerance = math.log1p(TESTED * self._margin) + 2 * _padded(kind.error, x.size)
            self._changed.add(span.started_at, (excess - tolerance) / _padded(kind.scales, x.size), kind.power)
            self._recent.append(_Tested(span.started_at, excess, span.pace, kind.usual))
        if not disturbed and len(kind.rows) < SETTLING[-1]:
            kind.starts.append(span.started_at)
            kind.rows.append(x)
            kind.paces.append(span.pace)
            count = len(kind.rows)
            if count in SETTLING or (count == EARLY and count * x.size >= EARLY_RESIDUALS):
                self._settle(kind)
        return kind.settled or self.score > 1

    def drop_since(self, at: float) -> None:
        """Drop what was learned since the begin of a disturbance."""
        for kind in self._kinds:
            count = bisect_left(kind.starts, at)
            del kind.starts[count:], kind.rows[count:], kind.paces[count:]

    def slow(self) -> SlowNodes | None:
        """The nodes of the excursion with most evidence, if they delay the job by the margin or more."""
        if (worst := self._changed.worst) < 0 or self._changed.score <= 1:
            return None
        size, began_at = self._changed.sums.size, self._changed.starts[worst]
        recent = [(one, _padded(one.excess, size)) for one in self._recent if one.started_at >= began_at]
        # In other kinds of work the level of the node may not be known.
        since = [one for one, excess in recent if math.isfinite(excess[worst])]
        if len(since) < MIN_SPANS:
            return None
        excess = np.array([excess for _, excess in recent if math.isfinite(excess[worst])])
        # The first span may have begun before.
        full = excess[:, worst] >= SHARE * excess[:, worst].max()
        mean = np.nanmean(np.where(np.isnan(excess[full]), 0.0, excess[full]), axis=0)
        slow = (mean >= SHARE * mean[worst]) & (self._changed.sums >= SHARE * self._changed.sums[worst])
        actual = math.fsum(one.pace for one, whole in zip(since, full, strict=True) if whole)
        slowdown = actual / math.fsum(one.usual for one, whole in zip(since, full, strict=True) if whole)
        if slow.sum() > size / 2 or not slowdown >= 1 + self._margin:
            return None
        seconds = self._seconds({name: mean[self._places[name]] for name in self._names(slow)})
        return SlowNodes(self._names(slow), since[0].started_at, slowdown, *seconds)

    def always_slow(self, slowdown: float) -> SlowNodes | None:
        """The nodes that are slow since the begin, if the job is slower than its history by the margin or more.

        slowdown: actual time of the job over that of its history; NaN if unknown.
        """
        if (test := self._standing) is None or test.score <= 1 or not slowdown >= 1 + self._margin:
            return None
        slow = test.slow(0.0)
        if slow is None or not (names := self._names(slow)):
            return None
        seconds = self._seconds({name: test.excess(self._places[name]) for name in names})
        return SlowNodes(names, test.started_at, slowdown, *seconds)

    def beyond_places(self, slowdown: float) -> BeyondPlaces | None:
        """Nodes that do more than their places did before, by SHARE of the slowdown of their job or more.

        From the begin on, in a job of which it is known that it is slow. None where that cannot be compared, and no
        names as long as it has not been.
        """
        test = self._standing
        if test is None or not test.has_begun or not slowdown > 1:
            return None
        slow = test.slow(SHARE * math.log(slowdown), LIKELY)
        names = self._names(slow) if slow is not None else ()
        return BeyondPlaces(names, *self._seconds({name: test.excess(self._places[name]) for name in names}))

    def _seconds(self, excess: Mapping[str, float]) -> tuple[float, Unit]:
        """The largest own work beyond the usual in the newest span, of these nodes; 0 if none is in it."""
        if (span := self._newest) is None:
            return 0.0, "sync point"
        own = (span.most[name] * -math.expm1(-beyond) for name, beyond in excess.items() if name in span.most)
        return max(own, default=0.0), span.unit

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
        x[[self._places[name] for name in own]] = over_median_of_others(logs)
        return x

    def _kind(self, span: NodeSpan) -> _Kind | None:
        """The kind of work of a span; None where its classes are not known, or there are too many kinds."""
        total = math.fsum(span.classes.values())
        if not total > 0:
            return None
        shares = {one: seconds / total for one, seconds in span.classes.items()}
        for kind in self._kinds:
            alike = math.fsum(min(share, kind.shares.get(one, 0.0)) for one, share in shares.items())
            if kind.unit == span.unit and alike >= ALIKE:
                return kind
        if len(self._kinds) >= MAX_KINDS:
            return None
        self._kinds.append(_Kind(span.unit, shares))
        return self._kinds[-1]

    def _compare_with_history(self, span: NodeSpan, x: Floats) -> None:
        """Compare nodes with what earlier runs gave to their places. x: the excess of each."""
        test, usual = self._standing, self._usual
        if test is None or usual is None or len(span.most) != usual.places:
            return
        if not span.places:
            # Sidecars report them once no further rank has begun for a second.
            if len(self._unplaced) < LOOKS[-1]:
                self._unplaced.append((span, x))
            return
        unplaced, self._unplaced = self._unplaced, []
        for one, excess in [*unplaced, (span, x)]:
            self._compare_with_places(test, usual, one._replace(places=span.places), excess)

    def _compare_with_places(self, test: _Standing, usual: PlaceHistory, span: NodeSpan, x: Floats) -> None:
        if len(span.places) != usual.places or (levels := usual.levels(span.classes)) is None:
            return
        names = list(self._places)[: x.size]
        known = np.array([name in span.places for name in names])
        of_place = np.array([span.places[name] for name in names if name in span.places])
        beyond, scale = np.full(x.size, np.nan), np.full(x.size, np.nan)
        beyond[known], scale[known] = x[known] - levels.excess[of_place], levels.scale[of_place]
        test.add(span, beyond)
        test.look(scale, levels.freedom)

    def _settle(self, kind: _Kind) -> None:
        """Estimate the levels from all spans so far, without those of open excursions."""
        size = len(self._places)
        rows = np.array([_padded(row, size) for row in kind.rows])
        self._changed.grow(size)
        rows[np.array(kind.starts)[:, None] >= self._changed.starts] = np.nan
        count = np.isfinite(rows).sum(axis=0)
        usable = count >= EARLY
        kind.levels, kind.scales, kind.error = (np.full(size, np.nan) for _ in range(3))
        if not usable.any():
            return
        kind.levels[usable] = np.nanmedian(rows[:, usable], axis=0)
        residuals = rows - kind.levels
        noise = _Noise(residuals[:, usable])
        kind.power, kind.scales[usable] = noise.power, noise.scales
        kind.error[usable] = 1.25 * noise.pooled / math.sqrt(max(len(rows) * noise.power, 1.5))
        # Nor do those count of a node that has become slow and is not known yet to be.
        before = bisect_left(kind.starts, self._changed.starts.min())
        kind.usual = float(np.median(kind.paces[:before] if before >= EARLY else kind.paces))


class _Noise:
    """How spans of nodes differ from their levels. residuals: spans x nodes, about the medians of these spans.

    pooled: the scale of the tail of the nodes that are like most, for those that are UNLIKE them that of all. scales:
    of each, at least that. power: independent spans for each one.
    """

    def __init__(self, residuals: Floats) -> None:
        correlation = _correlation(residuals)
        self.power = (1 - correlation) / (1 + correlation)
        # About a level estimated from few spans, deviations are smaller than about the true one.
        spans = max(len(residuals) * self.power, 1.5)
        deviations = np.abs(residuals)
        usual = np.nanmedian(deviations, axis=0)
        alike = usual <= UNLIKE * max(float(np.median(usual)), MIN_SCALE)

        def pooled(of: Floats) -> float:
            values = of[np.isfinite(of)]
            return math.sqrt(spans / (spans - 1)) * (1 + 2 / math.sqrt(values.size * self.power)) * _scale(values)

        self.pooled = np.full(usual.size, pooled(deviations[:, alike]))
        if not alike.all():
            self.pooled[~alike] = pooled(deviations)
        each = [_scale(one[np.isfinite(one)]) for one in deviations.T]
        self.scales: Floats = np.maximum(self.pooled, each)


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


def _joined(spans: Sequence[NodeSpan]) -> NodeSpan:
    """Consecutive spans as one, of the nodes that are in all of them."""
    syncs = [max(one.ended_at - one.started_at, 0.0) / one.pace for one in spans]
    total = math.fsum(syncs)
    # By contradictory times spans may have no length.
    known = 0 < total < math.inf
    weights = [sync / total for sync in syncs] if known else [1 / len(spans)] * len(spans)
    names = [name for name in spans[0].most if all(name in one.most for one in spans)]

    def mean(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
        pairs = list(zip(weights, parts, strict=True))
        return {name: math.fsum(weight * part[name] for weight, part in pairs) for name in names}

    classes: Counter[int] = Counter()
    for one in spans:
        classes.update(one.classes)
    return spans[-1]._replace(
        started_at=spans[0].started_at,
        most=mean([one.most for one in spans]),
        mean=mean([one.mean for one in spans]),
        pace=math.fsum(weight * one.pace for weight, one in zip(weights, spans, strict=True)),
        classes=classes,
    )


def _padded(values: Floats, size: int, with_: float = np.nan) -> Floats:
    return np.append(values, np.full(size - values.size, with_)) if values.size < size else values
