"""What the sidecars of a run's other nodes have reported, as far as the log has it: rows of `nodes`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from barograph_agent.protocol import wire
from barograph_agent.reduce.ring_set import Progress

MAX_ROWS: Final = 100_000
READ_SECONDS: Final = 0.5
"""How long one answer of the collector is waited for."""
UNKNOWN_SECONDS: Final = 2.0
"""How long ranks are waited for of which no node has reported the begin."""
POLL_SECONDS: Final = 0.1

Reader = Callable[[str, int, int, str, float], wire.Rows | None]
"""As `Link.read`: table, after, limit, job, seconds."""


class OtherNode(msgspec.Struct, frozen=True):
    """The newest row of one node. seen, lost: intervals of rank 0, if it is there."""

    ranks: int
    world: int
    has_first: bool
    seen: int
    lost: int
    ended: bool


class OtherNodes(msgspec.Struct):
    """The other nodes of a run, by name. Part of the spool's mark."""

    known: dict[str, OtherNode] = {}
    settled: bool = False
    """Whether all have reported their end, or have been waited for long enough."""

    @property
    def ranks(self) -> int:
        """Ranks on these nodes."""
        return sum(node.ranks for node in self.known.values())

    @property
    def world(self) -> int:
        """Ranks of the world, as these nodes have it; 0 without one."""
        return max((node.world for node in self.known.values()), default=0)

    @property
    def has_first(self) -> bool:
        """Whether rank 0 is on one of these nodes."""
        return any(node.has_first for node in self.known.values())

    @property
    def seen(self) -> int:
        """Intervals counted on these nodes."""
        return sum(node.seen for node in self.known.values())

    @property
    def lost(self) -> int:
        """Those of them that are in no row."""
        return sum(node.lost for node in self.known.values())

    @property
    def unfinished(self) -> list[str]:
        """Nodes that have not reported an end."""
        return sorted(name for name, node in self.known.items() if not node.ended)

    def read(self, read: Reader, job: str, host: str) -> bool:
        """Read the rows of this job of other hosts; False without an answer."""
        answer = read("nodes", 0, MAX_ROWS, job, READ_SECONDS)
        if answer is None:
            return False
        columns = wire.unpack(answer.columns, wire.READ_KINDS["nodes"], answer.rows, strict=False)
        names = ("ranks", "world", "first", "intervals", "dropped", "ended")
        for name, ranks, world, first, seen, lost, ended in zip(
            columns["host"], *(columns[one] for one in names), strict=True
        ):
            if name != host:
                self.known[str(name)] = OtherNode(
                    int(ranks), int(world), bool(first), int(seen), int(lost), bool(ended)
                )
        return True

    def is_complete(self, progress: Progress) -> bool:
        """Whether all ranks of the world are accounted for, and all nodes have reported their end."""
        here = len({(cursor.world, cursor.rank) for cursor in progress.cursors.values() if cursor.world == 0})
        return not self.unfinished and here + self.ranks >= max(progress.ranks, self.world)
