"""Reads of rounds that wait for rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from barograph_agent.protocol import wire

SECONDS: Final = 60.0
"""A read waits no longer."""
READS: Final = 64
"""Reads that wait at once. One more ends the wait of another."""


class WaitingRead(NamedTuple):
    """A read, who sent it, and when its wait ends at the latest. key: the client's public key, "" without keys."""

    peer: bytes
    key: str
    read: wire.Read
    due: float


class WaitingReads:
    """Holds reads until their tables have rows, or their time is over. Belongs to the receive thread.

    A read costs nothing but its memory while it waits. A client that fills the list ends its own waits: the one that
    makes room is the oldest of the key that has the most.
    """

    def __init__(self, has_rows: Callable[[Mapping[str, int]], bool], clock: Callable[[], float]) -> None:
        """has_rows: whether any of some tables has rows beyond its offset. `clock`: monotonic, in seconds."""
        self._has_rows = has_rows
        self._clock = clock
        self._reads: list[WaitingRead] = []

    def __len__(self) -> int:
        return len(self._reads)

    def must_wait(self, read: wire.Read) -> bool:
        """Whether a read asks to wait and there is nothing to answer yet."""
        return read.tables is not None and read.seconds > 0 and not self._has_rows(read.tables)

    def add(self, peer: bytes, key: str, read: wire.Read) -> list[WaitingRead]:
        """Hold a read; returns those whose wait it ends."""
        self._reads.append(WaitingRead(peer, key, read, self._clock() + min(read.seconds, SECONDS)))
        if len(self._reads) <= READS:
            return []
        ((most, _),) = Counter(one.key for one in self._reads).most_common(1)
        return self._take([next(one for one in self._reads if one.key == most)])

    def seconds(self) -> float | None:
        """The time until the next wait ends; None where none does."""
        return max(min(one.due for one in self._reads) - self._clock(), 0.0) if self._reads else None

    def take_due(self) -> list[WaitingRead]:
        """Remove and return the reads whose time is over."""
        now = self._clock()
        return self._take(one for one in self._reads if one.due <= now)

    def take_ready(self) -> list[WaitingRead]:
        """Remove and return the reads whose tables have rows."""
        return self._take(one for one in self._reads if one.read.tables and self._has_rows(one.read.tables))

    def take_all(self) -> list[WaitingRead]:
        """Remove and return all."""
        return self._take(self._reads)

    def _take(self, reads: Iterable[WaitingRead]) -> list[WaitingRead]:
        taken = list(reads)
        numbers = set(map(id, taken))
        self._reads = [one for one in self._reads if id(one) not in numbers]
        return taken
