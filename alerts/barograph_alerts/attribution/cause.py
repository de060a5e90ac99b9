"""Why a job is slow: who has more work since the onset, who waits, and for whom."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from barograph_alerts.attribution.work import WorkSpan

RECENT: Final = 64
"""Stretches kept apart, so that an onset may be found some time after it was."""
SHARE: Final = 0.5
"""A member is among those to blame where it has at least this share of what the worst one has."""
OWN: Final = 0.2
"""Less than this share of the lost time in anybody's own work means that nobody works more: it is lost between them."""
PHASE: Final = 0.8
"""One phase is to blame where it has this share of the lost time, and at most PHASE_BEFORE of the expected time."""
PHASE_BEFORE: Final = 0.6
FEWEST: Final = 20
"""Sync points needed on either side of the onset."""

Kind: TypeAlias = Literal["straggler", "all-slow", "network", "one-phase", "stall", "fast", "unknown"]


@dataclass(frozen=True)
class Cause:
    """What an alarm is put down to. members: names, or ("all",). numbers: the evidence."""

    kind: Kind
    members: tuple[str, ...] = ()
    numbers: Mapping[str, float] = field(default_factory=dict)
    phase: int | None = None
    """The class that is slow, for one-phase."""


class Sums:
    """Sums over stretches, of one member."""

    __slots__ = ("blame", "own", "said", "syncs", "wait")

    def __init__(self) -> None:
        self.syncs = 0
        self.own = self.wait = self.blame = 0.0
        self.said: Counter[str] = Counter()


class Attribution:
    """Compares the members of one job before and after an onset."""

    def __init__(self) -> None:
        self._before: dict[str, Sums] = {}
        self._recent: deque[WorkSpan] = deque()
        self._exact = True

    def add(self, stretch: WorkSpan, onset_at: float = math.inf) -> None:
        """Take the next stretch. onset_at: of an open alarm; nothing that ended later is ever taken for normal."""
        self._exact = stretch.exact
        self._recent.append(stretch)
        if len(self._recent) > RECENT:
            oldest = self._recent.popleft()
            if oldest.ended_at <= onset_at:
                _sum((oldest,), self._before)

    def end_disturbance(self, onset_at: float) -> None:
        """A disturbance that began then is over: what was kept apart is normal up to it, and forgotten from it on."""
        _sum((stretch for stretch in self._recent if stretch.ended_at <= onset_at), self._before)
        self._recent.clear()

    def members(self) -> tuple[str, ...]:
        """Names of all members met."""
        names = dict.fromkeys(self._before)
        names.update(dict.fromkeys(work.name for stretch in self._recent for work in stretch.members))
        return tuple(names)

    def cause(self, onset_at: float) -> Cause:
        """Who or what the time since `onset_at` was lost to.

        All figures are seconds per sync point, since the onset less before it. With d_m the growth of member m's own
        work and w_m that of its waiting, every member has lost d_m + w_m, and their mean is what the job has lost.
        straggler: at most half of the members have SHARE of the largest d_m or more. network: no d_m comes to OWN of
        the loss, so the waiting has grown alone. all-slow: anything else. Where own work holds waiting for messages it
        grows for everybody; there the straggler is who the others wait for: exchangeable members share the blame as
        before, one that has taken half of what was left to take is none.
        """
        before: dict[str, Sums] = {}
        during: dict[str, Sums] = {}
        for name, sums in self._before.items():
            before[name] = sums
        earlier = _sum((s for s in self._recent if s.ended_at <= onset_at), {})
        for name, sums in earlier.items():
            before[name] = _added(before.get(name), sums)
        _sum((s for s in self._recent if s.ended_at > onset_at), during)
        names = [n for n in during if n in before and min(before[n].syncs, during[n].syncs) >= FEWEST]
        if not names:
            return Cause("unknown")
        if len(names) == 1:
            return Cause("all-slow", ("all",))
        own = {n: _rate(during[n].own, during[n]) - _rate(before[n].own, before[n]) for n in names}
        wait = {n: _rate(during[n].wait, during[n]) - _rate(before[n].wait, before[n]) for n in names}
        lost = math.fsum(own.values()) / len(names) + math.fsum(wait.values()) / len(names)
        numbers = {"lost": lost, "own": max(own.values()), "wait": max(wait.values())}
        if max(own.values()) < OWN * lost:
            return Cause("network", ("all",), numbers)
        blamed_members = _most_work(own) if self._exact else _blamed(names, before, during, numbers)
        if blamed_members and len(blamed_members) <= len(names) / 2:
            return Cause("straggler", tuple(_said(name, during[name]) for name in blamed_members), numbers)
        return Cause("all-slow", ("all",), numbers)


def phase_cause(seconds: Mapping[int, tuple[float, float]]) -> Cause | None:
    """One class that has nearly all of the lost time, or None. seconds: class id -> actual and expected."""
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


def _said(name: str, sums: Sums) -> str:
    """What a member is called in most of its stretches."""
    return sums.said.most_common(1)[0][0] if sums.said else name


def _most_work(own: Mapping[str, float]) -> tuple[str, ...]:
    worst = max(own.values())
    return tuple(name for name, growth in own.items() if growth >= SHARE * worst)


def _blamed(
    names: list[str], before: Mapping[str, Sums], during: Mapping[str, Sums], numbers: dict[str, float]
) -> tuple[str, ...]:
    """The one for whom the others wait much more than they did, or nobody."""
    was, now = _shares(names, before), _shares(names, during)
    worst = max(names, key=lambda name: now[name] - was[name])
    numbers.update(blame_before=was[worst], blame=now[worst])
    return (worst,) if now[worst] - was[worst] >= SHARE * (1 - was[worst]) else ()


def _shares(names: list[str], sums: Mapping[str, Sums]) -> dict[str, float]:
    total = math.fsum(sums[name].blame for name in names)
    return {name: sums[name].blame / total if total > 0 else 1 / len(names) for name in names}


def _rate(seconds: float, sums: Sums) -> float:
    return seconds / sums.syncs


def _added(a: Sums | None, b: Sums) -> Sums:
    both = Sums()
    for sums in (a, b):
        if sums is not None:
            both.syncs += sums.syncs
            both.own += sums.own
            both.wait += sums.wait
            both.blame += sums.blame
    return both


def _sum(stretches: Iterable[WorkSpan], into: dict[str, Sums]) -> dict[str, Sums]:
    for stretch in stretches:
        for work in stretch.members:
            sums = into.setdefault(work.name, Sums())
            sums.syncs += work.syncs
            sums.own += work.own_seconds
            sums.wait += work.wait_seconds
            sums.blame += work.blame_seconds
            if work.said:
                sums.said[work.said] += work.syncs
    return into
