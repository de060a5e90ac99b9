"""How unevenly healthy runs of a workload divide their work between nodes."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from barograph_modeler.state import lru

MAX_RUNS: Final = 16
"""Latest healthy runs of a workload that count."""
MAX_WORKLOADS: Final = 10_000
MAX_JOBS: Final = 10_000
"""Jobs whose verdict or whose comparison of nodes is waited for."""


class Imbalances:
    """The largest excess of any node in healthy runs, by workload: logarithms over the median of the nodes.

    A run counts once its nodes have been compared and its verdict is healthy, in whatever order.
    """

    def __init__(self) -> None:
        self._excesses: OrderedDict[str, float] = OrderedDict()
        self._workloads: OrderedDict[str, str] = OrderedDict()
        self._runs: OrderedDict[str, deque[float]] = OrderedDict()

    def add_excess(self, job: str, excess: float) -> None:
        """Add the largest excess of an ended job."""
        lru.store(self._excesses, job, excess, MAX_JOBS)
        self._join(job)

    def add_healthy(self, job: str, workload: str) -> None:
        """Add a job that has ended healthy."""
        lru.store(self._workloads, job, workload, MAX_JOBS)
        self._join(job)

    def of(self, workload: str) -> tuple[float, ...]:
        """The largest excess of each known run of a workload."""
        return tuple(self._runs.get(workload, ()))

    def _join(self, job: str) -> None:
        if job in self._excesses and job in self._workloads:
            runs = lru.get(self._runs, self._workloads.pop(job), lambda: deque(maxlen=MAX_RUNS), MAX_WORKLOADS)
            runs.append(self._excesses.pop(job))
