"""What the time of runs consists of, by workload: rows of `phases` of all nodes, joined with the end of the job.

Nodes report when their part of a run has ended, in any order, before or after the verdict on the job.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barograph_agent.protocol.wire import Column
from barograph_modeler.forecasts.history import WorkloadPlace
from barograph_modeler.forecasts.parts.node_rows import JobPhases, node_phases
from barograph_modeler.forecasts.parts.phased_run import PhasedRun
from barograph_modeler.state import lru
from barograph_modeler.state.stateful import Stateful

MAX_RUNS: Final = 4
"""Newest runs kept per workload."""
MAX_WORKLOADS: Final = 2_000
MAX_OPEN: Final = 200
"""Jobs that have rows and no end yet, or an end and not all rows."""


class PartsHistory(Stateful):
    """Rows of jobs that are not complete, and the phases of the newest healthy runs of each workload."""

    STATE = ("_rows", "_ended", "_runs")

    def __init__(self) -> None:
        self._rows: OrderedDict[str, JobPhases] = OrderedDict()
        self._ended: OrderedDict[str, tuple[WorkloadPlace, float]] = OrderedDict()
        self._runs: OrderedDict[WorkloadPlace, deque[PhasedRun]] = OrderedDict()

    def read(self, columns: Mapping[str, Column]) -> set[WorkloadPlace]:
        """Add rows of `phases`. Returns the workloads of ended jobs that were completed by them."""
        late = set()
        for job, row in node_phases(columns):
            lru.get(self._rows, job, JobPhases, MAX_OPEN).add(row)
            if job in self._ended:
                late.add(job)
        return {place for job in late if (place := self._learn(job)) is not None}

    def end(self, job: str, place: WorkloadPlace | None, seconds: float) -> None:
        """Take a job that has ended. place: of its workload, None if nothing is to be learned. seconds: its runtime."""
        if place is None:
            self._rows.pop(job, None)
            return
        lru.store(self._ended, job, (place, seconds), MAX_OPEN)
        self._learn(job)

    def of(self, known: Sequence[tuple[WorkloadPlace, Any]]) -> dict[WorkloadPlace, list[PhasedRun]]:
        """Copies of the runs of these workloads."""
        return {place: self.runs(place) for place, _ in known if place in self._runs}

    def runs(self, place: WorkloadPlace) -> list[PhasedRun]:
        """A copy of the runs of a workload; empty if it has none."""
        return list(self._runs.get(place, ()))

    def _learn(self, job: str) -> WorkloadPlace | None:
        """Learn a job of which everything is known, and return its workload; None if something is missing."""
        place, seconds = self._ended[job]
        rows = self._rows.get(job)
        if rows is None or (run := rows.run(place.ranks, seconds)) is None:
            return None
        lru.get(self._runs, place, lambda: deque[PhasedRun](maxlen=MAX_RUNS), MAX_WORKLOADS).append(run)
        del self._rows[job], self._ended[job]
        return place
