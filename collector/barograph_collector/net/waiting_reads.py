"""Reads that wait for what they ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from barograph_agent.protocol import wire

SECONDS: Final = 60.0
"""A read of a round waits no longer."""
READS: Final = 64
"""Maximum of reads of rounds that wait."""


class WaitingRead(NamedTuple):
    """A read, who sent it, and when its wait ends at the latest. key: the client's public key, "" without keys."""

    peer: bytes
    key: str
    read: wire.Read
    due: float


class WaitingReads:
    """Holds reads until they can be answered, or their time is over. Belongs to the receive thread.

    A read costs nothing but its memory while it waits. A client that fills the list ends its own waits: the one that
    makes room is the oldest of the key that has the most.
    """

    def __init__(
        self,
        is_ready: Callable[[wire.Read], bool],
        clock: Callable[[], float],
        most: int = READS,
        seconds: float = SECONDS,
    ) -> None:
        """is_ready: whether a read can be answered as it wants to be. `clock`: monotonic, in seconds.

        most: maximum of waiting reads. seconds: of a wait.
        """
        self._is_ready = is_ready
        self._clock = clock
        self._most, self._seconds = most, seconds
        self._reads: list[WaitingRead] = []
        self._due: float | None = None
        """The end of the first wait."""

    def __len__(self) -> int:
        return len(self._reads)

    def must_wait(self, read: wire.Read) -> bool:
        """Whether a read asks to wait and there is nothing to answer yet."""
        return read.seconds > 0 and not self._is_ready(read)

    def add(self, peer: bytes, key: str, read: wire.Read) -> list[WaitingRead]:
        """Hold a read; returns those whose wait it ends."""
        due = self._clock() + min(read.seconds, self._seconds)
        self._reads.append(WaitingRead(peer, key, read, due))
        self._due = due if self._due is None else min(self._due, due)
        if len(self._reads) <= self._most:
            return []
        ((most, _),) = Counter(one.key for one in self._reads).most_common(1)
        return self._take([next(one for one in self._reads if one.key == most)])

    def seconds(self) -> float | None:
        """The time until the next wait ends; None where none does."""
        return None if self._due is None else max(self._due - self._clock(), 0.0)

    def take_due(self) -> list[WaitingRead]:
        """Remove and return the reads whose time is over."""
        now = self._clock()
        return [] if self._due is None or now < self._due else self._take(one for one in self._reads if one.due <= now)

    def take_ready(self) -> list[WaitingRead]:
        """Remove and return the reads that can be answered."""
        return self._take(one for one in self._reads if self._is_ready(one.read))

    def take_all(self) -> list[WaitingRead]:
        """Remove and return all."""
        return self._take(self._reads)

    def _take(self, reads: Iterable[WaitingRead]) -> list[WaitingRead]:
        taken = list(reads)
        if taken:
            numbers = set(map(id, taken))
            self._reads = [one for one in self._reads if id(one) not in numbers]
            self._due = min((one.due for one in self._reads), default=None)
        return taken
