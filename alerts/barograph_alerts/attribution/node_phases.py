"""Which node of an ended job had the most own work, and by how much: from rows of `phases`.

Nodes report when their part of a run has ended, in any order. A job is compared once no further row has arrived for
SETTLED_SECONDS.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from statistics import median
from typing import Final, NamedTuple

import numpy as np

from barograph_agent.protocol.wire import Column
from barograph_alerts.places import NodeRanks, PlaceWork, over_median_of_others
from barograph_modeler.maxima.ratio import log_ratio
from barograph_modeler.state import lru

MAX_JOBS: Final = 1_000
"""Jobs whose rows are kept until they are compared."""
MAX_ROWS: Final = 200_000
"""Rows kept of one job."""
SETTLED_SECONDS: Final = 5.0
MIN_SECONDS: Final = 5.0
"""Own work of a rank below which a job shows nothing of its nodes."""
MIN_SHARE: Final = 0.8
"""Share of that time which classes known of all nodes must have."""


class NodeComparison(NamedTuple):
    """The nodes of a job. excess: of own work over the median of the nodes, as logarithms, by node.

    The node of rank 0 is not among them. places: the work of all nodes by place, None where ranks or work of one are
    not known.
    """

    job: str
    excess: Mapping[str, float]
    places: PlaceWork | None = None


class NodePhases:
    """Rows of `phases` and `nodes` of jobs that have not been compared yet."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, _Job] = OrderedDict()

    @property
    def waiting(self) -> bool:
        """Whether jobs wait to be compared."""
        return bool(self._jobs)

    def read_phases(self, columns: Mapping[str, Column]) -> None:
        """Add rows of `phases`."""
        names = ("job", "host", "class_id", "world", "ranks", "count", "own_seconds")
        most = columns.get("busiest_seconds", [math.nan] * len(columns["job"]))
        for name, host, class_id, world, ranks, count, own, busiest in zip(
            *(columns[one] for one in names), most, strict=True
        ):
            job = lru.get(self._jobs, str(name), _Job, MAX_JOBS)
            mean = float(own) / (int(count) * int(ranks))
            own_most = mean if int(ranks) == 1 else float(busiest) / int(count)
            job.add((int(world), int(class_id)), str(host), _Own(int(count), mean, own_most))

    def read_nodes(self, columns: Mapping[str, Column]) -> None:
        """Take from rows of `nodes` which node had rank 0."""
        unknown = [-1] * len(columns["job"])
        texts, numbers = ("job", "host"), ("first", "number", "lowest", "ranks", "world")
        for name, host, first, number, lowest, ranks, size in zip(
            *(columns[one] for one in texts), *(columns.get(one, unknown) for one in numbers), strict=True
        ):
            if (job := self._jobs.get(str(name))) is None:
                continue
            if first:
                job.first = str(host)
            job.ranks.setdefault(int(number), NodeRanks()).add(str(host), int(lowest), int(ranks), int(size))

    def take(self, now: float, is_watched: Callable[[str], bool] = lambda name: False) -> list[NodeComparison]:
        """Compare the nodes of jobs that are complete. now: seconds of a clock that does not jump far.

        is_watched: whether the verdict of a job, which may name nodes, is to come: it is left for later.
        """
        found = []
        for name, job in list(self._jobs.items()):
            if job.is_settled(now) and not is_watched(name):
                del self._jobs[name]
                if excess := job.excess():
                    found.append(NodeComparison(name, excess, job.places()))
        return found


class _Own(NamedTuple):
    """Own work per interval, seconds: the mean of a node's ranks, and its rank with most, NaN if unknown."""

    intervals: int
    mean: float
    most: float


class _Job:
    def __init__(self) -> None:
        self.first = ""
        """The node of rank 0, which often does work that no other rank has."""
        self.ranks: dict[int, NodeRanks] = {}
        """By world."""
        self._own: dict[tuple[int, int], dict[str, _Own]] = {}
        self._rows = 0
        self._seen, self._at = -1, math.inf

    def add(self, key: tuple[int, int], host: str, own: _Own) -> None:
        """Add a class of intervals on one node."""
        if self._rows < MAX_ROWS:
            self._own.setdefault(key, {})[host] = own
            self._rows += 1

    def is_settled(self, now: float) -> bool:
        """Whether no row has been added for SETTLED_SECONDS before `now`, as far as this was called meanwhile."""
        if self._rows != self._seen or now < self._at:
            self._seen, self._at = self._rows, now
        return now - self._at >= SETTLED_SECONDS

    def excess(self) -> dict[str, float]:
        """Logarithms of own work over the median of the nodes, without that of rank 0; empty if not comparable."""
        hosts = {host for nodes in self._own.values() for host in nodes} - {self.first}
        if len(hosts) < 2:
            return {}
        total = shared = 0.0
        sums = dict.fromkeys(hosts, 0.0)
        for nodes in self._own.values():
            usual = median(own.mean for own in nodes.values())
            seconds = usual * median(own.intervals for own in nodes.values())
            if not usual > 0:
                continue
            total += seconds
            if all(host in nodes and nodes[host].mean > 0 for host in hosts):
                shared += seconds
                among = median(nodes[host].mean for host in hosts)
                for host in hosts:
                    sums[host] += seconds * log_ratio(nodes[host].mean, among)
        if shared < max(MIN_SECONDS, MIN_SHARE * total):
            return {}
        return {host: one / shared for host, one in sums.items()}

    def places(self) -> PlaceWork | None:
        """The work by place in the first world of which enough is known of all of its nodes."""
        for number, ranks in sorted(self.ranks.items()):
            hosts = ranks.places()
            classes, total = {}, 0.0
            for (world, class_id), nodes in self._own.items():
                if world != number:
                    continue
                own = np.array([nodes[host].most if host in nodes else math.nan for host in hosts])
                seconds = median(one.mean for one in nodes.values()) * median(one.intervals for one in nodes.values())
                total += max(seconds, 0.0)
                if len(hosts) > 1 and (own > 0).all():
                    classes[class_id] = seconds, over_median_of_others(np.log(own))
            known = math.fsum(seconds for seconds, _ in classes.values())
            if classes and known >= max(MIN_SECONDS, MIN_SHARE * total):
                return PlaceWork(hosts, classes)
        return None
