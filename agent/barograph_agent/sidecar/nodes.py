"""Rows of `nodes`: what this node has of the MPI worlds of a run, and what the other nodes report when it has ended."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from barograph_agent.protocol import wire
from barograph_agent.protocol.rows import TableRows
from barograph_agent.reduce.ring_set import RingSet
from barograph_agent.reduce.worlds import World
from barograph_agent.ring.reader import LAUNCHES

MAX_ROWS: Final = 100_000
READ_SECONDS: Final = 0.5
"""Timeout of a read."""
READ_EVERY_SECONDS: Final = 1.0
"""Between two reads, while nodes have yet to report their ends."""
UNSEEN_SECONDS: Final = 2.0
"""How long ranks are waited for that no node has reported."""
SETTLED_SECONDS: Final = 1.0
"""After so long without another rank, the ranks on this node are complete."""

_NONE: Final = World(0, 0, 1, 0, 0)

Reader = Callable[[str, int, int, str, float], wire.Rows | None]
"""As `Link.read`: table, after, limit, job, seconds."""


class Steady:
    """A value, and since when it has been the same."""

    def __init__(self) -> None:
        self._value: object = None
        self._since = math.inf

    def seconds(self, value: object, now: float) -> float:
        """For how long the value is this; 0 when it changes. now: monotonic seconds."""
        if value != self._value or self._since == math.inf:
            self._value, self._since = value, now
        return now - self._since


class NodeRows:
    """Source of rows of `nodes`: one of each world here at the end, and one of a world with ranks elsewhere once its
    ranks here are complete."""

    def __init__(self, rings: RingSet, reported: dict[int, int], *, is_companion: bool) -> None:
        """reported: ranks of each world, by number, as in its last row; part of the mark.

        is_companion: the launcher's sidecar waits for nodes that have reported: each world is, at once.
        """
        self._rings, self._reported, self._is_companion = rings, reported, is_companion
        self._ranks: dict[int, Steady] = {}
        self._is_complete = -1
        """Rings whose worlds all have their row."""

    def read(self, now: float, *, final: bool) -> Iterator[TableRows]:
        """A row of each world whose ranks here are others than reported; as the run ends, of each."""
        count = len(self._rings.progress.cursors)
        if not final and count == self._is_complete:
            return
        due: dict[int, World] = {}
        are_settled = True
        for number, world in self._rings.worlds().items():
            before = self._reported.get(number)
            unchanged = self._ranks.setdefault(number, Steady()).seconds(world.ranks, now)
            is_settled = world.ranks >= world.size or unchanged >= SETTLED_SECONDS
            are_settled &= is_settled
            is_first = before is None and self._is_companion
            if final or is_first or (is_settled and before != world.ranks and (before or world.ranks < world.size)):
                due[number] = world
                self._reported[number] = world.ranks
        self._is_complete = count if are_settled else -1
        if due:
            yield TableRows("nodes", len(due), _columns(due, ended=final))


def _columns(worlds: Mapping[int, World], *, ended: bool) -> dict[str, Any]:
    each = list(worlds.values())
    return {
        "world": [world.size for world in each],
        "ranks": [world.ranks for world in each],
        "first": [int(world.lowest == 0) for world in each],
        "intervals": [world.seen for world in each],
        "dropped": [world.lost for world in each],
        "number": list(worlds),
        "lowest": [world.lowest for world in each],
        "ended": int(ended),
    }


class OtherNodes(msgspec.Struct):
    """The other nodes of a run. Part of the spool's mark."""

    worlds: dict[int, World] = {}
    """Sums over these nodes, by number of the world; `lowest` is 0 with rank 0."""
    hosts: int = 0
    unfinished: list[str] = []
    """Nodes that have not reported an end."""
    answered: bool = False
    """Whether the collector has answered a read: else nothing is known of other nodes."""
    is_final: bool = False
    """Whether all nodes have reported their ends, or have been waited for long enough."""

    @property
    def ranks(self) -> int:
        """Ranks of the largest world; 0 without one."""
        return max((world.size for world in self.worlds.values()), default=0)

    @property
    def has_first(self) -> bool:
        """Whether a rank 0 is on one of these nodes."""
        return any(not world.lowest for world in self.worlds.values())

    @property
    def counted(self) -> tuple[int, int]:
        """Intervals counted on these nodes, and those of them that are in no row."""
        return sum(world.seen for world in self.worlds.values()), sum(world.lost for world in self.worlds.values())

    def unseen_ranks(self, here: Mapping[int, World]) -> int:
        """Ranks that neither this node nor one of these has, of all worlds that were launched. here: on this node."""
        unseen = 0
        for number in {*here, *self.worlds}:
            own, other = here.get(number, _NONE), self.worlds.get(number, _NONE)
            unseen += max(max(own.size, other.size) - own.ranks - other.ranks, 0) * (number < LAUNCHES)
        return unseen

    def read(self, read: Reader, job: str, host: str) -> bool:
        """Read the rows of this job of other hosts; False without an answer."""
        answer = read("nodes", 0, MAX_ROWS, job, READ_SECONDS)
        if answer is None or answer.error:
            return False
        columns = wire.unpack(answer.columns, wire.READ_KINDS["nodes"], answer.rows, strict=False)
        names = ("host", "number", "world", "ranks", "first", "intervals", "dropped", "ended")
        newest = {row[:2]: row for row in zip(*(columns[name] for name in names), strict=True) if row[0] != host}
        self.answered, self.hosts, self.worlds = True, len({name for name, _ in newest}), {}
        self.unfinished = sorted({str(row[0]) for row in newest.values() if not row[-1]})
        for _, number, size, ranks, first, seen, lost, _ in newest.values():
            sums = self.worlds.get(int(number), _NONE)
            self.worlds[int(number)] = World(
                max(sums.size, int(size)), sums.ranks + int(ranks), min(sums.lowest, 1 - int(first)),
                sums.seen + int(seen), sums.lost + int(lost),
            )  # fmt: skip
        return True
