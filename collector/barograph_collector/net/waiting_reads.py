"""Reads that wait for what they ask for."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_collector.storage.rows import CheckedRows

SECONDS: Final = 60.0
"""A read of a round waits no longer."""
READS: Final = 64
"""Maximum of reads of rounds that wait."""

MAX_FINAL_READS: Final = 4096
"""Maximum of reads that wait for a final score."""
MAX_FINAL_SECONDS: Final = 10.0
"""Limit on such a wait."""
MAX_JOBS: Final = 100_000
"""Jobs that are kept; those that were added last."""
SCORES: Final = "scores"


class WaitingRead(NamedTuple):
    """A read, who sent it, and when its wait ends at the latest. key: the client's public key, "" without keys."""

    peer: bytes
    key: str
    read: wire.Read
    due: float


@dataclass
class WaitingReads:
    """Holds reads until they can be answered, or their time is over. Belongs to the receive thread.

    A read costs nothing but its memory while it waits. A client that fills the list ends its own waits: the one that
    makes room is the oldest of the key that has the most.

    is_ready: whether a read can be answered as it wants to be. clock: monotonic, in seconds. most: maximum of waiting
    reads. limit: seconds of a wait.
    """

    is_ready: Callable[[wire.Read], bool]
    clock: Callable[[], float]
    most: int = READS
    limit: float = SECONDS

    def __post_init__(self) -> None:
        self._reads: list[WaitingRead] = []
        self._due: float | None = None
        """The end of the first wait."""

    def __len__(self) -> int:
        return len(self._reads)

    def must_wait(self, read: wire.Read) -> bool:
        """Whether a read asks to wait and there is nothing to answer yet."""
        return read.seconds > 0 and not self.is_ready(read)

    def add(self, peer: bytes, key: str, read: wire.Read) -> list[WaitingRead]:
        """Hold a read; returns those whose wait it ends."""
        due = self.clock() + min(read.seconds, self.limit)
        self._reads.append(WaitingRead(peer, key, read, due))
        self._due = due if self._due is None else min(self._due, due)
        if len(self._reads) <= self.most:
            return []
        ((most, _),) = Counter(one.key for one in self._reads).most_common(1)
        return self._take([next(one for one in self._reads if one.key == most)])

    def seconds(self) -> float | None:
        """The time until the next wait ends; None where none does."""
        return None if self._due is None else max(self._due - self.clock(), 0.0)

    def take_due(self) -> list[WaitingRead]:
        """Remove and return the reads whose time is over."""
        now = self.clock()
        return [] if self._due is None or now < self._due else self._take(one for one in self._reads if one.due <= now)

    def take_ready(self) -> list[WaitingRead]:
        """Remove and return the reads that can be answered."""
        return self._take(one for one in self._reads if self.is_ready(one.read))

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


class FinalScores:
    """The jobs whose final scores are durable: agents wait for these. Belongs to the receive thread."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, None] = OrderedDict()

    def is_ready(self, read: wire.Read) -> bool:
        """False for a read of the last score of a job that waits for the final one, which has not come."""
        waits = (
            read.tables is None and read.table == SCORES and bool(read.job) and read.after == -1 and read.seconds > 0
        )
        return not waits or read.job in self._jobs

    def add(self, entry: CheckedRows) -> None:
        """Note the jobs with final scores among durable rows."""
        kinds = TABLES[SCORES].columns
        jobs, final = (wire.spread(entry.columns[name], kinds[name], entry.rows) for name in ("job", "final"))
        self._jobs.update(dict.fromkeys(itertools.compress(jobs, final)))
        while len(self._jobs) > MAX_JOBS:
            self._jobs.popitem(last=False)
