"""Changes at the time of an onset: new nodes, neighbouring jobs, changes of level of other workloads.

Coincidences are not causes, but what an operator would check first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barograph_modeler.state import lru

WORKLOADS: Final = 10_000
HOSTS: Final = 4_096
"""Nodes kept per workload; the least recently used are evicted."""
CHANGES: Final = 1_000
"""Changes of level kept, over all workloads."""
FEWEST_RUNS: Final = 3
"""Fewest earlier runs for a node to count as new."""
BEFORE_SECONDS: Final = 30.0
AFTER_SECONDS: Final = 2.0
"""A neighbour coincides if it began within these times before or after the onset, which is known to two windows."""
NAMES: Final = 3


class Coincidence(NamedTuple):
    """One change: words to follow "coincides with", and figures."""

    text: str
    numbers: Mapping[str, float]


class Neighbour(NamedTuple):
    """Another running job, its nodes, and its start in Unix seconds."""

    job: str
    hosts: frozenset[str]
    started_at: float


class WorkloadPast:
    """Earlier runs of one workload."""

    __slots__ = ("ended_at", "hosts", "runs")

    def __init__(self) -> None:
        self.runs = 0
        self.ended_at = 0.0
        self.hosts: OrderedDict[str, None] = OrderedDict()


class Coincidences:
    """Nodes of earlier runs by workload, and changes of level, to find coincidences."""

    def __init__(self) -> None:
        self._pasts: OrderedDict[str, WorkloadPast] = OrderedDict()
        self._changes: deque[tuple[str, float]] = deque(maxlen=CHANGES)

    def ended(self, workload: str, hosts: Sequence[str], at: float) -> None:
        """Record an ended run. hosts: its nodes, empty if unknown. at: Unix seconds."""
        past = lru.get(self._pasts, workload, WorkloadPast, WORKLOADS)
        past.ended_at = max(past.ended_at, at)
        past.runs += bool(hosts)
        for name in hosts:
            lru.store(past.hosts, name, None, HOSTS)

    def changed(self, workload: str, at: float) -> None:
        """Record a regime of the workload closed by the modeler. at: Unix seconds."""
        self._changes.append((workload, at))

    def find(
        self, workload: str, hosts: Iterable[str], blamed: Iterable[str], onset_at: float, near: Iterable[Neighbour]
    ) -> list[Coincidence]:
        """What coincides with an onset, the most specific first.

        hosts: nodes of the job. blamed: stragglers among them; if there are any, only they are considered. near: other
        running jobs.
        """
        watched = frozenset(blamed) & frozenset(hosts) or frozenset(hosts)
        return [*_began(watched, onset_at, near), *self._new(workload, watched), *self._since(workload, onset_at)]

    def _new(self, workload: str, hosts: frozenset[str]) -> list[Coincidence]:
        past = self._pasts.get(workload)
        if past is None or past.runs < FEWEST_RUNS:
            return []
        new = sorted(hosts - past.hosts.keys())
        if not new:
            return []
        text = f"first run on {_listed(new)} ({past.runs} runs before)"
        return [Coincidence(text, {"new_nodes": len(new), "earlier_runs": past.runs})]

    def _since(self, workload: str, onset_at: float) -> list[Coincidence]:
        past = self._pasts.get(workload)
        if past is None:
            return []
        changed = {name for name, at in self._changes if past.ended_at < at <= onset_at and name != workload}
        if not changed:
            return []
        plural = "s" * (len(changed) > 1)
        text = f"first run since {len(changed)} other workload{plural} changed level"
        return [Coincidence(text, {"changed_workloads": len(changed)})]


def _began(hosts: frozenset[str], onset_at: float, near: Iterable[Neighbour]) -> list[Coincidence]:
    found = [one for one in near if one.hosts & hosts and -AFTER_SECONDS <= onset_at - one.started_at <= BEFORE_SECONDS]
    if not found:
        return []
    first = min(found, key=lambda one: abs(onset_at - one.started_at))
    text = f"start of {first.job} on {_listed(sorted(first.hosts & hosts))}"
    return [Coincidence(text, {"neighbours": len(found), "neighbour_before_onset": onset_at - first.started_at})]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(names[:NAMES]) + more
