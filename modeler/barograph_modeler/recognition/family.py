"""The groups of like work within a family: one application at one scale, with the same parameters."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Self, TypeAlias

from barograph_agent.protocol.tables import MAX_NAME
from barograph_modeler.pace.length import EQUAL, Length
from barograph_modeler.recognition.request import UNKNOWN, Request, label_of
from barograph_modeler.recognition.signature import PooledTraffic, Signature
from barograph_modeler.recognition.tolerance import Difference, Spread
from barograph_modeler.state import lru

How: TypeAlias = Literal["first", "same", "like", "merged", "none"]
GROUPS: Final = 256
"""Groups kept per family; the least recently used are forgotten."""
REQUESTS: Final = 64
"""Requests kept per group, the latest."""
JOBS: Final = 32
"""Jobs kept per group, the latest: a merge says of these where they are."""
COMPARED: Final = 8
"""Requests of a group that a new one is compared with, the latest."""
AGREED: Final = 2
"""So many times must runs have done the same at the same pace although a feature differed, for it not to matter."""
FEATURES: Final = 10_000
"""Features of an application that are known to have agreed; the oldest are forgotten, files have any names."""
AGREEMENT: Final = 5
"""A feature matters where runs that differ in it communicate differently so many times as often as they agree."""
OUTWEIGHED: Final = 2
"""A feature that has mattered by time alone ceases to when it agrees more than so many times as often."""
PROOF: Final = FEATURES
"""What a difference counts that is beyond doubt."""
DOUBTED: Final = 2
"""So many agreements are taken back by a run that was slow or fast, but not by the first one."""
PROVEN: Final = 2
"""So many healthy runs of a group prove its pace: one may have been disturbed."""
TRAFFIC: Final = "communication"
"""The feature that is a run's signature; it is not known when a run begins."""
APART: Final = 1.0
"""A run that is like two groups belongs to the nearer one if it is nearer by so many tolerances."""
CLOSE: Final = 1.5
"""Groups that differ by fewer tolerances, and take the same time, are one; beyond, traffic may not matter."""
HINT: Final = 0.5
"""Tolerances by which runs must communicate differently for their times to count as other work."""
PACE_SPREAD: Final = 0.03
"""Standard deviation of the logarithm of the times of runs of like work, before any is known."""
LONGER: Final = 0.05
"""Logarithm of the time by which a run that communicates otherwise is longer than all others of its request, to be one
that a disturbance may have made do so."""
SAME_TIME: Final = 0.02
"""Largest distance of the logarithms of two runtimes that are equal."""
NAMED: Final = 3
"""Features named in a reason; further ones are counted."""


class Decision(NamedTuple):
    """The group of a job, how it was found, and why in words. differ: features in which it is unlike earlier runs.

    is_alone: whether it is judged by itself because its work cannot be told; the next run does not follow it.
    """

    group: str
    how: How
    reason: str
    differ: frozenset[str] = frozenset()
    is_alone: bool = False


class Merge(NamedTuple):
    """A group that is one with another from now on: its latest jobs, and why in words."""

    gone: str
    into: str
    jobs: tuple[str, ...]
    reason: str


class UnknownWork(Exception):
    """There is no such group, or it cannot be changed so. The text says why."""


class Relevance:
    """Which features of an application's requests matter.

    One that differed, alone or with others, between runs that did the same at the same pace has agreed once; after
    AGREED times it does not matter, unless it has made a difference: runs that differed in it alone, of all features
    that may matter, did other work. That they only took another time, or communicated differently, is weaker evidence:
    a disturbance, or something else that nothing names, may be the reason. Of time it counts until agreement is more
    than OUTWEIGHED times as frequent, of traffic where it is AGREEMENT times as frequent as agreement.

    A run that joined a group and was slow may have been disturbed, or have done other work. The values in which it
    differed matter from then on: a run that has one of them again is compared with nothing. Each further such run that
    differs in a feature takes DOUBTED agreements of it back.
    """

    def __init__(self) -> None:
        self.agreed: Counter[str] = Counter()
        self.doubted: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Features and their values of runs that were slow or fast, the latest last."""
        self.unlike: Counter[str] = Counter()
        """How often runs that differed in it communicated differently."""
        self.mattered: Counter[str] = Counter()
        """How often runs that differed in it took another time; PROOF where they did other work."""
        self.spread = Spread()
        """Of what runs of like work communicate."""
        self.pace = _spread_of_times()
        """Of how long they take."""

    def matters(self, features: Iterable[str]) -> frozenset[str]:
        """Those of the features that matter, as far as is known."""
        return frozenset(one for one in features if self.agreed[one] < AGREED or self.have_mattered([one]))

    def have_mattered(self, features: Iterable[str]) -> bool:
        """Whether one of the features is known to matter."""
        return any(
            OUTWEIGHED * self.mattered[one] >= max(self.agreed[one], 1) or self._is_unlike(one) for one in features
        )

    def _is_unlike(self, feature: str) -> bool:
        return self.unlike[feature] > AGREEMENT * max(self.agreed[feature], 1)

    def agree(self, features: Iterable[str]) -> None:
        """Runs did the same although these features differed."""
        self.agreed.update(features)
        _limit(self.agreed)

    def communicate(self, features: Collection[str]) -> None:
        """Runs that differed in these communicated differently."""
        if not self.mattered[TRAFFIC] and len(left := self.matters(features) or features) == 1:
            self.unlike.update(left)
            _limit(self.unlike)

    def doubt(self, features: Collection[str], request: Request) -> None:
        """A run of this request, which was slow or fast, differed in these features."""
        self._take_back({one for one, _ in self.doubted}.intersection(features))
        for one in request.features:
            if one[0] in features:
                lru.store(self.doubted, one, None, FEATURES)

    def _take_back(self, features: Iterable[str]) -> None:
        for one in features:
            self.agreed[one] -= DOUBTED

    def are_doubted(self, features: Collection[str], request: Request) -> bool:
        """Whether one of these features has a value in a request that a run which was slow or fast had."""
        return bool(self.doubted) and any(one in self.doubted for one in request.features if one[0] in features)

    def decree(self, features: Collection[str], *, matter: bool) -> None:
        """Somebody who knows says whether these matter."""
        for one in features:
            self.agreed[one], self.unlike[one], self.mattered[one] = (0, 0, PROOF) if matter else (AGREED, 0, 0)
        self.doubted = OrderedDict((one, None) for one in self.doubted if one[0] not in features)

    def disagree(self, features: Collection[str], *, proven: bool) -> None:
        """Runs did not do the same, and these features differed. proven: whether more than their time is otherwise."""
        if self.mattered[TRAFFIC]:
            return  # runs that ask for the same do other work too: it need not be for these features
        if len(left := self.matters(features)) == 1:
            self.mattered.update(dict.fromkeys(left, PROOF if proven else 1))
        elif not left and len(features) == 1:
            self._take_back(features)

    def weigh(self, features: Collection[str], *, alike: bool) -> None:
        """A new group and the latest that differs in these, of which one has mattered, are alike or not."""
        if len(left := self.matters(features)) == 1 and not any(map(self._is_unlike, left)):
            (self.agreed if alike else self.mattered).update(left)


def _limit(counts: Counter[str]) -> None:
    while len(counts) > FEATURES:
        del counts[next(iter(counts))]


def _spread_of_times() -> Spread:
    return Spread(names=("time",), prior=PACE_SPREAD)


class RunTime(NamedTuple):
    """How long a run took that has ended, and its number of sync points."""

    log_seconds: float
    points: int

    @classmethod
    def of(cls, seconds: float, points: int) -> Self | None:
        """None where the runtime is unknown."""
        return cls(math.log(seconds), points) if 0 < seconds < math.inf else None


class Group:
    """Runs of like work. requests: what was asked for, the latest last; empty for runs of which nothing is known."""

    def __init__(self, name: str, spread: Spread | None = None, pace: Spread | None = None) -> None:
        """spread, pace: of what runs of like work of this application communicate, and of how long they take."""
        self.name = name
        self.requests: OrderedDict[Request, None] = OrderedDict()
        self.jobs: deque[str] = deque(maxlen=JOBS)
        """The latest jobs."""
        self.traffic: dict[float, PooledTraffic] = {}
        """What healthy runs communicate, by when that was, as in `signature.TrafficLook`."""
        self.healthy = 0
        """Number of its healthy runs that have ended."""
        self.unproven = 0
        """Sync points of its only run, if that alone says that there is such work: then no run is compared with it."""
        self.is_other_work = False
        """Whether its first run did other work than runs that asked for the same."""
        self._spread, self._pace = Spread(spread), Spread(pace or _spread_of_times())
        self.times: deque[RunTime] = deque(maxlen=JOBS)
        """Of the latest healthy runs."""

    def add(self, request: Request | None) -> None:
        """Add a run that asked for this."""
        if request is not None:
            lru.store(self.requests, request, None, REQUESTS)

    def latest(self) -> list[Request]:
        """The latest requests, newest first."""
        return list(self.requests)[: -COMPARED - 1 : -1]

    def learn(self, signatures: Mapping[float, Signature], time: RunTime | None = None) -> None:
        """Learn a healthy run that has ended: what it communicated, by when that was, and how long it took."""
        self.healthy += 1
        if time is not None:
            if (known := self._alike(time)) is not None:
                self._pace.learn([known[0]], known[1])
            self.times.append(time)
        for when, signature in signatures.items():
            self._pool(when, signature, 1.0)

    def unite(self, other: Group) -> None:
        """Learn the runs of another group, which do the same."""
        self.healthy += other.healthy
        self.times.extend(other.times)
        for when, pooled in other.traffic.items():
            self._pool(when, pooled.total, pooled.runs)

    def _pool(self, when: float, signature: Signature, runs: float) -> None:
        known = self.traffic.setdefault(when, PooledTraffic())
        if (ratios := signature.ratios(known.total)) is not None:
            self._spread.learn(ratios, known.runs)
        known.add(signature, runs)

    def _alike(self, time: RunTime) -> tuple[float, int] | None:
        """Logarithm of a time over the mean of those of runs of as many sync points, and their number."""
        logs = [one.log_seconds for one in self.times if _are_equal(one.points, time.points)]
        return (time.log_seconds - math.fsum(logs) / len(logs), len(logs)) if logs else None

    def stops_by_the_clock(self, run: RunTime | None) -> bool:
        """Whether a run of another number of sync points took as long as one of the group: work is not what ends it."""
        return run is not None and any(
            abs(earlier.log_seconds - run.log_seconds) <= SAME_TIME and not _are_equal(earlier.points, run.points)
            for earlier in self.times
        )

    def difference(self, when: float, signature: Signature) -> Difference | None:
        """How a run differs by then from those of the group in what it communicates; None if that is unknown.

        It does the same as far as is known while the excess is at most 1.
        """
        if (known := self.traffic.get(when)) is None or (ratios := signature.ratios(known.total)) is None:
            return None
        return self._spread.difference(ratios, known.runs)

    def has_other_length(self, other: Group) -> bool:
        """Whether its latest run had another number of sync points than all of another group, as far as is known."""
        if not (self.times and other.times):
            return False
        return not any(_are_equal(one.points, self.times[-1].points) for one in other.times)

    def is_apart(self, other: Group, traffic: float) -> bool:
        """Whether the runs of another group communicate and take otherwise: together by more than the tolerance.

        Either may differ by chance, or by a disturbance. traffic: their `excess`.
        """
        pairs = [(known, one) for one in other.times if (known := self._alike(one)) is not None]
        if not pairs or traffic <= HINT:
            return False
        apart = math.fsum(distance for (distance, _), _ in pairs) / len(pairs)
        time = self._pace.difference([apart], pairs[0][0][1], len(pairs))
        return math.hypot(traffic / (CLOSE if traffic > 1 else 1), time.excess) > 1

    def excess(self, other: Group) -> float:
        """How far the runs of another group are from those of this one, in tolerances; 0 if unknown."""
        found = (other.difference(when, one.total) for when, one in self.traffic.items())
        return max((one.excess for one in found if one is not None), default=0.0)


class Family:
    """The groups of one family of one owner.

    The first work seen has the name of the family; that of others has a digest of what was asked for after it. owner:
    whose runs these are. is_first: whether no other owner had runs of the family before; the groups of later ones have
    a digest of the owner too, and none has the plain name.
    """

    def __init__(self, name: str, relevance: Relevance, owner: str = "", *, is_first: bool = True) -> None:
        self.name = name
        self.owner = owner
        self.is_first = is_first
        self.groups: OrderedDict[str, Group] = OrderedDict()
        self._relevance = relevance
        self._requests: dict[Request, str] = {}
        """The groups of all requests kept."""

    def decide(self, request: Request | None) -> Decision:
        """The group of a new job; it is not added before `add`."""
        if request is None:
            return self._decide_unknown()
        if (name := self._requests.get(request)) is not None:
            return Decision(name, "same", f"asks for the same as earlier runs of {name}")
        groups = list(reversed(self.groups.values()))
        if like := self._distinct([one for one in groups if self._may_hold(one, request)], request):
            group = like[0]
            differ = self._irrelevant(group, request) or frozenset()
            # Files that a run has left in the folder are learned not to matter by the runs that followed.
            differ |= request.differences(group.latest()[0])
            if not differ:
                return Decision(group.name, "same", f"asks for the same as earlier runs of {group.name}")
            reason = f"differs from {group.name} in {listed(differ)}, not known to matter"
            return Decision(group.name, "like", reason, differ)
        name = self.name if self.is_first and not self.groups else self._named(request.label)
        pairs = [(one.name, request.differences(other)) for one in groups for other in one.latest()]
        nearest = min(pairs, key=lambda pair: len(self._relevance.matters(pair[1])), default=None)
        why = f"; differs from {nearest[0]} in {listed(nearest[1])}" if nearest is not None else ""
        return Decision(name, "first", f"first run of this work{why}")

    def _decide_unknown(self) -> Decision:
        reason = "nothing is known of what was asked for"
        first = self.groups.get(self.name)
        if not self.is_first or (first is not None and first.requests):
            return Decision(self._named(UNKNOWN), "none", reason)
        return Decision(self.name, "none", reason)

    def is_unknown(self, group: str) -> bool:
        """Whether a group is the one of runs of which nothing was known."""
        return group == self._named(UNKNOWN)

    def _named(self, label: str) -> str:
        if not self.is_first:
            label = label_of((self.owner, label))
        return f"{self.name[: MAX_NAME - 1 - len(label)]}+{label}"

    @property
    def size(self) -> int:
        """Number of requests kept."""
        return len(self._requests)

    def is_only(self, job: str, name: str) -> bool:
        """Whether a group has no job but this one."""
        return name in self.groups and list(self.groups[name].jobs) == [job]

    def add(self, job: str, name: str, request: Request | None, *, known: bool = False) -> None:
        """Add a job to a group, which is made if there is none of that name. known: the log says that it belongs there.

        Else requests in a group have agreed when it was merged.
        """
        group = self.groups.pop(name, None) or Group(name, self._relevance.spread, self._relevance.pace)
        self.groups[name] = group
        if job not in group.jobs:
            group.jobs.append(job)
        if request is not None:
            if known and request not in group.requests and group.requests:
                differ: frozenset[str] = min((request.differences(one) for one in group.latest()), key=len)
                self._relevance.agree(differ)
            group.add(request)
            self._requests[request] = name
        while len(self.groups) > GROUPS:
            self.groups.popitem(last=False)
        if len(self._requests) > 2 * sum(len(one.requests) for one in self.groups.values()):
            self._requests = {one: group.name for group in self.groups.values() for one in group.requests}

    def forget_oldest(self, requests: int) -> None:
        """Forget the groups that had no run for longest, until so many requests are kept; the newest group stays."""
        while len(self._requests) > requests and len(self.groups) > 1:
            self.groups.popitem(last=False)
            self._requests = {one: group.name for group in self.groups.values() for one in group.requests}

    def decide_again(
        self, job: str, name: str, request: Request | None, when: float, signature: Signature
    ) -> Decision | None:
        """The other group of a running job of a group, now that it is known what it communicates; None to stay.

        Where earlier runs of the request did different work, and that of this one cannot be told, it is judged by
        itself.
        """
        if not self._relevance.matters({TRAFFIC}):
            return None
        mine = self.groups[name]
        others = [one for one in self.groups.values() if one is not mine and self._may_hold(one, request)]
        others = [one for one in others if list(one.jobs) != [job]]
        is_open = len(self._distinct([mine, *others], request)) > 1
        asks, label = f"asks for the same as earlier runs of {name}", request.label if request is not None else UNKNOWN
        found = {one.name: unlike for one in (mine, *others) if (unlike := one.difference(when, signature)) is not None}
        # Where nothing is known of its own group by then, one that is no other work is no better.
        like = [one for one in (mine, *others) if (found[one.name].excess <= 1 if one.name in found else one is mine)]
        alike = sorted((found[one.name].excess, one.name) for one in self._distinct(like, request) if one.name in found)
        if len(alike) > 1 and alike[1][0] - alike[0][0] < APART:
            alike, unknown = [], True
        else:
            unknown = not alike and name not in found and is_open
        if alike:
            nearest = alike[0][1]
            reason = f"asks for the same as earlier runs of {nearest}, and does it"
            return Decision(nearest, "same", reason) if nearest != name else None
        if unknown:
            if self.is_only(job, name):
                return None
            reason = f"judged by itself; {asks} and {others[-1].name}, and which work it does is not known"
            return Decision(self._named(label_of((label, job))), "first", reason, is_alone=True)
        if name not in found:
            return None
        label = label_of((label, len(self.groups), job, *map(str, found[name])))
        return Decision(self._named(label), "first", f"first run of this work; {asks}, but has {found[name]}")

    @property
    def is_open(self) -> bool:
        """Whether runs of the application that asked for the same are known to have done different work."""
        return bool(self._relevance.mattered[TRAFFIC])

    def separate(
        self, job: str, name: str, request: Request | None, signatures: Mapping[float, Signature], points: int
    ) -> Decision:
        """Move a run that was slow or fast, and had another number of sync points than its group, to one of its own.

        It did other work: that is proven where such work is known, and else by a second run with as many. From then on
        runs that communicate as both are judged by themselves.
        """
        known = (one.name for one in self.groups.values() if one.unproven and _are_equal(one.unproven, points))
        label = label_of((request.label if request is not None else UNKNOWN, job))
        into = next(known, None)
        asks = f"asks for the same as earlier runs of {name}, but has another number of intervals"
        decision = Decision(into or self._named(label), "first", f"first run of this work; {asks}", is_alone=True)
        self.move(job, name, decision, request)
        group = self.groups[decision.group]
        group.is_other_work = True
        group.unproven = 0 if into or self.is_open else points
        group.learn(signatures)
        return decision

    def may_be_disturbed(self, name: str, time: RunTime | None) -> bool:
        """Whether a group's only run communicated otherwise than runs that asked for the same, and took longer."""
        group = self.groups[name]
        if not group.is_other_work or group.healthy or time is None:
            return False
        longest = max((run.log_seconds for other in self._of_same_request(group) for run in other.times), default=None)
        return longest is not None and time.log_seconds > longest + LONGER

    def prove(self, name: str, signatures: Mapping[float, Signature], time: RunTime) -> Merge | None:
        """Learn a run that may have been disturbed: it is other work if an earlier such run communicated alike.

        Until then no run is compared with it. Programs that balance their load or deal out work communicate otherwise
        because they are disturbed.
        """
        group = self.groups[name]
        group.learn(signatures, time)
        unproven = [one for one in self.groups.values() if one is not group and one.unproven and one.traffic]
        if like := min((one for one in unproven if group.excess(one) <= 1), key=group.excess, default=None):
            like.unproven = 0
            return self._unite(group, like, f"communicates as an earlier run of {like.name}, which was as long")
        group.unproven = max(time.points, 1)
        for other in self._of_same_request(group):
            self._requests.update(dict.fromkeys(group.requests.keys() & other.requests.keys(), other.name))
        return None

    def _of_same_request(self, group: Group) -> list[Group]:
        """The other groups with runs that asked for the same, those with most healthy runs last."""
        others = [
            one for one in self.groups.values() if one is not group and group.requests.keys() & one.requests.keys()
        ]
        return sorted((one for one in others if not one.unproven), key=lambda one: one.healthy)

    def _may_hold(self, group: Group, request: Request | None) -> bool:
        """Whether a run of this request, None if unknown, may belong to a group."""
        if group.unproven:
            return False
        if request is None or not group.requests:
            return request is None and not group.requests
        return request in group.requests or self._irrelevant(group, request) is not None

    def _irrelevant(self, group: Group, request: Request) -> frozenset[str] | None:
        """In what a request differs from one of a group of which nothing that differs matters; None without one."""
        for one in group.latest():
            differ = request.differences(one)
            if not self._relevance.matters(differ) and not self._relevance.are_doubted(differ, request):
                return differ
        return None

    def _distinct(self, groups: Sequence[Group], request: Request | None) -> list[Group]:
        """Those of the groups that a run may belong to which are different work.

        Those as long that were made because of features which are known now not to matter differ by disturbances: of
        these it is the one that had the request, or else the one with most runs.
        """
        alike = [one for one in groups if not one.is_other_work]
        usual = max(alike, key=lambda one: (request in one.requests, one.healthy, len(one.jobs)), default=None)
        return [one for one in groups if one is usual or one.is_other_work or (usual and one.has_other_length(usual))]

    def move(self, job: str, name: str, decision: Decision, request: Request | None) -> None:
        """Move a running job to another group. Its request remains that of both; a group without runs is forgotten."""
        group = self.groups[name]
        if job in group.jobs:
            group.jobs.remove(job)
        self.add(job, decision.group, request)
        if decision.how == "first" and not decision.is_alone:
            self.groups[decision.group].is_other_work = True
        if decision.is_alone and request is not None:
            self._requests[request] = name
        if not group.jobs and not group.traffic:
            del self.groups[name]

    def learn(self, name: str, request: Request, differ: frozenset[str], *, healthy: bool) -> None:
        """Learn from a run that joined a group because what it differed in did not matter."""
        if healthy:
            self._relevance.agree(differ)
            return
        self._relevance.doubt(differ, request)
        self.groups[name].requests.pop(request, None)
        self._requests.pop(request, None)

    def merge(self, name: str, is_like: Callable[[str], bool]) -> Merge | None:
        """Compare a group, of which a run has ended, with all others, and merge it with the first that is like it.

        is_like: whether the runs of the group of that name do the same at the same pace. None if no group does.
        """
        group = self.groups[name]
        is_new = group.healthy == 1
        for other in [one for one in reversed(self.groups.values()) if one is not group and one.requests]:
            differ = min((a.differences(b) for a in group.latest() for b in other.latest()), key=len, default=None)
            if differ is None or "program" in differ:
                continue
            excess = group.excess(other)
            if self._relevance.have_mattered(differ):
                if is_new:
                    self._relevance.weigh(differ, alike=excess <= 1 and is_like(other.name))
                    is_new = False
                continue
            if not differ and excess <= CLOSE and group.is_apart(other, excess):
                continue
            if excess > 1 and (matters := self._relevance.matters({TRAFFIC})):
                # That it does not matter is learned from runs which asked for the same.
                if differ:
                    self._relevance.communicate(differ)
                if differ or (excess > CLOSE and self.is_open):
                    continue
                if excess > CLOSE:
                    differ = matters
                elif not is_like(other.name):
                    continue
            if not is_like(other.name):
                # Once for each group: the first two runs of other work prove as much as its first hundred.
                if TRAFFIC in differ or (group.healthy == PROVEN and other.healthy >= PROVEN):
                    self._relevance.disagree(differ, proven=TRAFFIC in differ or group.has_other_length(other))
                continue
            self._relevance.agree(differ)
            into, gone = (group, other) if group.name == self.name else (other, group)
            reason = f"does the same at the same pace as {into.name}, though it differs in {listed(differ)}"
            return self._unite(gone, into, reason)
        return None

    def join(self, name: str, other: str, reason: str) -> Merge:
        """Merge a group with another because somebody says so: in whatever they differ, it does not matter."""
        gone, into = self.groups[name], self.groups[other]
        differ = [a.differences(b) for a in gone.latest() for b in into.latest()]
        features = frozenset().union(*differ) | ({TRAFFIC} if gone.excess(into) > 1 else frozenset())
        self._relevance.decree(features, matter=False)
        return self._unite(gone, into, reason)

    def _unite(self, gone: Group, into: Group, reason: str) -> Merge:
        for request in gone.requests:
            into.add(request)
            self._requests[request] = into.name
        into.unite(gone)
        del self.groups[gone.name]
        self.groups.move_to_end(into.name)
        jobs = tuple(gone.jobs)
        into.jobs.extend(jobs)
        return Merge(gone.name, into.name, jobs, reason)

    def split(self, name: str, features: frozenset[str], salt: str) -> list[str]:
        """Make a group several, one for each of the values of these features, which matter from now on.

        All of them begin a new history, for that of the group is of all. Their names depend on the salt. Returns the
        names. Raises UnknownWork unless the requests of the group differ in these features.
        """
        parts: dict[tuple[tuple[str, str], ...], list[Request]] = {}
        for request in self.groups[name].requests:
            parts.setdefault(tuple(one for one in request.features if one[0] in features), []).append(request)
        if len(parts) < 2:
            raise UnknownWork(f"the runs of {name} do not differ in {listed(features)}")
        self._relevance.decree(features, matter=True)
        del self.groups[name]
        for values, requests in parts.items():
            part = self._named(label_of((name, values, salt)))
            for request in requests:
                self.groups.setdefault(part, Group(part, self._relevance.spread, self._relevance.pace)).add(request)
                self._requests[request] = part
        return [self._requests[requests[0]] for requests in parts.values()]


def _are_equal(points: int, other: int) -> bool:
    return Length(points / EQUAL, points * EQUAL).has(other)


def listed(features: Collection[str]) -> str:
    """Names of features, at most NAMED."""
    names = sorted(features)
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
