"""Blocks of several nodes for the same sync points: nested blocks of different lengths are added up.

Each node chooses its block length 2^m by itself, and a block begins at a multiple of its length. So of two blocks one
contains the other, or they have nothing in common. A range is the longest block of any node at its place. The others
tile it with shorter blocks.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

PATIENCE: Final = 30.0
"""Seconds that a range waits for nodes which have not delivered it; then the others are compared without them."""
MAX_CLOSED: Final = 64
"""Closed ranges remembered, adjacent ones as one; beyond it what is between the two oldest is closed too."""

Outcome: TypeAlias = Literal["compared", "missing", "late", "repeated", "overflow"]
"""What became of the sync points of a node's block. missing: fewer than two nodes delivered all of the range in time.
late: the others were compared already. repeated: delivered before. overflow: too many ranges waited."""


@dataclass(slots=True)
class Part:
    """What one node delivered of a range. Seconds are summed over its ranks; least_wait: of the last rank.

    rank: one of them, the one with most own work in the first block. busiest: own work of the ones with most in each.
    """

    ranks: int
    count: int
    own: float
    p2p: float
    wait: float
    least_wait: float
    ended_at: float
    blocks: list[tuple[int, int]]
    """First sync point of each block, and the one after its last, in order."""
    rank: int = -1
    busiest: float = 0.0

    @property
    def length(self) -> int:
        """Sync points covered by the blocks."""
        return sum(end - first for first, end in self.blocks)

    def add(self, other: Part) -> None:
        """Add disjoint blocks of the same node."""
        self.ranks = max(self.ranks, other.ranks)
        self.count += other.count
        self.own += other.own
        self.busiest += other.busiest
        self.p2p += other.p2p
        self.wait += other.wait
        self.least_wait += other.least_wait
        self.ended_at = max(self.ended_at, other.ended_at)
        self.blocks = _joined(sorted(self.blocks + other.blocks))


@dataclass(slots=True)
class Range:
    """A range of sync points with what each node delivered of it. since: Unix seconds, NaN until a step has seen it."""

    first: int
    end: int
    parts: dict[str, Part] = field(default_factory=dict)
    covered: int = 0
    """Sum of the lengths of all parts."""
    since: float = math.nan

    def is_whole(self, nodes: int) -> bool:
        """Whether so many nodes have delivered all of it."""
        return len(self.parts) >= nodes and self.covered == len(self.parts) * (self.end - self.first)

    def whole(self) -> dict[str, Part]:
        """The parts of the nodes that delivered all of it."""
        length = self.end - self.first
        return {host: part for host, part in self.parts.items() if part.length == length}

    def absorb(self, other: Range) -> None:
        """Add another range that this one contains."""
        for host, part in other.parts.items():
            self.add(host, part)
        if other.since == other.since:
            self.since = min(other.since, self.since) if self.since == self.since else other.since

    def add(self, host: str, part: Part) -> None:
        """Add disjoint blocks of a node."""
        self.covered += part.length
        if host in self.parts:
            self.parts[host].add(part)
        else:
            self.parts[host] = part


class Alignment:
    """The ranges of one world communicator of one job.

    nodes: number of nodes; a range is complete once all have delivered it. outcomes: counts sync points of nodes.
    """

    def __init__(self, nodes: int, outcomes: Counter[Outcome]) -> None:
        self._nodes = nodes
        self._outcomes = outcomes
        self._firsts: list[int] = []
        self._ranges: OrderedDict[int, Range] = OrderedDict()
        """Disjoint, by first sync point."""
        self._closed: list[tuple[int, int]] = []
        self.size = 0
        """Number of parts that wait."""

    def add(self, host: str, part: Part) -> dict[str, Part] | None:
        """Add one block of a node; returns the parts of the range that it completes."""
        ((first, end),) = part.blocks
        if _overlaps(self._closed, first, end):
            self._outcomes["late"] += part.count
            return None
        touched = list(self._touched(first, end))
        if any(host in one.parts and _overlaps(one.parts[host].blocks, first, end) for one in touched):
            self._outcomes["repeated"] += part.count
            return None
        found = touched[0] if len(touched) == 1 else None
        if found is None or not (found.first <= first and end <= found.end):
            found = self._merged(first, end, touched)
        self.size += host not in found.parts
        found.add(host, part)
        return self._close(found) if found.is_whole(self._nodes) else None

    def set_nodes(self, nodes: int) -> list[dict[str, Part]]:
        """Set the number of nodes; returns the parts of the ranges that are complete with that."""
        self._nodes = nodes
        found = [self._close(one) for one in list(self._ranges.values()) if one.is_whole(nodes)]
        return [whole for whole in found if whole]

    def step(self, now: float) -> Iterator[dict[str, Part]]:
        """Close the ranges that have waited for PATIENCE; the parts of those that at least two nodes delivered."""
        for one in list(self._ranges.values()):
            if one.since != one.since:
                one.since = now
            elif now - one.since >= PATIENCE and (whole := self._close(one)):
                yield whole

    def finish(self) -> Iterator[dict[str, Part]]:
        """Close all ranges, as `step`."""
        for one in sorted(self._ranges.values(), key=lambda one: one.first):
            if whole := self._close(one):
                yield whole

    def drop_oldest(self) -> int:
        """Give up the range that was begun first; returns its number of parts."""
        if not self._ranges:
            return 0
        oldest = next(iter(self._ranges.values()))
        self._outcomes["overflow"] += sum(part.count for part in oldest.parts.values())
        self._remove(oldest)
        self._mark_closed(oldest)
        return len(oldest.parts)

    def _close(self, one: Range) -> dict[str, Part]:
        self._remove(one)
        self._mark_closed(one)
        whole = one.whole()
        if len(whole) < 2:
            whole = {}
        for host, part in one.parts.items():
            self._outcomes["compared" if host in whole else "missing"] += part.count
        return whole

    def _touched(self, first: int, end: int) -> Iterator[Range]:
        """Waiting ranges that share sync points with a block."""
        place = max(bisect_right(self._firsts, first) - 1, 0)
        while place < len(self._firsts) and self._firsts[place] < end:
            one = self._ranges[self._firsts[place]]
            if one.end > first:
                yield one
            place += 1

    def _merged(self, first: int, end: int, inside: list[Range]) -> Range:
        """A range for a new block, with the shorter ones in it."""
        made = Range(min([first, *(one.first for one in inside)]), max([end, *(one.end for one in inside)]))
        for one in inside:
            self._remove(one)
            made.absorb(one)
        self.size += len(made.parts)
        self._ranges[made.first] = made
        self._firsts.insert(bisect_left(self._firsts, made.first), made.first)
        return made

    def _remove(self, one: Range) -> None:
        self.size -= len(one.parts)
        del self._ranges[one.first]
        del self._firsts[bisect_left(self._firsts, one.first)]

    def _mark_closed(self, one: Range) -> None:
        place = bisect_left(self._closed, (one.first, one.end))
        self._closed.insert(place, (one.first, one.end))
        self._closed = _joined(self._closed)
        if len(self._closed) > MAX_CLOSED:
            self._closed[:2] = [(self._closed[0][0], self._closed[1][1])]


def _overlaps(blocks: list[tuple[int, int]], first: int, end: int) -> bool:
    """Whether one of these ordered disjoint blocks has a sync point from `first` to before `end`."""
    place = bisect_left(blocks, (end,))
    return place > 0 and blocks[place - 1][1] > first


def _joined(blocks: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ordered disjoint blocks, with adjacent ones joined."""
    joined: list[tuple[int, int]] = []
    for first, end in blocks:
        if joined and joined[-1][1] == first:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((first, end))
    return joined
