"""The cause of a slowdown, from the growth of own work and of waiting of each rank or node since the onset."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from statistics import median_low
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias

from barograph_alerts.attribution.work import WorkSpan
from barograph_alerts.places import Unit

RECENT: Final = 64  # Newest work spans kept one by one, since an onset is detected some time later
SHARE: Final = 0.5  # A member is a straggler if it has at least this share of the worst member's growth
OWN: Final = 0.2
"""If no member's own work grew by this share of the lost time, the time is lost in communication."""
LINK: Final = 0.75
"""Nodes whose messages have at least this share of the largest growth may have the slow link: the node itself waits for
all of its messages, its neighbours for some, or for all if they depend on each other."""
NEIGHBOUR: Final = 0.15
"""Share of the largest growth from which on a node is one that exchanges messages over the slow link."""
PHASE: Final = 0.8
"""A single class is the cause if it has this share of the lost time, and at most PHASE_BEFORE of the expected time."""
PHASE_BEFORE: Final = 0.6
MAIN: Final = 0.5  # share of the time in the unit with most time from which on another one tells the cause
MIN_SYNCS: Final = 20  # Least number of sync points before and after the onset

KernelKind: TypeAlias = Literal["core", "memory", "disk", "stopped", "steal", "throttled", "accelerator"]
"""What the kernel of a node knows."""
Kind: TypeAlias = (
    KernelKind
    | Literal["straggler", "all-slow", "network", "link", "one-phase", "more-work"]
    | Literal["stall", "unknown"]
)


class Beside(NamedTuple):
    """The busiest process beside a rank. name: empty if it is not to be told. owner: `same` or `other` user, `rank`."""

    name: str
    owner: str
    core: int
    shares_core: bool
    """Whether the rank runs on that core too."""


class OwnGrowth(NamedTuple):
    """Growth of own work of a node's ranks, summed, and of the one with most; seconds per sync point before, now."""

    ranks: int
    seconds: float
    most: float
    before: float
    now: float


@dataclass(frozen=True)
class Unknown:
    """Nobody is to blame, as far as that can be seen."""

    kind: ClassVar[Kind] = "unknown"


@dataclass(frozen=True)
class NoProgress:
    """No interval ends."""

    kind: ClassVar[Kind] = "stall"


@dataclass(frozen=True)
class LongerWork:
    """Own work beyond a reference, in seconds per unit, 0 if unknown: before the onset, or what others do.

    worker: rank of a training's worker, if it is about one. update: duration of its updates over that of the others.
    """

    kind: ClassVar[Kind] = "straggler"
    own: float
    reference: Literal["before", "the others", "nodes at its place in earlier runs"] = "before"
    worker: int | None = None
    update: float = math.nan


@dataclass(frozen=True)
class AllSlow:
    """Own work of most members has grown, in seconds per unit; as_before: a node works longer in every run."""

    kind: ClassVar[Kind] = "all-slow"
    own: float = math.nan
    as_before: bool = False


@dataclass(frozen=True)
class MoreWork:
    """The program computes more by itself, in seconds per unit; 0 if unknown."""

    kind: ClassVar[Kind] = "more-work"
    own: float = 0.0


@dataclass(frozen=True)
class LongerWaits:
    """Waiting that has grown by so many seconds per unit, while no own work has."""

    kind: ClassVar[Kind] = "network"
    wait: float


@dataclass(frozen=True)
class SlowMessages:
    """The same, and growth of the time in messages."""

    kind: ClassVar[Kind] = "link"
    wait: float
    p2p: float


@dataclass(frozen=True)
class SlowTransfers:
    """Seconds for which a megabyte is in flight, now and before."""

    kind: ClassVar[Kind] = "link"
    transfer: float
    usual: float


@dataclass(frozen=True)
class BadLink:
    """Errors of a node's links per second, and of its median peer; bit/s of all of them, and what is usual."""

    kind: ClassVar[Kind] = "link"
    errors: float
    errors_peers: float
    rate: float
    rate_usual: float


@dataclass(frozen=True)
class SlowPhase:
    """The class that has `share` of the lost time, and had `share_before` of the expected time."""

    kind: ClassVar[Kind] = "one-phase"
    class_id: int
    share: float
    share_before: float


@dataclass(frozen=True)
class KernelLoss:
    """The share of its time that the worst rank, or node, loses now and before, and how many lose about as much.

    faults, swapped: pages per second. clock_peers_hz: of the job's other nodes. events: throttles, or errors of
    accelerators. celsius: of the hottest accelerator. NaN where unknown.
    """

    kind: KernelKind
    waited: float
    waited_before: float
    members: int
    host: str
    rank: int | None = None
    faults: float = 0.0
    swapped: float = 0.0
    clock_hz: float = math.nan
    clock_before_hz: float = math.nan
    clock_peers_hz: float = math.nan
    events: float = math.nan
    celsius: float = math.nan


Reason: TypeAlias = (
    Unknown | NoProgress | LongerWork | AllSlow | MoreWork
    | LongerWaits | SlowMessages | SlowTransfers | BadLink | SlowPhase | KernelLoss
)  # fmt: skip


class Uncompared(NamedTuple):
    """Nodes of the job, and how many of them could be compared."""

    nodes: int
    nodes_compared: int


class CoreWaits(NamedTuple):
    """Waiting for cores that is not the cause: the largest share of its time that a rank did, and what it was before.

    core_nodes: nodes on which ranks did about as much, 0 of a job on one.
    """

    core_waited: float
    core_waited_before: float
    core_nodes: int


@dataclass(frozen=True)
class Cause:
    """The cause of an alarm. members: names, or ("all",). unit: what the seconds of the reason are per, if known."""

    reason: Reason = Unknown()
    members: tuple[str, ...] = ()
    unit: Unit | None = None
    uncompared: Uncompared | None = None
    cores: CoreWaits | None = None
    beside: Beside | None = None
    """Who runs where a rank waits for a core."""
    silent: tuple[str, ...] = ()
    """Nodes whose kernels show no reason."""
    memory_errors: float = 0.0  # of nodes that may be to blame, while it lasts
    growths: Mapping[str, OwnGrowth] = field(default_factory=dict)
    """Of each node, by name, empty for the only one of a job."""
    computed: bool | None = None
    """Whether own work grew by computing, and no node is seen to be slower; None as long as that is not known."""

    @property
    def kind(self) -> Kind:
        """The kind of the reason."""
        return self.reason.kind

    @property
    def phase(self) -> int | None:
        """The class that is slow, for one-phase."""
        return self.reason.class_id if isinstance(self.reason, SlowPhase) else None

    @property
    def numbers(self) -> dict[str, float]:
        """The finite figures by name."""
        figures = dict(vars(self.reason))
        for more in (self.uncompared, self.cores):
            figures |= more._asdict() if more is not None else {}
        numbers = {name: float(one) for name, one in figures.items() if type(one) in (int, float)}
        return {name: value for name, value in numbers.items() if math.isfinite(value) and name != "class_id"}


ALL: Final = ("all",)


class Sums:
    """Sums over the work spans of one member."""

    __slots__ = ("labels", "most", "own", "p2p", "rank", "ranks", "syncs", "wait")

    def __init__(self) -> None:
        self.syncs = 0
        self.own = self.most = self.wait = self.p2p = 0.0
        self.labels: Counter[str] = Counter()
        self.rank = -1
        """The lowest rank known of a node, -1 if none is."""
        self.ranks = 1
        """Most ranks that the seconds were a mean of."""


class _Spans:
    def __init__(self) -> None:
        self.before: dict[str, Sums] = {}
        self.recent: deque[WorkSpan] = deque()

    def around(self, onset_at: float, until: float) -> tuple[dict[str, Sums], dict[str, Sums]]:
        """The sums of members before an onset, and since then: until a time, if that is long enough to compare them."""
        before = _sum((span for span in self.recent if span.ended_at <= onset_at), deepcopy(self.before))
        since = [span for span in self.recent if span.ended_at > onset_at]
        during = _sum((span for span in since if span.ended_at <= until), {})
        is_short = min((sums.syncs for sums in during.values()), default=0) < MIN_SYNCS
        return before, _sum(since, {}) if is_short else during


class Attribution:
    """Compares the members of one job before and after an onset, in each unit by itself.

    nodes: number of nodes of the job. On several they are the members, and on one its ranks.
    """

    def __init__(self, nodes: int = 1) -> None:
        self._nodes = nodes
        self._units: dict[Unit, _Spans] = {}
        self._names: dict[str, None] = {}

    def add(self, span: WorkSpan, onset_at: float = math.inf) -> None:
        """Add the next work span. onset_at: of an open alarm; later spans are not counted as normal."""
        self._names.update(dict.fromkeys(work.name for work in span.members))
        spans = self._units.setdefault(span.unit, _Spans())
        spans.recent.append(span)
        if len(spans.recent) > RECENT:
            oldest = spans.recent.popleft()
            if oldest.ended_at <= onset_at:
                _sum((oldest,), spans.before)

    def end_disturbance(self, onset_at: float) -> None:
        """End a disturbance: recent spans before `onset_at` are counted as normal, later ones are dropped."""
        for spans in self._units.values():
            _sum((span for span in spans.recent if span.ended_at <= onset_at), spans.before)
            spans.recent.clear()

    def begin_anew(self, since: float) -> None:
        """Take what members do from `since` on for normal, and nothing before."""
        for spans in self._units.values():
            spans.before.clear()
            spans.recent = deque(span for span in spans.recent if span.ended_at > since)

    def members(self) -> tuple[str, ...]:
        """Names of all members so far."""
        return tuple(self._names)

    def cause(self, onset_at: float, slowdown: float = math.nan, until: float = math.inf) -> Cause:
        """The cause of the time lost since `onset_at`, and until then. slowdown: actual over expected time meanwhile.

        It is that of the unit with most time since then, or of another with MAIN of that if only that has one.
        """
        found: list[tuple[float, Cause]] = []
        for unit, spans in self._units.items():
            before, during = spans.around(onset_at, until)
            seconds = max((sums.own + sums.wait for sums in during.values()), default=0.0)
            found.append((seconds, replace(self._cause(before, during, slowdown), unit=unit)))
        found = sorted(found, key=lambda one: -one[0]) or [(0.0, self._cause({}, {}, slowdown))]
        causes = [cause for seconds, cause in found if seconds >= MAIN * found[0][0]]
        return next((cause for cause in causes if cause.kind != "unknown"), causes[0])

    def _cause(self, before: Mapping[str, Sums], during: Mapping[str, Sums], slowdown: float) -> Cause:
        """The cause in one unit. before, during: sums of members before and since the onset.

        All figures are differences in seconds per sync point, since the onset minus before it. With o_m the growth of
        member m's own work and w_m that of its waiting, the job has lost the mean of o_m + w_m over members. d_m is the
        growth of the own work of the member's rank with most: a single rank of a node may delay all.
        straggler: at most half of the members have SHARE of the largest d_m or more. network: no d_m reaches OWN of the
        loss, so only waiting has grown. link: the same, and messages of at most half of the nodes have LINK or more of
        the largest growth of time in messages, which is SHARE of the loss or more; of these the one in the middle of
        all that exchange messages over the link, if there is one. all-slow: otherwise. unknown: nobody was compared; or
        these sync points have lost no time, so others have; or all wait for somebody else while nodes are missing.
        Where nothing is known from before the onset, nodes are compared with each other.
        """
        names = [n for n in during if n in before and min(before[n].syncs, during[n].syncs) >= MIN_SYNCS]
        uncompared = None
        if self._nodes > 1 and len(names) < self._nodes:
            uncompared = Uncompared(self._nodes, len(names))
        unknown = Cause(uncompared=uncompared)
        if not names or (uncompared is not None and len(names) == 1):
            return self._among_nodes(during, slowdown) or unknown
        if len(names) == 1:
            return Cause(AllSlow(), ALL)
        own = {n: during[n].own / during[n].syncs - before[n].own / before[n].syncs for n in names}
        wait = {n: during[n].wait / during[n].syncs - before[n].wait / before[n].syncs for n in names}
        lost = math.fsum(own.values()) / len(names) + math.fsum(wait.values()) / len(names)
        if not lost > 0:
            return unknown
        own = {n: during[n].most / during[n].syncs - before[n].most / before[n].syncs for n in names}
        growths = self._growths(names, before, during)
        if max(own.values()) < OWN * lost:
            p2p = {n: during[n].p2p / during[n].syncs - before[n].p2p / before[n].syncs for n in names}
            ranks = {n: during[n].rank for n in names}
            return unknown if uncompared is not None else _in_waiting(p2p, ranks, lost, max(wait.values()))
        blamed = _most_work(own)
        if len(blamed) <= len(names) / 2:
            return Cause(
                LongerWork(max(own.values())), tuple(_label(name, during[name]) for name in blamed), growths=growths
            )
        return Cause(AllSlow(max(own.values())), ALL, growths=growths)

    def _growths(
        self, names: Sequence[str], before: Mapping[str, Sums], during: Mapping[str, Sums]
    ) -> dict[str, OwnGrowth]:
        """What each node does more, or the only one."""
        if self._nodes > 1:
            return {name: _growth([(before[name], during[name])]) for name in names}
        return {"": _growth([(before[name], during[name]) for name in names])}

    def _among_nodes(self, during: Mapping[str, Sums], slowdown: float) -> Cause | None:
        """The nodes that work longer than the others, if that is SHARE of the lost time or more."""
        names = [name for name, sums in during.items() if sums.syncs >= MIN_SYNCS]
        if len(names) < max(self._nodes, 2) or not slowdown > 1:
            return None
        own = {name: during[name].own / during[name].syncs for name in names}
        wait = math.fsum(during[name].wait / during[name].syncs for name in names) / len(names)
        lost = (math.fsum(own.values()) / len(names) + wait) * (1 - 1 / slowdown)
        own = {name: during[name].most / during[name].syncs for name in names}
        usual = median_low(own.values())
        more = {name: value - usual for name, value in own.items()}
        blamed = _most_work(more)
        if max(more.values()) < SHARE * lost or len(blamed) > len(names) / 2:
            return None
        return Cause(LongerWork(max(more.values()), "the others"), blamed)


def phase_cause(seconds: Mapping[int, tuple[float, float]]) -> Cause | None:
    """The class that has nearly all of the lost time, or None. seconds: class id -> actual and expected."""
    expected = math.fsum(e for _, e in seconds.values())
    lost = {class_id: a - e for class_id, (a, e) in seconds.items()}
    total = math.fsum(lost.values())
    if not lost or total <= 0 or expected <= 0:
        return None
    worst = max(lost, key=lambda class_id: lost[class_id])
    before = seconds[worst][1] / expected
    if lost[worst] < PHASE * total or before > PHASE_BEFORE:
        return None
    return Cause(SlowPhase(worst, lost[worst] / total, before), ALL)


def _in_waiting(p2p: Mapping[str, float], ranks: Mapping[str, int], lost: float, wait: float) -> Cause:
    """The cause where only waiting has grown. p2p: each member's growth of the time in messages. ranks: one of each."""
    worst = max(p2p.values())
    linked = tuple(name for name, growth in p2p.items() if growth >= LINK * worst)
    if worst >= SHARE * lost and len(linked) <= len(p2p) / 2:
        touched = {name for name, growth in p2p.items() if growth >= NEIGHBOUR * worst}
        middle = _middle(linked, touched, sorted(p2p, key=lambda name: ranks[name])) if min(ranks.values()) >= 0 else ()
        return Cause(SlowMessages(wait, worst), middle or linked)
    return Cause(LongerWaits(wait), ALL)


def in_network(cause: Cause) -> Cause:
    """The cause without the node that the time of messages suggests."""
    return (
        replace(cause, reason=LongerWaits(cause.reason.wait), members=ALL)
        if isinstance(cause.reason, SlowMessages)
        else cause
    )


def _middle(linked: Iterable[str], touched: Collection[str], order: Sequence[str]) -> tuple[str, ...]:
    """The only member whose neighbours the touched ones can be, at the same distances on both sides; empty without one.

    order: all members by rank; after the last comes the first.
    """
    places = {name: place for place, name in enumerate(order)}
    found = []
    for name in linked:
        distances = {(places[other] - places[name]) % len(order) for other in touched if other != name}
        if distances and distances == {-distance % len(order) for distance in distances}:
            found.append(name)
    return tuple(found) if len(found) == 1 else ()


def _label(name: str, sums: Sums) -> str:
    """The most frequent label of a member, else its name."""
    return sums.labels.most_common(1)[0][0] if sums.labels else name


def _growth(members: Sequence[tuple[Sums, Sums]]) -> OwnGrowth:
    """Of the ranks of a node. members: groups of ranks, before and since the onset."""
    ranks = sum(now.ranks for _, now in members)

    def mean(one: Sums) -> float:
        return (one.own + one.wait) / one.syncs

    return OwnGrowth(
        ranks=ranks,
        seconds=math.fsum(now.ranks * (now.own / now.syncs - was.own / was.syncs) for was, now in members),
        most=max(now.most / now.syncs - was.most / was.syncs for was, now in members),
        before=math.fsum(now.ranks * mean(was) for was, now in members) / ranks,
        now=math.fsum(now.ranks * mean(now) for _, now in members) / ranks,
    )


def _most_work(own: Mapping[str, float]) -> tuple[str, ...]:
    worst = max(own.values())
    return tuple(name for name, growth in own.items() if growth >= SHARE * worst)


def _sum(spans: Iterable[WorkSpan], into: dict[str, Sums]) -> dict[str, Sums]:
    """Add spans to the sums of their members, in place."""
    for span in spans:
        for work in span.members:
            sums = into.setdefault(work.name, Sums())
            sums.syncs += work.syncs
            sums.own += work.own_seconds
            sums.most += work.most_seconds
            sums.wait += work.wait_seconds
            sums.p2p += work.p2p_seconds
            sums.ranks = max(sums.ranks, work.ranks)
            if work.rank >= 0:
                sums.rank = min(sums.rank, work.rank) if sums.rank >= 0 else work.rank
            if work.label:
                sums.labels[work.label] += work.syncs
    return into
