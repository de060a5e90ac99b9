"""What ranks and nodes lose, now and before, and the cause that it makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import Final, NamedTuple

from barograph_alerts.attribution.cause import Beside, Cause, KernelKind, KernelLoss
from barograph_alerts.attribution.kernel.account import Account, LossTotals
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
MIN_SHARES: Final[Mapping[KernelKind, float]] = {"throttled": 0.1, "accelerator": 0.1}
"""The same of a node whose cores or accelerators are slower: by less clocks differ with what a program computes."""
CLOCKS: Final[Mapping[KernelKind, str]] = {"throttled": "clock_hz", "accelerator": "accelerator_clock_hz"}


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


def by_kind(before: Account, during: Account, hosts: Collection[str]) -> Iterator[tuple[KernelKind, Iterator[Growth]]]:
    """Each kind of cause with the growth of its figure, by rank or node."""
    ranks = [key for key in during.sums if key[0] in hosts and key[1] != NODE]
    nodes = [key for key in during.sums if key[0] in hosts and key[1] == NODE]
    short = {
        key
        for key in [*ranks, *nodes]
        if during.share(*key, lambda one: one["faults"]) >= FAULTS
        or (key[1] == NODE and during.share(*key, lambda one: one["swapped"]) >= SWAPPED)
    }

    def growths(keys: Iterable[tuple[str, int]], figure: Callable[[LossTotals], float]) -> Iterator[Growth]:
        return (Growth(*key, during.share(*key, figure), before.share(*key, figure)) for key in keys)

    yield "stopped", growths(ranks, lambda one: one["stopped"])
    yield "core", growths(ranks, lambda one: one["delay"])
    # Who reads pages from a disk is blocked meanwhile.
    yield (
        "memory",
        growths(
            [*(key for key in ranks if key in short), *(key for key in nodes if key in short)],
            lambda one: max(one["blocked"], one["faults"] * FAULT_SECONDS, one["memory"]),
        ),
    )
    yield "disk", growths((key for key in ranks if key not in short), lambda one: one["blocked"])
    yield "steal", growths(nodes, lambda one: one["steal"])


def slower_nodes(gauge: str, before: Account, during: Account, hosts: Collection[str]) -> list[Growth]:
    """The share of its time that each node loses because it is slower than before, or else than its peers."""
    found = ((host, *beside_peers(gauge, host, before, during)) for host in hosts)
    usual = ((host, now, was if was > 0 else peers) for host, now, was, peers in found)
    return [Growth(host, NODE, 1 - now / clock, 0.0) for host, now, clock in usual if now > 0 and clock > 0]


def beside_peers(gauge: str, host: str, before: Account, during: Account) -> tuple[float, float, float]:
    """A figure of a node now and before, and the median of the job's other nodes now; NaN where unknown."""
    peers = [one for name in during.seconds if name != host and not math.isnan(one := during.node(name).mean(gauge))]
    return during.node(host).mean(gauge), before.node(host).mean(gauge), median(peers) if peers else math.nan


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


def loss_cause(kind: KernelKind, growths: list[Growth], before: Account, during: Account, nodes: int) -> Cause:
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
    rank = worst.rank if worst.rank != NODE else None
    reason = KernelLoss(kind, worst.now, worst.before, len(alike), worst.host, rank)
    if kind == "memory":
        swapped = during.sums[worst.host, NODE]["swapped"] / seconds
        reason = replace(reason, faults=sums["faults"] / seconds, swapped=swapped)
    if kind in CLOCKS:
        now, was, peers = beside_peers(CLOCKS[kind], worst.host, before, during)
        reason = replace(reason, clock_hz=now, clock_before_hz=was, clock_peers_hz=peers)
        reason = replace(reason, events=sums["throttles" if kind == "throttled" else "accelerator_errors"])
        reason = replace(reason, celsius=sums.mean("accelerator_celsius") if kind == "accelerator" else math.nan)
    beside = _taker(sums.beside) if kind == "core" and sums.beside else None
    return Cause(reason, tuple(dict.fromkeys(names)), beside=beside)
