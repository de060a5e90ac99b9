"""The work of the ranks or nodes of a job over a span of time: the input of attribution.

Recordings have it per rank, the log per node.
"""

from __future__ import annotations

from typing import NamedTuple

from barograph_alerts.places import Unit


class Work(NamedTuple):
    """One member of a job, a rank or a node, over one span.

    syncs: number of sync points. own_seconds: own work between them. wait_seconds: time in sync points and waiting for
    messages. label: display name if `name` is a role such as "the busiest rank". p2p_seconds: waiting for messages
    alone. busiest_seconds: own work of the node's rank with most. rank: one of the node's, -1 if unknown.
    place: of a node among those of its world, in the order of their lowest ranks; -1 if unknown. ranks: how many the
    seconds are a mean of.
    """

    name: str
    syncs: int
    own_seconds: float
    wait_seconds: float
    label: str = ""
    p2p_seconds: float = 0.0
    rank: int = -1
    busiest_seconds: float = 0.0
    place: int = -1
    ranks: int = 1

    @property
    def most_seconds(self) -> float:
        """Own work of the rank with most, where it is known, else of the member."""
        return self.busiest_seconds or self.own_seconds


class WorkSpan(NamedTuple):
    """All members over the same sync points, which ended at `ended_at` (Unix seconds)."""

    ended_at: float
    members: tuple[Work, ...]
    unit: Unit = "sync point"
