"""What ranks and nodes lose, now and before, and the cause that it makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from barograph_alerts.attribution.cause import Beside, Cause, Kind
from barograph_alerts.attribution.kernel.account import Account, Sum
from barograph_alerts.attribution.kernel.pressure import NODE

MIN_SHARE: Final = 0.05
"""Least share of its time that a rank has lost to what is named as the cause."""
ALIKE: Final = 0.5
"""Ranks are named that have this share of what the worst has lost, or more."""
FAULTS: Final = 20.0
SWAPPED: Final = 100.0
"""Major faults and swapped pages per second from which on a rank that is blocked waits for memory, not for files."""
FAULT_SECONDS: Final = 1e-4
"""Time to read a page from a fast disk."""
MIN_SHARES: Final[Mapping[Kind, float]] = {"compute": 0.1, "bandwidth": 0.2}
"""The same of a node that does fixed work more slowly, computing or reading memory: what is less differs between looks
at a node where nothing changes."""


class Growth(NamedTuple):
    """The share of its time that a rank or node loses, now and before."""

    host: str
    rank: int
    now: float
    before: float

    @property
    def share(self) -> float:
        """How much it has grown."""
        return self.now - self.before

    @property
    def of_rest(self) -> float:
        """The same as a share of the time that was not lost before."""
        return self.share / (1 - self.before) if self.before < 1 else 0.0


def by_kind(before: Account, during: Account, hosts: Collection[str]) -> Iterator[tuple[Kind, Iterator[Growth]]]:
    """Each kind of cause with the growth of its figure, by rank or node."""
    ranks = [key for key in during.sums if key[0] in hosts and key[1] != NODE]
    nodes = [key for key in during.sums if key[0] in hosts and key[1] == NODE]
    short = {
        key
        for key in [*ranks, *nodes]
        if during.share(*key, lambda one: one.faults) >= FAULTS
        or (key[1] == NODE and during.share(*key, lambda one: one.swapped) >= SWAPPED)
    }

    def growths(keys: Iterable[tuple[str, int]], figure: Callable[[Sum], float]) -> Iterator[Growth]:
        return (Growth(*key, during.share(*key, figure), before.share(*key, figure)) for key in keys)

    yield "stopped", growths(ranks, lambda one: one.stopped)
    yield "core", growths(ranks, lambda one: one.delay)
    # Who reads pages from a disk is blocked meanwhile.
    yield (
        "memory",
        growths(
            [*(key for key in ranks if key in short), *(key for key in nodes if key in short)],
            lambda one: max(one.blocked, one.faults * FAULT_SECONDS, one.memory),
        ),
    )
    yield "disk", growths((key for key in ranks if key not in short), lambda one: one.blocked)
    yield "steal", growths(nodes, lambda one: one.steal)


def slower_nodes(
    before: Account,
    during: Account,
    hosts: Collection[str],
    figure: Callable[[Sum], float],
    usual: Callable[[str], float] = lambda host: math.nan,
) -> list[Growth]:
    """The share of its time that each node loses because fixed work takes longer there than before, or than usual."""
    found = []
    for host in hosts:
        sums = (account.node(host) for account in (during, before))
        now, was = (figure(one) / one.measured if one.measured > 0 else 0.0 for one in sums)
        was = was or usual(host)
        if now > 0 and was > 0:
            found.append(Growth(host, NODE, 1 - was / now, 0.0))
    return found


def total_share(growths: Iterable[Growth]) -> float:
    """The growth of all that lose more than before, together."""
    return math.fsum(one.share for one in growths if one.share > 0)


def is_everywhere(growths: Iterable[Growth], hosts: Collection[str]) -> bool:
    """Whether each of these nodes, or a rank on it, has lost MIN_SHARE more of its time."""
    return set(hosts) <= {one.host for one in growths if one.share >= MIN_SHARE}


def is_of_few(growths: Collection[Growth], nodes: int) -> bool:
    """Whether at most half of the nodes have lost ALIKE of what the worst has lost."""
    limit = ALIKE * max(one.share for one in growths)
    return len({one.host for one in growths if one.share >= limit}) <= nodes / 2


def _taker(beside: Mapping[Beside, float]) -> Beside:
    """Who takes the cores, by processor time: ranks that were driven away by another process are beside each other."""
    foreign = [one for one in beside if one.owner != "rank"]
    most = max((beside[one] for one in foreign), default=0.0)
    among = foreign if most >= ALIKE * max(beside.values()) > 0 else beside
    return max(among, key=lambda one: (one.shares_core, beside[one], one.name))


def loss_cause(kind: Kind, growths: list[Growth], during: Account, nodes: int) -> Cause:
    """The cause in the form of other causes: members are ranks on one node, else nodes."""
    ordered = sorted(growths, key=lambda one: -one.share)
    worst = ordered[0]
    alike = [one for one in ordered if one.share >= ALIKE * worst.share]
    if any(one.rank != NODE for one in alike):
        alike = [one for one in alike if one.rank != NODE]
    names = [one.host if nodes > 1 or one.rank == NODE else f"rank {one.rank}" for one in alike]
    worst = alike[0]
    sums = during.sums[worst.host, worst.rank]
    seconds = during.seconds[worst.host]
    numbers = {"waited": worst.now, "waited_before": worst.before, "members": float(len(alike))}
    if worst.rank != NODE:
        numbers["rank"] = float(worst.rank)
    if kind == "memory":
        numbers |= {"faults": sums.faults / seconds}
        numbers |= {"swapped": during.sums[worst.host, NODE].swapped / seconds}
    beside = None
    if kind == "core" and sums.beside:
        beside = _taker(sums.beside)
    return Cause(kind, tuple(dict.fromkeys(names)), numbers, None, beside, (), worst.host)
