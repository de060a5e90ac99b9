"""What the sidecars of a run's other nodes have reported, as far as the log has it: rows of `nodes`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from barograph_agent.protocol import wire
from barograph_agent.reduce.worlds import World
from barograph_agent.ring.reader import LAUNCHES

MAX_ROWS: Final = 100_000
READ_SECONDS: Final = 0.5
"""How long one answer of the collector is waited for."""
UNKNOWN_SECONDS: Final = 2.0
"""How long ranks are waited for of which no node has reported the begin."""
POLL_SECONDS: Final = 0.1

Reader = Callable[[str, int, int, str, float], wire.Rows | None]
"""As `Link.read`: table, after, limit, job, seconds."""


class OtherNode(msgspec.Struct, frozen=True):
    """The newest row of one node about a world. seen, lost: intervals of rank 0, if there. number: of the world."""

    ranks: int
    world: int
    has_first: bool
    seen: int
    lost: int
    ended: bool
    number: int = 0


class OtherNodes(msgspec.Struct):
    """The other nodes of a run. Part of the spool's mark."""

    known: dict[str, OtherNode] = {}
    """By name, and for further worlds by name and number."""
    settled: bool = False
    """Whether all have reported their end, or have been waited for long enough."""

    @property
    def hosts(self) -> set[str]:
        """Their names."""
        return {key.partition(" ")[0] for key in self.known}

    @property
    def world(self) -> int:
        """Ranks of the largest world, as these nodes have it; 0 without one."""
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
        return sorted({key.partition(" ")[0] for key, node in self.known.items() if not node.ended})

    def has_first_below(self, number: int) -> bool:
        """Whether rank 0 of a world with a lower number is on one of these nodes."""
        return any(node.has_first and node.number < number for node in self.known.values())

    def unseen_ranks(self, here: Mapping[int, World]) -> int:
        """Ranks that neither this node nor one of these has, of all worlds that were launched. here: on this node."""
        sizes, found = Counter[int](), Counter[int]()
        each = [(node.number, node.world, node.ranks) for node in self.known.values()]
        for number, size, ranks in [*each, *((number, one.size, one.ranks) for number, one in here.items())]:
            sizes[number] = max(sizes[number], size)
            found[number] += ranks
        return sum(max(size - found[number], 0) for number, size in sizes.items() if number < LAUNCHES)

    def read(self, read: Reader, job: str, host: str) -> bool:
        """Read the rows of this job of other hosts; False without an answer."""
        answer = read("nodes", 0, MAX_ROWS, job, READ_SECONDS)
        if answer is None:
            return False
        columns = wire.unpack(answer.columns, wire.READ_KINDS["nodes"], answer.rows, strict=False)
        names = ("ranks", "world", "first", "intervals", "dropped", "ended", "number")
        for name, ranks, world, first, seen, lost, ended, number in zip(
            columns["host"], *(columns[one] for one in names), strict=True
        ):
            if name != host:
                self.known[f"{name} {number}" if number else str(name)] = OtherNode(
                    int(ranks), int(world), bool(first), int(seen), int(lost), bool(ended), int(number)
                )
        return True

    def is_complete(self, here: Mapping[int, World]) -> bool:
        """Whether all ranks are accounted for, and all nodes have reported their end. here: worlds on this node."""
        return not self.unfinished and not self.unseen_ranks(here)
