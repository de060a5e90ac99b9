"""The cause of a slowdown, from the growth of own work and of waiting of each rank or node since the onset."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from statistics import median_low
from typing import Final, Literal, NamedTuple, TypeAlias

from barograph_alerts.attribution.work import WorkSpan

RECENT: Final = 64
"""Newest work spans kept one by one, since an onset is detected some time later."""
SHARE: Final = 0.5
"""A member is a straggler if it has at least this share of the worst member's growth."""
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
MIN_SYNCS: Final = 20
"""Least number of sync points before and after the onset."""

KernelKind: TypeAlias = Literal["core", "memory", "disk", "stopped", "steal", "compute", "bandwidth"]
"""What the kernel of a node knows, and how fast the node does fixed work."""
Kind: TypeAlias = (
    KernelKind
    | Literal["straggler", "all-slow", "network", "link", "one-phase", "more-work"]
    | Literal["stall", "fast", "unknown"]
)


class Beside(NamedTuple):
    """The busiest process beside a rank. name: empty if it is not to be told. owner: `same` or `other` user, `rank`."""

    name: str
    owner: str
    core: int
    shares_core: bool
    """Whether the rank runs on that core too."""


class OwnGrowth(NamedTuple):
    """What the ranks of a node do in a sync point since the onset. seconds: growth of their own work, a sum over ranks.

    most: the same of the rank with most. before, now: seconds per sync point.
    """

    ranks: int
    seconds: float
    most: float
    before: float
    now: float


@dataclass(frozen=True)
class Cause:
    """The cause of an alarm. members: names, or ("all",). numbers: the evidence."""

    kind: Kind
    members: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    phase: int | None = None
    """The class that is slow, for one-phase."""
    beside: Beside | None = None
    """Who runs where a rank waits for a core."""
    silent: tuple[str, ...] = ()
    """Nodes whose kernels show no reason."""
    host: str = ""
    """The node of the worst member, for what kernels know."""
    growths: Mapping[str, OwnGrowth] = field(default_factory=dict)
    """Of each node, by name, empty for the only one of a job; of none, where messages were not timed."""
    computed: bool | None = None
    """Whether own work grew by computing, on nodes that are as fast as before; None as long as that is not known."""


class Sums:
    """Sums over the work spans of one member."""

    __slots__ = ("blame", "labels", "most", "own", "p2p", "rank", "ranks", "syncs", "wait")

    def __init__(self) -> None:
        self.syncs = 0
        self.own = self.most = self.wait = self.blame = self.p2p = 0.0
        self.labels: Counter[str] = Counter()
        self.rank = -1
        """The lowest rank known of a node, -1 if none is."""
        self.ranks = 1
        """Most ranks that the seconds were a mean of."""


class Attribution:
    """Compares the members of one job before and after an onset.

    nodes: number of nodes of the job. On several they are the members, and on one its ranks.
    """

    def __init__(self, nodes: int = 1) -> None:
        self._nodes = nodes
        self._before: dict[str, Sums] = {}
        self._recent: deque[WorkSpan] = deque()
        self._exact = True
        self._names: dict[str, None] = {}
        """Of members before the latest `begin_anew`."""

    def add(self, span: WorkSpan, onset_at: float = math.inf) -> None:
        """Add the next work span. onset_at: of an open alarm; later spans are not counted as normal."""
        self._exact = span.exact
        self._recent.append(span)
        if len(self._recent) > RECENT:
            oldest = self._recent.popleft()
            if oldest.ended_at <= onset_at:
                _sum((oldest,), self._before)

    def end_disturbance(self, onset_at: float) -> None:
        """End a disturbance: recent spans before `onset_at` are counted as normal, later ones are dropped."""
        _sum((span for span in self._recent if span.ended_at <= onset_at), self._before)
        self._recent.clear()

    def begin_anew(self, since: float) -> None:
        """Take what members do from `since` on for normal, and nothing before."""
        self._names = dict.fromkeys(self.members())
        self._before.clear()
        self._recent = deque(span for span in self._recent if span.ended_at > since)

    def members(self) -> tuple[str, ...]:
        """Names of all members so far."""
        names = self._names | dict.fromkeys(self._before)
        names.update(dict.fromkeys(work.name for span in self._recent for work in span.members))
        return tuple(names)

    def cause(self, onset_at: float, slowdown: float = math.nan) -> Cause:
        """The cause of the time lost since `onset_at`. slowdown: actual over expected time since then.

        All figures are differences in seconds per sync point, since the onset minus before it. With o_m the growth of
        member m's own work and w_m that of its waiting, the job has lost the mean of o_m + w_m over members. d_m is the
        growth of the own work of the member's rank with most: a single rank of a node may delay all.
        straggler: at most half of the members have SHARE of the largest d_m or more. network: no d_m reaches OWN of the
        loss, so only waiting has grown. link: the same, and messages of at most half of the nodes have LINK or more of
        the largest growth of time in messages, which is SHARE of the loss or more; of these the one in the middle of
        all that exchange messages over the link, if there is one. all-slow: otherwise. If own work
        includes waiting for messages it grows for all members; then the straggler is the member that came last much
        more often: its share of the waiting of others has grown by at least half of what it lacked to 1. unknown:
        nobody was compared; or these sync points have lost no time, so others have; or all wait for somebody else while
        nodes are missing. Its numbers are those of nodes, and of nodes compared. Where nothing is known from before the
        onset, nodes are compared with each other.
        """
        before = _sum((s for s in self._recent if s.ended_at <= onset_at), deepcopy(self._before))
        during = _sum((s for s in self._recent if s.ended_at > onset_at), {})
        names = [n for n in during if n in before and min(before[n].syncs, during[n].syncs) >= MIN_SYNCS]
        uncompared = {}
        if self._nodes > 1 and len(names) < self._nodes:
            uncompared = {"nodes": float(self._nodes), "nodes_compared": float(len(names))}
        if not names or (uncompared and len(names) == 1):
            return self._among_nodes(during, slowdown) or Cause("unknown", (), uncompared)
        if len(names) == 1:
            return Cause("all-slow", ("all",))
        own = {n: during[n].own / during[n].syncs - before[n].own / before[n].syncs for n in names}
        wait = {n: during[n].wait / during[n].syncs - before[n].wait / before[n].syncs for n in names}
        lost = math.fsum(own.values()) / len(names) + math.fsum(wait.values()) / len(names)
        if not lost > 0:
            return Cause("unknown", (), uncompared)
        own = {n: during[n].most / during[n].syncs - before[n].most / before[n].syncs for n in names}
        numbers = {"lost": lost, "own": max(own.values()), "wait": max(wait.values())}
        growths = self._growths(names, before, during) if self._exact else {}
        if max(own.values()) < OWN * lost:
            p2p = {n: during[n].p2p / during[n].syncs - before[n].p2p / before[n].syncs for n in names}
            ranks = {n: during[n].rank for n in names}
            return Cause("unknown", (), uncompared) if uncompared else _in_waiting(p2p, ranks, numbers)
        blamed_members = _most_work(own) if self._exact else _blamed(names, before, during, numbers)
        if blamed_members and len(blamed_members) <= len(names) / 2:
            labels = tuple(_label(name, during[name]) for name in blamed_members)
            return Cause("straggler", labels, numbers, growths=growths)
        return Cause("all-slow", ("all",), numbers, growths=growths)

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
        if len(names) < max(self._nodes, 2) or not (self._exact and slowdown > 1):
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
        return Cause("straggler", blamed, {"lost": lost, "own_more": max(more.values())})


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
    return Cause("one-phase", ("all",), {"share": lost[worst] / total, "share_before": before}, worst)


def _in_waiting(p2p: Mapping[str, float], ranks: Mapping[str, int], numbers: Mapping[str, float]) -> Cause:
    """The cause where only waiting has grown. p2p: each member's growth of the time in messages. ranks: one of each."""
    worst = max(p2p.values())
    linked = tuple(name for name, growth in p2p.items() if growth >= LINK * worst)
    if worst >= SHARE * numbers["lost"] and len(linked) <= len(p2p) / 2:
        touched = {name for name, growth in p2p.items() if growth >= NEIGHBOUR * worst}
        middle = _middle(linked, touched, sorted(p2p, key=lambda name: ranks[name])) if min(ranks.values()) >= 0 else ()
        return Cause("link", middle or linked, {**numbers, "p2p": worst})
    return Cause("network", ("all",), numbers)


def _middle(linked: Iterable[str], touched: Collection[str], order: Sequence[str]) -> tuple[str, ...]:
    """The only member whose neighbours the touched ones can be; empty if there is none, or more than one.

    Who exchanges messages with the node d places further on does so with the one d places back as well, as in a halo
    exchange: the others are at the same distances on both sides. order: all members by rank; after the last comes the
    first.
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


def _blamed(
    names: list[str], before: Mapping[str, Sums], during: Mapping[str, Sums], numbers: dict[str, float]
) -> tuple[str, ...]:
    """The member whose share of the waiting of others has grown much, or none."""
    was, now = _shares(names, before), _shares(names, during)
    worst = max(names, key=lambda name: now[name] - was[name])
    numbers.update(blame_before=was[worst], blame=now[worst])
    return (worst,) if now[worst] - was[worst] >= SHARE * (1 - was[worst]) else ()


def _shares(names: list[str], sums: Mapping[str, Sums]) -> dict[str, float]:
    total = math.fsum(sums[name].blame for name in names)
    return {name: sums[name].blame / total if total > 0 else 1 / len(names) for name in names}


def _sum(spans: Iterable[WorkSpan], into: dict[str, Sums]) -> dict[str, Sums]:
    """Add spans to the sums of their members, in place."""
    for span in spans:
        for work in span.members:
            sums = into.setdefault(work.name, Sums())
            sums.syncs += work.syncs
            sums.own += work.own_seconds
            sums.most += work.most_seconds
            sums.wait += work.wait_seconds
            sums.blame += work.blame_seconds
            sums.p2p += work.p2p_seconds
            sums.ranks = max(sums.ranks, work.ranks)
            if work.rank >= 0:
                sums.rank = min(sums.rank, work.rank) if sums.rank >= 0 else work.rank
            if work.label:
                sums.labels[work.label] += work.syncs
    return into
