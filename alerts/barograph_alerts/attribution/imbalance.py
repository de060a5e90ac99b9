"""How unevenly healthy runs of a workload divide their work between nodes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from barograph_alerts.attribution.node_phases import NodeComparison
from barograph_alerts.places import PlaceHistory, PlaceLevels
from barograph_modeler.state import lru

MAX_JOBS: Final = 10_000
"""Jobs whose verdict or whose comparison of nodes is waited for."""
MAX_VALUES: Final = 2**21
"""Numbers kept about the places of all workloads."""


class _Verdict(NamedTuple):
    workload: str
    is_healthy: bool


class Imbalances:
    """The excess of each place among the nodes in healthy runs, by workload.

    A run counts once its nodes have been compared and its verdict is healthy, in whatever order.
    """

    def __init__(self) -> None:
        self._compared: OrderedDict[str, NodeComparison] = OrderedDict()
        self._verdicts: OrderedDict[str, _Verdict] = OrderedDict()
        self._places: OrderedDict[str, PlaceHistory] = OrderedDict()
        self._values = 0
        """Sum of the sizes of all of `_places`."""

    def add(self, compared: NodeComparison) -> PlaceLevels | None:
        """Add the nodes of an ended job; their excess over what earlier runs gave to their places, if that is known."""
        verdict = self._verdicts.get(compared.job)
        usual = self.places_of(verdict.workload) if verdict is not None else None
        beyond = usual.beyond(compared.places) if usual is not None and compared.places is not None else None
        lru.store(self._compared, compared.job, compared, MAX_JOBS)
        self._join(compared.job)
        return beyond

    def add_verdict(self, job: str, workload: str, *, is_healthy: bool) -> None:
        """Add that a job has ended."""
        lru.store(self._verdicts, job, _Verdict(workload, is_healthy), MAX_JOBS)
        self._join(job)

    def program_of(self, job: str) -> str:
        """The name of the program of an ended job, of any size and input; empty if it is not known."""
        verdict = self._verdicts.get(job)
        return verdict.workload.partition("@")[0] if verdict is not None else ""

    def places_of(self, workload: str) -> PlaceHistory | None:
        """What its healthy runs gave to each place; None without one."""
        return self._places.get(workload)

    def _join(self, job: str) -> None:
        if job not in self._compared or job not in self._verdicts:
            return
        verdict, compared = self._verdicts.pop(job), self._compared.pop(job)
        work = compared.places
        if not verdict.is_healthy or work is None:
            return
        history = self._places.pop(verdict.workload, None)
        self._values -= history.size if history is not None else 0
        if history is None or history.places != len(work.hosts):
            history = PlaceHistory(len(work.hosts))
        history.add(work)
        self._places[verdict.workload] = history
        self._values += history.size
        while self._values > MAX_VALUES and len(self._places) > 1:
            self._values -= self._places.popitem(last=False)[1].size
