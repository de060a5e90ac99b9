"""The latest final scores, and reads that wait for that of a job."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_collector.net.waiting_reads import WaitingRead
from barograph_collector.storage.rows import CheckedRows

MAX_READS: Final = 4096
"""Limit on reads that wait. Further ones are answered from the database at once."""
MAX_SECONDS: Final = 10.0
"""Limit on a wait."""
MAX_BYTES: Final = 16 * 2**20
"""Limit on the scores in memory, encoded; those that were added last."""
TABLE: Final = "scores"


class FinalScores:
    """Answers agents without the database, when many jobs end at once. Belongs to the receive thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock`: monotonic, in seconds."""
        self._clock = clock
        self._rows: OrderedDict[str, tuple[dict[str, Any], int]] = OrderedDict()
        self._bytes = 0
        self._reads: dict[str, list[WaitingRead]] = {}
        self._count = 0
        self._due: float | None = None  # at most the end of the first wait

    def __len__(self) -> int:
        """Number of reads that wait."""
        return self._count

    def is_waited_for(self, read: wire.Read) -> bool:
        """Whether a read asks for the last score of a job and waits for the final one."""
        return read.tables is None and read.table == TABLE and bool(read.job) and read.after == -1 and read.seconds > 0

    def answer(self, read: wire.Read) -> wire.Rows | None:
        """The answer to such a read if the score is in memory."""
        row, _ = self._rows.get(read.job, (None, 0))
        return None if row is None else wire.Rows(read.request, TABLE, 1, row, read.after)

    def wait(self, peer: bytes, key: str, read: wire.Read) -> bool:
        """Hold a read; False where too many are held."""
        if self._count >= MAX_READS:
            return False
        due = self._clock() + min(read.seconds, MAX_SECONDS)
        self._reads.setdefault(read.job, []).append(WaitingRead(peer, key, read, due))
        self._count += 1
        self._due = due if self._due is None else min(self._due, due)
        return True

    def add(self, entry: CheckedRows) -> list[WaitingRead]:
        """Keep the final scores among durable rows; removes and returns the reads that they answer."""
        columns = {
            name: wire.spread(entry.columns[name], kind, entry.rows) for name, kind in TABLES[TABLE].columns.items()
        }
        ready = []
        for row in np.flatnonzero(columns["final"]).tolist():
            values = {name: value.item(row) if isinstance(value, np.ndarray) else value[row]
                      for name, value in columns.items()}  # fmt: skip
            # The database has not numbered the row yet.
            self._keep(values["job"], {"offset": 0, **values})
            ready += self._reads.pop(values["job"], [])
        self._count -= len(ready)
        return ready

    def seconds(self) -> float | None:
        """The time until the next wait may end; None where none does."""
        return None if self._due is None else max(self._due - self._clock(), 0.0)

    def take_due(self) -> list[WaitingRead]:
        """Remove and return the reads whose time is over."""
        now = self._clock()
        return [] if self._due is None or now < self._due else self._take(now)

    def take_all(self) -> list[WaitingRead]:
        """Remove and return all reads."""
        return self._take(float("inf"))

    def _take(self, now: float) -> list[WaitingRead]:
        reads = [read for of_job in self._reads.values() for read in of_job]
        self._reads = {}
        for read in reads:
            if read.due > now:
                self._reads.setdefault(read.read.job, []).append(read)
        taken = [read for read in reads if read.due <= now]
        self._count -= len(taken)
        self._due = min((read.due for read in reads if read.due > now), default=None)
        return taken

    def _keep(self, job: str, row: dict[str, Any]) -> None:
        self._bytes -= self._rows.pop(job, ({}, 0))[1]
        size = len(wire.encode(row))
        self._rows[job] = row, size
        self._bytes += size
        while self._bytes > MAX_BYTES:
            self._bytes -= self._rows.popitem(last=False)[1][1]
