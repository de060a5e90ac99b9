"""The number of sync points of a problem's runs, if it does not depend on the scale."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from barograph_agent.protocol.wire import Column
from barograph_modeler.state import lru

JOBS: Final = 20_000
PROBLEMS: Final = 10_000
SCALES: Final = 64
FEWEST_SCALES: Final = 2
EQUAL: Final = 1.02
"""Counts within this ratio count as equal."""


class Problem(NamedTuple):
    """An application and its parameters on a cluster, at any scale."""

    cluster: str
    app: str
    params: str


class ProgressHistory:
    """Sync points of the last successful run, by problem and ranks."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[Problem, int]] = OrderedDict()
        self._known: OrderedDict[Problem, OrderedDict[int, int]] = OrderedDict()

    def read_jobs(self, columns: Mapping[str, Column]) -> None:
        """Read rows of `jobs`."""
        names = ("job", "cluster", "app", "params", "ranks")
        for job, cluster, app, params, ranks in zip(*(columns[name] for name in names), strict=True):
            lru.store(self._open, job, (Problem(cluster, app, params), int(ranks)), JOBS)

    def read_runs(self, columns: Mapping[str, Column]) -> None:
        """Read rows of `runs`."""
        names = ("job", "exit_status", "intervals")
        for job, status, intervals in zip(*(columns[name] for name in names), strict=True):
            problem, ranks = self._open.pop(job, (None, 0))
            if problem is None or status != 0 or intervals < 1:
                continue
            scales: OrderedDict[int, int] = lru.get(self._known, problem, OrderedDict, PROBLEMS)
            lru.store(scales, ranks, int(intervals), SCALES)

    def sync_points(self, problem: Problem) -> int:
        """Sync points of a run; 0 unless FEWEST_SCALES scales are known and all agree."""
        counts = list(self._known.get(problem, OrderedDict()).values())
        if len(counts) < FEWEST_SCALES or max(counts) > EQUAL * min(counts):
            return 0
        return max(counts)
