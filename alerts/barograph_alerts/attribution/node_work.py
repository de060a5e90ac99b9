"""The work of a job's nodes, or of the ranks of its only node, from rows of `node_blocks`."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Final

from barograph_agent.protocol.tables import ITERATIONS
from barograph_alerts.attribution.alignment import Alignment, Outcome, Part
from barograph_alerts.attribution.work import Work, WorkSpan
from barograph_alerts.places import NodeRanks, Unit
from barograph_modeler.state import lru

MAX_PARTS: Final = 16_384
"""Parts of incomplete ranges kept per job, or four of each node where that is more; the oldest are dropped."""
MAX_EARLY: Final = 1024
"""Rows kept until the row of `jobs` is there; the oldest are dropped."""
MAX_WORLDS: Final = 64
"""World communicators of a job whose ranges are kept."""
BUSIEST: Final = "the busiest rank"
OTHERS: Final = "the other ranks"

Row = Mapping[str, Any]


class NodeWork:
    """Joins the rows of all nodes of one job for the same sync points.

    In a job on one node the row has the rank with the most work: the members are that rank, named BUSIEST, and the mean
    of the others.
    """

    def __init__(self) -> None:
        self.unit: Unit = "sync point"
        """Of the newest row."""
        self._nodes = 0
        """0 until that is known."""
        self._host = ""
        self._outcomes: Counter[Outcome] = Counter()
        self._early: deque[Row] = deque(maxlen=MAX_EARLY)
        self._worlds: OrderedDict[int, Alignment] = OrderedDict()
        self._ranks: OrderedDict[int, NodeRanks] = OrderedDict()
        """Of worlds, as sidecars have reported."""
        self._places: dict[int, dict[str, int]] = {}
        """The place of each node, by world, where they are known of all."""
        self._ahead: dict[str, float] = {}
        self._waiting = 0
        """Upper bound of the number of parts that wait."""

    def begin(self, nodes: int, host: str, outcomes: Counter[Outcome]) -> list[WorkSpan]:
        """Set what the row of `jobs` tells, which comes from the node of rank 0; returns the spans completed by then.

        nodes: number of nodes; a range is complete once each has delivered it. host: the node of rank 0, whose clock
        the intervals of the job have. outcomes: counts sync points of nodes.
        """
        self._nodes, self._host, self._outcomes = max(nodes, 1), host, outcomes
        early, self._early = self._early, deque()
        return [span for row in early if (span := self.add(row)) is not None]

    def add(self, row: Row) -> WorkSpan | None:
        """Add a row of `node_blocks`; returns the work span that it completes."""
        if not self._nodes:
            self._early.append(row)
            return None
        self.unit = _unit(int(row["world"]))
        if self._nodes == 1:
            return _of_ranks(row)
        number = int(row["world"])
        world = lru.get(self._worlds, number, lambda: Alignment(self._nodes_of(number), self._outcomes), MAX_WORLDS)
        whole = world.add(str(row["host"]), _part(row))
        self._waiting += 1
        if self._waiting > max(MAX_PARTS, 4 * self._nodes):
            self._drop()
        return self._span(whole, number) if whole else None

    def add_ranks(self, number: int, host: str, lowest: int, ranks: int, size: int) -> list[WorkSpan]:
        """Add that so many ranks of a world are on a node; returns the work spans that are complete with that.

        The programs of a job may run on some of its nodes each: a world's ranges are complete once its nodes have them.
        number: of the world. lowest: of the ranks, -1 if unknown. size: ranks of the world.
        """
        known = lru.get(self._ranks, number, NodeRanks, MAX_WORLDS)
        known.add(host, lowest, ranks, size)
        if not known.is_whole:
            return []
        self._places = {one: places for one, places in self._places.items() if one in self._ranks}
        self._places[number] = {host: place for place, host in enumerate(known.places())}
        found = []
        for one in (number, number + ITERATIONS):
            if one in self._worlds:
                found += [self._span(whole, one) for whole in self._worlds[one].set_nodes(known.nodes)]
        return found

    def _nodes_of(self, number: int) -> int:
        """Nodes of a world: those that have all of its ranks, or as many as the job has."""
        known = self._ranks.get(number % ITERATIONS)
        return known.nodes if known is not None and known.is_whole else self._nodes

    def clock_ahead(self, host: str) -> float:
        """How far the clock of a node is ahead of that of rank 0's, in seconds; 0 until both have been compared."""
        return self._ahead.get(host, 0.0)

    def step(self, now: float) -> list[WorkSpan]:
        """Spans of ranges that have waited long enough for nodes that have not delivered them. now: Unix seconds."""
        return [self._span(whole, number) for number, world in self._worlds.items() for whole in world.step(now)]

    def finish(self) -> list[WorkSpan]:
        """Spans of all ranges that at least two nodes have delivered, now that the job has ended."""
        return [self._span(whole, number) for number, world in self._worlds.items() for whole in world.finish()]

    def _drop(self) -> None:
        """Drop the oldest ranges down to three quarters of the limit."""
        self._waiting = sum(world.size for world in self._worlds.values())
        while self._waiting > 0.75 * max(MAX_PARTS, 4 * self._nodes):
            self._waiting -= max(self._worlds.values(), key=lambda world: world.size).drop_oldest()

    def _span(self, parts: Mapping[str, Part], number: int) -> WorkSpan:
        # Clocks of other nodes may be seconds away from that of the intervals.
        own = parts.get(self._host)
        if own is None:
            ended_at = median(part.ended_at - self.clock_ahead(host) for host, part in parts.items())
        else:
            ended_at = own.ended_at
            # All ranks leave the last sync point together.
            self._ahead = {host: part.ended_at - ended_at for host, part in parts.items()}
        places = self._places.get(number % ITERATIONS, {})
        return WorkSpan(ended_at, tuple(_of_nodes(parts, places)), _unit(number))


def _unit(number: int) -> Unit:
    return "iteration" if number >= ITERATIONS else "sync point"


def _part(row: Row) -> Part:
    first = int(row["first_index"])
    return Part(
        ranks=int(row["ranks"]),
        count=int(row["count"]),
        own=float(row["own_seconds"]),
        p2p=float(row["p2p_seconds"]),
        wait=float(row["wait_seconds"]),
        least_wait=float(row["least_wait_seconds"]),
        ended_at=float(row["ended_at"]),
        blocks=[(first, first + int(row["length"]))],
        rank=int(row["own_rank"]),
        busiest=float(row["own_rank_seconds"]),
    )


def _of_nodes(parts: Mapping[str, Part], places: Mapping[str, int]) -> Iterator[Work]:
    """The work of each node."""
    for host, part in parts.items():
        waited = (part.p2p + part.wait) / part.ranks
        yield Work(
            host,
            part.count,
            part.own / part.ranks,
            waited,
            p2p_seconds=part.p2p / part.ranks,
            rank=part.rank,
            busiest_seconds=part.busiest,
            place=places.get(host, -1),
            ranks=part.ranks,
        )


def _of_ranks(row: Row) -> WorkSpan | None:
    ranks, count = int(row["ranks"]), int(row["count"])
    if ranks < 2:
        return None
    own, busiest = float(row["own_seconds"]), float(row["own_rank_seconds"])
    waited = float(row["p2p_seconds"]) + float(row["wait_seconds"])
    least = float(row["least_wait_seconds"])
    others = (waited - least) / (ranks - 1)
    first = Work(BUSIEST, count, busiest, least, f"rank {int(row['own_rank'])}")
    rest = Work(OTHERS, count, (own - busiest) / (ranks - 1), others, ranks=ranks - 1)
    return WorkSpan(float(row["ended_at"]), (first, rest), _unit(int(row["world"])))
