"""Reads that wait for rows: rounds of daemons, and the final score of a job."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_collector.storage.rows import Entry

MAX_SECONDS: Final = 60.0
"""Limit on a wait."""
MAX_READS: Final = 4096
"""Reads that wait."""
MAX_JOBS: Final = 100_000
"""Jobs with a final score that are kept; those that were added last."""
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

    has_rows: whether any table has rows beyond its offset. clock: monotonic, in seconds.
    """

    has_rows: Callable[[Mapping[str, int]], bool]
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._reads: list[WaitingRead] = []
        self._due: float | None = None
        """The end of the first wait."""
        self._final: OrderedDict[str, None] = OrderedDict()
        """Jobs whose final score is durable."""

    def __len__(self) -> int:
        return len(self._reads)

    def is_ready(self, read: wire.Read) -> bool:
        """Whether there is what a read waits for: rows of a round, or for the last score of a job the final one."""
        if read.tables is not None:
            return self.has_rows(read.tables)
        return (read.table, read.after) != (SCORES, -1) or not read.job or read.job in self._final

    def must_wait(self, read: wire.Read) -> bool:
        """Whether a read asks to wait and there is nothing to answer yet."""
        return read.seconds > 0 and not self.is_ready(read)

    def add(self, peer: bytes, key: str, read: wire.Read) -> list[WaitingRead]:
        """Hold a read; returns those whose wait it ends."""
        due = self.clock() + min(read.seconds, MAX_SECONDS)
        self._reads.append(WaitingRead(peer, key, read, due))
        self._due = due if self._due is None else min(self._due, due)
        if len(self._reads) <= MAX_READS:
            return []
        ((most, _),) = Counter(waiting.key for waiting in self._reads).most_common(1)
        return self._take([next(waiting for waiting in self._reads if waiting.key == most)])

    def add_final(self, entry: Entry) -> None:
        """Note the jobs with final scores among durable rows of `scores`."""
        kinds = TABLES[SCORES].columns
        jobs, final = (wire.spread(entry.columns[name], kinds[name], entry.rows) for name in ("job", "final"))
        self._final.update(dict.fromkeys(itertools.compress(jobs, final)))
        while len(self._final) > MAX_JOBS:
            self._final.popitem(last=False)

    def seconds(self) -> float | None:
        """The time until the next wait ends; None where none does."""
        return None if self._due is None else max(self._due - self.clock(), 0.0)

    def take_due(self) -> list[WaitingRead]:
        """Remove and return the reads whose time is over."""
        now = self.clock()
        return [] if self._due is None or now < self._due else self._take(w for w in self._reads if w.due <= now)

    def take_ready(self) -> list[WaitingRead]:
        """Remove and return the reads that can be answered."""
        return self._take(waiting for waiting in self._reads if self.is_ready(waiting.read))

    def take_all(self) -> list[WaitingRead]:
        """Remove and return all."""
        return self._take(self._reads)

    def _take(self, reads: Iterable[WaitingRead]) -> list[WaitingRead]:
        taken = list(reads)
        if taken:
            numbers = set(map(id, taken))
            self._reads = [waiting for waiting in self._reads if id(waiting) not in numbers]
            self._due = min((waiting.due for waiting in self._reads), default=None)
        return taken
