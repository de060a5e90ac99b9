"""What the time of runs consists of, by application and scale: own work, calls between ranks, and the rest.

The log has these for each node and range of sync points (table `node_blocks`), summed over ranks. Their mean over
the ranks of a run is at most its runtime; what is left is start-up, end, and sync points that were not known of all
ranks.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from barograph_agent.protocol.wire import Column
from barograph_modeler.forecasts.history import WorkloadPlace
from barograph_modeler.forecasts.predictions import JOBS
from barograph_modeler.state import lru
from barograph_modeler.state.stateful import Stateful

PARTS: Final = {
    "own_seconds": "own work",
    "p2p_seconds": "point-to-point calls",
    "wait_seconds": "collectives, with waiting for the slowest rank",
}
"""Columns of `node_blocks`, and the names of the parts."""
MAX_RUNS: Final = 8
"""Newest runs kept per workload."""
MAX_WORKLOADS: Final = 20_000


class RunParts(NamedTuple):
    """A run: its seconds, and the mean over its ranks of the seconds of each part of PARTS."""

    seconds: float
    parts: tuple[float, ...]


class PartsHistory(Stateful):
    """Sums of running jobs, and the parts of the newest healthy runs of each workload."""

    STATE = ("_sums", "_runs")

    def __init__(self) -> None:
        self._sums: OrderedDict[str, tuple[float, ...]] = OrderedDict()
        self._runs: OrderedDict[WorkloadPlace, deque[RunParts]] = OrderedDict()

    def read(self, columns: Mapping[str, Column]) -> None:
        """Add rows of `node_blocks`."""
        jobs, rows = np.unique(np.asarray(columns["job"], dtype=str), return_inverse=True)
        sums = [np.bincount(rows.ravel(), np.asarray(columns[name], dtype=np.float64), jobs.size) for name in PARTS]
        for job, added in zip(jobs.tolist(), np.stack(sums, axis=1).tolist(), strict=True):
            known = self._sums.get(job, (0.0,) * len(PARTS))
            lru.store(self._sums, job, tuple(a + b for a, b in zip(known, added, strict=True)), JOBS)

    def end(self, job: str, place: WorkloadPlace | None, seconds: float | None) -> None:
        """Take a job that has ended. place: of its workload, None if nothing is to be learned. seconds: its runtime."""
        sums = self._sums.pop(job, None)
        if sums is None or place is None or seconds is None:
            return
        parts = tuple(max(one, 0.0) / place.ranks for one in sums)
        if sum(parts) <= seconds and np.isfinite(seconds):
            lru.get(self._runs, place, lambda: deque[RunParts](maxlen=MAX_RUNS), MAX_WORKLOADS).append(
                RunParts(seconds, parts)
            )

    def of(self, known: Sequence[tuple[WorkloadPlace, Any]]) -> dict[WorkloadPlace, list[RunParts]]:
        """Copies of the runs of these workloads."""
        return {place: list(self._runs[place]) for place, _ in known if place in self._runs}
