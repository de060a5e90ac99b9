"""A trace as a ring: the properties and records that the agent reads at any time of the run."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from barograph_agent.ring.reader import NAMED, RECORD
from barograph_lab.replay.trace import Trace


class TraceRing:
    """Rank 0's ring at a time of the run: the attributes of a `Ring` that an `IntervalReader` uses."""

    def __init__(self, trace: Trace) -> None:
        self.path: Path = trace.file
        self.started_ns = 0
        self.started_unix_ns = trace.started_unix_ns
        self.size = trace.size
        self.dropped = 0
        self.tail = 0
        self.head = 0
        self.iterations = SimpleNamespace(at=0, capacity=0, head=0, tail=0, dropped=0)
        self._names = trace.names
        rank = trace.ranks[0]
        kept = rank.synchronizing
        records = np.zeros(int(kept.sum()), RECORD)
        records["enter_ns"] = np.maximum(rank.enter[kept], 0)
        records["exit_ns"] = np.maximum(rank.exit[kept], 0)
        records["site"] = trace.path[kept] + 1
        records["op"] = rank.operation[kept]
        records["index"] = np.arange(records.size)
        self._records = records
        self._file = os.memfd_create("trace")  # where C reads them
        weakref.finalize(self, os.close, self._file)
        with open(self._file, "wb", closefd=False) as file:
            file.write(records.tobytes())
        # The first interval begins with MPI_Init, which is no sync point.
        if records.size:
            self.started_ns = int(rank.exit[0]) if not kept[0] else int(records["enter_ns"][0])

    @property
    def place(self) -> tuple[int, ...]:
        """The file, which begins with the records and has no header."""
        return 0, 0, 1 << self._records.size.bit_length(), self.started_ns, 0, 0, 0, self._file

    @property
    def ended(self) -> bool:
        """True once all records are visible."""
        return self.head == self._records.size

    @property
    def last_seconds(self) -> float:
        """End of the last collective, in seconds since the start of the run."""
        return float(self._records["exit_ns"][-1]) * 1e-9 if self._records.size else 0.0

    def advance(self, seconds: float) -> None:
        """Make the records visible that had ended by then."""
        self.head = int(np.searchsorted(self._records["exit_ns"], int(seconds * 1e9), side="right"))

    def site(self, index: int) -> str:
        """Call path `index`; "start" for 0, the start of the run."""
        return "start" if index == 0 else self._names[index - 1]

    def frames(self, index: int) -> list[tuple[str, int]]:
        """The call path as one frame, which is already named."""
        return [(self.site(index), NAMED)]
