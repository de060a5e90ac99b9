"""What changed about the time a job became slow: a new node, a neighbour, a change of level elsewhere.

These are not causes, but what an operator would check first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

WORKLOADS: Final = 10_000
HOSTS: Final = 4_096
"""NodeRanking remembered of one workload; those not used for the longest go first."""
CHANGES: Final = 1_000
"""Changes of level remembered, over all workloads."""
FEWEST_RUNS: Final = 3
"""Below so many earlier runs every node is new."""
BEFORE_SECONDS: Final = 30.0
AFTER_SECONDS: Final = 2.0
"""A neighbour that began so long before the onset coincides with it; an onset is known to two windows."""
NAMES: Final = 3


class Coincidence(NamedTuple):
    """One change, in words that follow "coincides with", and its figures."""

    text: str
    numbers: Mapping[str, float]


class Neighbour(NamedTuple):
    """Another running job: its nodes, and when it began in Unix seconds."""

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
    """Where workloads ran before, and which changed their level when."""

    def __init__(self) -> None:
        self._pasts: OrderedDict[str, WorkloadPast] = OrderedDict()
        self._changes: deque[tuple[str, float]] = deque(maxlen=CHANGES)

    def ended(self, workload: str, hosts: Iterable[str], at: float) -> None:
        """A run of the workload is over. hosts: its nodes, may be empty where nobody told; at: Unix seconds."""
        past = self._pasts.setdefault(workload, WorkloadPast())
        self._pasts.move_to_end(workload)
        past.ended_at = max(past.ended_at, at)
        names = list(hosts)
        past.runs += bool(names)
        for name in names:
            past.hosts[name] = None
            past.hosts.move_to_end(name)
        while len(past.hosts) > HOSTS:
            past.hosts.popitem(last=False)
        if len(self._pasts) > WORKLOADS:
            self._pasts.popitem(last=False)

    def changed(self, workload: str, at: float) -> None:
        """The modeler closed a regime of the workload. at: Unix seconds."""
        self._changes.append((workload, at))

    def coincidences(
        self, workload: str, hosts: Iterable[str], blamed: Iterable[str], onset_at: float, near: Iterable[Neighbour]
    ) -> list[Coincidence]:
        """What coincides with an onset, the most telling first.

        hosts: nodes of the job; blamed: those that hold it up, none where nobody or everybody does. Where somebody does
        only they are looked at. near: other running jobs.
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
