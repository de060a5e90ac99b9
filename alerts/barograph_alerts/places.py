"""How a program divides its work between its nodes: what healthy runs of a workload gave to each place among them.

The places of a job are its nodes in the order of their lowest ranks. Runs are on other nodes each time, so what a place
has in all of them is the program's, and what a node has beyond it is the node's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.runtime import PRIOR_RUNS

Unit: TypeAlias = Literal["sync point", "iteration"]
"""What the nodes of a span have in common. Times per unit compare with those of the same unit only."""
PRIOR_EXCESS: Final = 0.015
"""The prior of the spread of a node's excess between runs: half of PRIOR_SPREAD, that of their runtimes."""
MAX_COUNTED: Final = 16
"""Nodes of a run that count as independent values of that spread: what a run divides otherwise, it does on several."""
MAX_FREEDOM: Final = 20
"""However many runs are known, nodes and runs differ with heavier tails than a normal distribution has."""
MAX_RUNS: Final = 32
"""Older runs weigh less."""
MAX_NODES: Final = 20_000
"""Nodes of a world that are known."""
CLIP: Final = 4.0
"""Spreads that a place counts as away from its mean at most: a run may have been healthy with a slow node."""
MIN_CLIPPED: Final = 2
"""Runs from which on their spread limits that."""
MIN_SHARE: Final = 0.8
"""Share of the time that must be in classes of intervals which earlier runs had."""

Floats = npt.NDArray[np.float64]


class NodeRanks:
    """The ranks of one world on each node."""

    def __init__(self) -> None:
        self._hosts: dict[str, tuple[int, int]] = {}
        """The lowest rank of each, and how many it has."""
        self._size = 0

    def add(self, host: str, lowest: int, ranks: int, size: int) -> None:
        """Add what a node reports. lowest: of its ranks, -1 if unknown. size: ranks of the world."""
        if len(self._hosts) < MAX_NODES or host in self._hosts:
            self._hosts[host] = lowest, ranks
            self._size = max(size, self._size)

    @property
    def is_whole(self) -> bool:
        """Whether all ranks of the world are on known nodes."""
        return sum(ranks for _, ranks in self._hosts.values()) >= self._size > 0

    @property
    def nodes(self) -> int:
        """Number of known nodes."""
        return len(self._hosts)

    def places(self) -> tuple[str, ...]:
        """The nodes in the order of their lowest ranks; none where these are not all known."""
        if not self.is_whole or any(lowest < 0 for lowest, _ in self._hosts.values()):
            return ()
        return tuple(sorted(self._hosts, key=lambda host: self._hosts[host]))


class PlaceWork(NamedTuple):
    """Own work in an ended job. hosts: by place. classes: by class id, seconds of it, and the excess of each place.

    An excess is the logarithm of the own work of the node's rank with most over the median of that of the others.
    """

    hosts: tuple[str, ...]
    classes: Mapping[int, tuple[float, Floats]]


class PlaceLevels(NamedTuple):
    """What is expected of one more run, by place: excess, scale of Student's t, and its degrees of freedom."""

    excess: Floats
    scale: Floats
    freedom: int


class _Class:
    def __init__(self, places: int) -> None:
        self.runs = 0.0
        self.mean: Floats = np.zeros(places)
        self.squares: Floats = np.zeros(places)

    def add(self, excess: Floats) -> None:
        """Welford's sums, in which older runs weigh less, and what is far from the others counts as less far."""
        before = excess - self.mean
        if self.runs >= MIN_CLIPPED:
            limit = CLIP * self.scale()
            before = np.clip(before, -limit, limit)
        if self.runs >= MAX_RUNS:
            self.squares *= 1 - 1 / self.runs
            self.runs -= 1
        self.runs += 1
        self.mean += before / self.runs
        self.squares += before**2 * (1 - 1 / self.runs)

    def scale(self) -> Floats:
        """The spread of each place between runs: that of all places, or its own where that is larger."""
        counted = min(self.mean.size - 1, MAX_COUNTED)
        of_all = PRIOR_RUNS * PRIOR_EXCESS**2 + counted * float(self.squares.mean())
        of_all /= PRIOR_RUNS + (self.runs - 1) * counted
        own = (PRIOR_RUNS * of_all + self.squares) / (PRIOR_RUNS + self.runs - 1)
        return np.asarray(np.sqrt(np.maximum(of_all, own) * (1 + 1 / self.runs)), float)


class PlaceHistory:
    """The healthy runs of one workload on `places` nodes."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._classes: dict[int, _Class] = {}

    @property
    def size(self) -> int:
        """Numbers that are kept."""
        return 2 * self.places * len(self._classes)

    def add(self, work: PlaceWork) -> None:
        """Add a healthy run."""
        for class_id, (_, excess) in work.classes.items():
            self._classes.setdefault(class_id, _Class(self.places)).add(excess)

    def levels(self, seconds: Mapping[int, float]) -> PlaceLevels | None:
        """What is expected of work with so much time in each class; None if too much of it is in others."""
        known = {one: spent for one, spent in seconds.items() if one in self._classes and spent > 0}
        total = math.fsum(known.values())
        if not total > 0 or total < MIN_SHARE * math.fsum(seconds.values()):
            return None
        own, scale, runs = np.zeros(self.places), np.zeros(self.places), math.inf
        for class_id, spent in known.items():
            one = self._classes[class_id]
            own += spent / total * np.exp(one.mean)
            scale += spent / total * one.scale()
            runs = min(one.runs, runs)
        freedom = PRIOR_RUNS + round(runs - 1) * min(self.places - 1, MAX_COUNTED)
        return PlaceLevels(np.log(own), scale, min(freedom, MAX_FREEDOM))

    def beyond(self, work: PlaceWork) -> PlaceLevels | None:
        """The excess of the places of an ended run over what is expected of them."""
        expected = self.levels({class_id: seconds for class_id, (seconds, _) in work.classes.items()})
        if expected is None or len(work.hosts) != self.places:
            return None
        found, total = np.zeros(self.places), 0.0
        for class_id, (seconds, excess) in work.classes.items():
            if class_id in self._classes:
                found += seconds * (excess - self._classes[class_id].mean)
                total += seconds
        return expected._replace(excess=found / total)


def over_median_of_others(values: Floats) -> Floats:
    """For each of two values or more, the difference to the median of the rest."""
    order = np.argsort(values)
    ranked, places = values[order], np.empty(values.size, np.int64)
    places[order] = np.arange(values.size)
    high = (values.size - 1) // 2
    upper: Floats = np.where(high < places, ranked[high], ranked[high + 1])
    if values.size % 2 == 0:
        return np.asarray(values - upper, float)
    lower: Floats = np.where(high - 1 < places, ranked[high - 1], ranked[high])
    return np.asarray(values - 0.5 * (lower + upper), float)
