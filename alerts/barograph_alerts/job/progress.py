"""The number of sync points that runs of a problem have, where it does not depend on the scale."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from barograph_agent.protocol.wire import Column

JOBS: Final = 20_000
PROBLEMS: Final = 10_000
SCALES: Final = 64
FEWEST_SCALES: Final = 2
EQUAL: Final = 1.02
"""Counts within this ratio are the same work."""


class Problem(NamedTuple):
    """What an application was asked to do, at any scale."""

    cluster: str
    app: str
    params: str


class ProgressHistory:
    """Sync points of the last run that ended well, by problem and ranks."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[Problem, int]] = OrderedDict()
        self._known: OrderedDict[Problem, OrderedDict[int, int]] = OrderedDict()

    def read_jobs(self, columns: Mapping[str, Column]) -> None:
        """Read rows of `jobs`."""
        names = ("job", "cluster", "app", "params", "ranks")
        for job, cluster, app, params, ranks in zip(*(columns[name] for name in names), strict=True):
            self._open[job] = Problem(cluster, app, params), int(ranks)
            if len(self._open) > JOBS:
                self._open.popitem(last=False)

    def read_runs(self, columns: Mapping[str, Column]) -> None:
        """Read rows of `runs`."""
        names = ("job", "exit_status", "intervals")
        for job, status, intervals in zip(*(columns[name] for name in names), strict=True):
            problem, ranks = self._open.pop(job, (None, 0))
            if problem is None or status != 0 or intervals < 1:
                continue
            scales = self._known.setdefault(problem, OrderedDict())
            scales[ranks] = int(intervals)
            scales.move_to_end(ranks)
            self._known.move_to_end(problem)
            if len(scales) > SCALES:
                scales.popitem(last=False)
            if len(self._known) > PROBLEMS:
                self._known.popitem(last=False)

    def sync_points(self, problem: Problem) -> int:
        """How many a run will have; 0 where not two scales or more agree that it does not depend on the scale."""
        counts = list(self._known.get(problem, OrderedDict()).values())
        if len(counts) < FEWEST_SCALES or max(counts) > EQUAL * min(counts):
            return 0
        return max(counts)
