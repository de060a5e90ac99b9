"""The latest final scores."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import numpy as np

from barograph_agent.protocol import wire
from barograph_agent.protocol.tables import TABLES
from barograph_collector.storage.rows import CheckedRows

MAX_READS: Final = 4096
"""Maximum of reads that wait for a final score."""
MAX_SECONDS: Final = 10.0
"""Limit on such a wait."""
MAX_BYTES: Final = 16 * 2**20
"""Limit on the scores in memory, encoded; those that were added last."""
TABLE: Final = "scores"


class FinalScores:
    """Answers agents without the database, when many jobs end at once. Belongs to the receive thread."""

    def __init__(self) -> None:
        self._rows: OrderedDict[str, tuple[dict[str, Any], int]] = OrderedDict()
        self._bytes = 0

    def is_ready(self, read: wire.Read) -> bool:
        """False for a read of the last score of a job, which waits for the final one, that is not in memory."""
        return not _waits(read) or read.job in self._rows

    def answer(self, read: wire.Read) -> wire.Rows | None:
        """The answer to such a read; None where the score is not in memory, and to other reads."""
        if not _waits(read) or read.job not in self._rows:
            return None
        return wire.Rows(read.request, TABLE, 1, self._rows[read.job][0], read.after)

    def add(self, entry: CheckedRows) -> None:
        """Keep the final scores among durable rows."""
        columns = {
            name: wire.spread(entry.columns[name], kind, entry.rows) for name, kind in TABLES[TABLE].columns.items()
        }
        for row in np.flatnonzero(columns["final"]).tolist():
            values = {name: value.item(row) if isinstance(value, np.ndarray) else value[row]
                      for name, value in columns.items()}  # fmt: skip
            # The database has not numbered the row yet.
            self._keep(values["job"], {"offset": 0, **values})

    def _keep(self, job: str, row: dict[str, Any]) -> None:
        self._bytes -= self._rows.pop(job, ({}, 0))[1]
        size = len(wire.encode(row))
        self._rows[job] = row, size
        self._bytes += size
        while self._bytes > MAX_BYTES:
            self._bytes -= self._rows.popitem(last=False)[1][1]


def _waits(read: wire.Read) -> bool:
    return read.tables is None and read.table == TABLE and bool(read.job) and read.after == -1 and read.seconds > 0
