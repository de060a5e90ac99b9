"""Rows of `phases` of the nodes of a job, summed as they arrive: memory does not depend on the number of nodes."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec
import numpy as np

from barograph_agent.protocol.wire import Column
from barograph_agent.reduce.phases import BINS, deviation_bins
from barograph_modeler.forecasts.parts.maximum import Deviations, last_of_nodes
from barograph_modeler.forecasts.parts.measurement import PhaseMeasurement
from barograph_modeler.forecasts.parts.phased_run import PhasedRun
from barograph_modeler.maxima.sample import Floats

MAX_WORLDS: Final = 4
MAX_CLASSES: Final = 32
"""Worlds kept of a job, and classes kept of a world: the first."""
MIN_WORK: Final = 1e-9
"""Seconds: less own work counts as this."""
MAX_DEVIATION: Final = 1e6
MAX_VALUES: Final = 200
"""Values that are read of a distribution."""

_NUMBERS: Final = msgspec.json.Decoder(list[float])


class NodePhase(NamedTuple):
    """A row of `phases`; all times are sums in seconds."""

    host: str
    world: int
    ranks: int
    class_id: int
    intervals: int
    own_seconds: float
    slowest_seconds: float
    exchange_seconds: float
    least_wait_seconds: float
    rank_deviation_seconds: float
    deviations: str
    shares: str


def node_phases(columns: Mapping[str, Column]) -> list[tuple[str, NodePhase]]:
    """Rows of `phases` with their jobs."""
    names = ("count" if name == "intervals" else name for name in NodePhase._fields)
    values = zip(*(np.asarray(columns[name]).tolist() for name in names), strict=True)
    return [(job, NodePhase(*row)) for job, row in zip(columns["job"], values, strict=True)]


class JobPhases:
    """All rows of one job."""

    def __init__(self) -> None:
        self._worlds: dict[int, _World] = {}

    def add(self, row: NodePhase) -> None:
        """Add a row."""
        if row.world in self._worlds or len(self._worlds) < MAX_WORLDS:
            self._worlds.setdefault(row.world, _World()).add(row)

    def run(self, ranks: int, seconds: float) -> PhasedRun | None:
        """The run. ranks, seconds: of the job.

        None where nodes are missing, or rows contradict the runtime. Of several worlds that with most time counts.
        """
        found = [one.run(ranks, seconds) for one in self._worlds.values() if one.ranks == ranks]
        return max((run for run in found if run is not None), key=lambda run: run.measured_seconds, default=None)


class _World:
    def __init__(self) -> None:
        self._hosts: dict[str, int] = {}
        self._classes: dict[int, _Class] = {}

    @property
    def ranks(self) -> int:
        """Ranks on the nodes that have reported."""
        return sum(self._hosts.values())

    def add(self, row: NodePhase) -> None:
        self._hosts[row.host] = row.ranks
        if row.class_id in self._classes or len(self._classes) < MAX_CLASSES:
            self._classes.setdefault(row.class_id, _Class()).add(row)

    def run(self, ranks: int, seconds: float) -> PhasedRun | None:
        # Classes that a node has not reported had little time there: they are part of the rest.
        phases = {class_id: one.measurement() for class_id, one in self._classes.items() if one.ranks == ranks}
        return PhasedRun.of(ranks, len(self._hosts), seconds, phases)


class _Class:
    """Sums over nodes of one class, and what was largest on any of them."""

    def __init__(self) -> None:
        self.ranks = 0
        self._nodes = 0
        self._count = math.inf
        self._ranks_intervals = 0.0
        self._own = 0.0
        self._mean = self._squares = 0.0
        """Mean of the nodes' own work per interval, and the sum of squares about it (Welford)."""
        self._rank_squares = self._freedom = 0.0
        self._slowest = self._latest = 0.0
        self._arrivals = array("d")
        """Of the last rank of each node, seconds after the previous sync point, mean over intervals."""
        self._least_wait = 0.0
        """Of the node whose ranks arrive last."""
        self._weights: Floats = np.zeros(BINS)
        self._weighted: Floats = np.zeros(BINS)

    def add(self, row: NodePhase) -> None:
        self.ranks += row.ranks
        self._nodes += 1
        self._count = min(self._count, row.intervals)
        each = row.intervals * row.ranks
        self._ranks_intervals += each
        mean = max(row.own_seconds / each, MIN_WORK)
        self._own += mean * each
        apart = mean - self._mean
        self._mean += apart / self._nodes
        self._squares += apart * (mean - self._mean)
        if row.ranks > 1 and math.isfinite(row.rank_deviation_seconds):
            self._rank_squares += (row.ranks - 1) * row.rank_deviation_seconds**2
            self._freedom += row.ranks - 1
        self._slowest = max(self._slowest, row.slowest_seconds / row.intervals, MIN_WORK)
        arrival = max(row.slowest_seconds + row.exchange_seconds, 0.0) / row.intervals
        if not self._arrivals or arrival > self._latest:
            self._latest, self._least_wait = arrival, row.least_wait_seconds / row.intervals
        self._arrivals.append(arrival)
        self._add_distribution(row, mean)

    def _add_distribution(self, row: NodePhase, mean: float) -> None:
        values, shares = (np.array(_numbers(text)[:MAX_VALUES]) for text in (row.deviations, row.shares))
        if values.size != shares.size or not values.size or (shares < 0).any() or not 0 < shares.sum() < math.inf:
            return
        deviations = np.clip(values, -MAX_DEVIATION, MAX_DEVIATION)
        bins = deviation_bins(deviations)
        weights = row.ranks * shares / shares.sum()
        self._weights += np.bincount(bins, weights, BINS)
        self._weighted += np.bincount(bins, weights * deviations * mean, BINS)

    def measurement(self) -> PhaseMeasurement:
        """The class over all nodes."""
        own = self._own / self._ranks_intervals
        filled = self._weights > 0
        deviations, shares = np.zeros(1), np.ones(1)
        if filled.any():
            shares = self._weights[filled] / self._weights[filled].sum()
            deviations = self._weighted[filled] / self._weights[filled] / own
            order = np.argsort(deviations, kind="stable")
            deviations, shares = deviations[order], shares[order]
        scatter = float(shares @ deviations**2) / self._count
        within = between = math.nan
        if self._freedom:
            within = math.sqrt(max(self._rank_squares / self._freedom / own**2 - scatter, 0.0))
        if self._nodes > 1:
            # The means of nodes have the differences and the scatter of their ranks.
            inside = ((0.0 if math.isnan(within) else within**2) + scatter) * self._nodes / self.ranks
            between = math.sqrt(max(self._squares / (self._nodes - 1) / own**2 - inside, 0.0))
        # The last node of single intervals is now one, now another: what it is later than the last on average is
        # waiting, and no time of the collective.
        later = own * last_of_nodes(
            Deviations(deviations, shares), self.ranks / self._nodes, np.array(self._arrivals) / own
        )
        later = min(later, self._least_wait)
        return PhaseMeasurement(
            count=float(self._count),
            own=own,
            between=between,
            within=within,
            deviations=deviations,
            shares=shares,
            slowest=self._slowest + later,
            exchange=max(self._latest - self._slowest, 0.0),
            collective=self._least_wait - later,
        )


def _numbers(text: str) -> list[float]:
    try:
        return [one for one in _NUMBERS.decode(text) if math.isfinite(one)]
    except msgspec.MsgspecError:
        return []
