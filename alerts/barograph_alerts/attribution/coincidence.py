"""Changes at the time of an onset: new nodes, and neighbouring jobs.

Coincidences are not causes, but what an operator would check first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barograph_modeler.state import lru

WORKLOADS: Final = 10_000
MAX_RUNS: Final = 32  # latest ones of a workload, of which the nodes are kept
MIN_RUNS: Final = 3
"""Least number of earlier runs for a node to count as new."""
BEFORE_SECONDS: Final = 30.0
AFTER_SECONDS: Final = 2.0
"""A neighbour coincides if it began within these times before or after the onset, which is known to two windows."""
MAX_SPANS: Final = 4_096  # spans of BEFORE_SECONDS whose starts of jobs are kept
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


class Coincidences:
    """Nodes of earlier runs by workload, and starts of jobs, to find coincidences."""

    def __init__(self) -> None:
        self._pasts: OrderedDict[str, deque[frozenset[str]]] = OrderedDict()
        self._starts: OrderedDict[int, list[tuple[float, str]]] = OrderedDict()

    def began(self, job: str, started_at: float) -> None:
        """Record the start of a job, Unix seconds."""
        lru.get(self._starts, int(started_at // BEFORE_SECONDS), list, MAX_SPANS).append((started_at, job))

    def near(self, onset_at: float) -> list[tuple[float, str]]:
        """Starts and names of the jobs that began at about the time of an onset, as far as they are known."""
        first, last = onset_at - BEFORE_SECONDS, onset_at + AFTER_SECONDS
        spans = range(int(first // BEFORE_SECONDS), int(last // BEFORE_SECONDS) + 1)
        return [one for span in spans for one in self._starts.get(span, ()) if first <= one[0] <= last]

    def ended(self, workload: str, hosts: Sequence[str]) -> None:
        """Record an ended run. hosts: its nodes, empty if unknown."""
        if hosts:
            lru.get(self._pasts, workload, lambda: deque(maxlen=MAX_RUNS), WORKLOADS).append(frozenset(hosts))

    def find(
        self, workload: str, hosts: Iterable[str], blamed: Iterable[str], onset_at: float, near: Iterable[Neighbour]
    ) -> list[Coincidence]:
        """What coincides with an onset, the most specific first.

        hosts: nodes of the job. blamed: stragglers among them; if there are any, only they are considered. near: other
        running jobs that began at about that time.
        """
        watched = frozenset(blamed) & frozenset(hosts) or frozenset(hosts)
        return [*_began(watched, onset_at, near), *self._new(workload, watched)]

    def _new(self, workload: str, hosts: frozenset[str]) -> list[Coincidence]:
        past = self._pasts.get(workload, deque())
        if len(past) < MIN_RUNS or not (new := sorted(hosts.difference(*past))):
            return []
        text = f"first run on {_listed(new)} ({len(past)} runs before)"
        return [Coincidence(text, {"new_nodes": len(new), "earlier_runs": len(past)})]


def _began(hosts: frozenset[str], onset_at: float, near: Iterable[Neighbour]) -> list[Coincidence]:
    found = [one for one in near if one.hosts & hosts]
    if not found:
        return []
    first = min(found, key=lambda one: abs(onset_at - one.started_at))
    text = f"start of {first.job} on {_listed(sorted(first.hosts & hosts))}"
    return [Coincidence(text, {"neighbours": len(found), "neighbour_before_onset": onset_at - first.started_at})]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(names[:NAMES]) + more
