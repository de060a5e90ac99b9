"""The number of sync points of runs: of a workload, and of a problem if it does not depend on the scale."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from barograph_agent.protocol.wire import Column
from barograph_modeler.pace.length import EQUAL, Length
from barograph_modeler.state import lru

JOBS: Final = 20_000
PROBLEMS: Final = 10_000
SCALES: Final = 64
FEWEST_SCALES: Final = 2
WORKLOADS: Final = 20_000
RUNS: Final = 8
"""Runs of a workload whose sync points are kept."""


class Problem(NamedTuple):
    """An application and its parameters on a cluster, at any scale."""

    cluster: str
    app: str
    params: str


class ProgressHistory:
    """Sync points of the last successful run, by problem and ranks."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[str, Problem, int]] = OrderedDict()
        self._groups: OrderedDict[str, str] = OrderedDict()
        self._usual: OrderedDict[str, deque[int]] = OrderedDict()
        self._known: OrderedDict[Problem, OrderedDict[int, int]] = OrderedDict()

    def read_jobs(self, columns: Mapping[str, Column]) -> None:
        """Read rows of `jobs`."""
        names = ("job", "workload", "cluster", "app", "params", "ranks")
        for job, workload, cluster, app, params, ranks in zip(*(columns[name] for name in names), strict=True):
            lru.store(self._open, job, (workload, Problem(cluster, app, params), int(ranks)), JOBS)

    def assign(self, job: str, workload: str) -> None:
        """Set the group of like work of a job that has not ended."""
        lru.store(self._groups, job, workload, JOBS)

    def end(self, job: str, exit_status: int, intervals: int) -> None:
        """Add a run that has ended."""
        family, problem, ranks = self._open.pop(job, ("", None, 0))
        workload = self._groups.pop(job, family)
        if problem is None or exit_status != 0:
            return
        lru.get(self._usual, workload, lambda: deque(maxlen=RUNS), WORKLOADS).append(intervals)
        if intervals < 1:
            return
        scales: OrderedDict[int, int] = lru.get(self._known, problem, OrderedDict, PROBLEMS)
        lru.store(scales, ranks, intervals, SCALES)

    def length(self, workload: str) -> Length | None:
        """The usual number of sync points of runs of a workload; None without any."""
        return Length.of_runs(usual) if (usual := self._usual.get(workload)) else None

    def sync_points(self, problem: Problem) -> int:
        """Sync points of a run; 0 unless FEWEST_SCALES scales are known and all agree."""
        counts = list(self._known.get(problem, OrderedDict()).values())
        if len(counts) < FEWEST_SCALES or max(counts) > EQUAL * min(counts):
            return 0
        return max(counts)
