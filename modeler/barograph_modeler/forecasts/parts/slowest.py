"""How much longer than a mean rank the slowest one works: that of a node, and that of all nodes.

The paper's bootstraps by node and by rank, from what is kept of runs: how nodes differ, how the ranks of a node do, and
how the intervals of a rank do (`parts/maximum.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy.special import chdtri

from barograph_modeler.forecasts.parts.maximum import deviations_of, expected_slowest
from barograph_modeler.forecasts.parts.measurement import PhaseMeasurement, pooled_spread
from barograph_modeler.forecasts.parts.phased_run import PhasedRun
from barograph_modeler.maxima.sample import Floats

MIN_FREEDOM: Final = 2.0
MIN_INTERVALS: Final = 10
"""Intervals of a rank from which its deviations are known."""
LEVELS: Final = np.array([0.025, 0.5, 0.975])
REACH: Final = 1.96
"""Standard deviations of a normal distribution to these limits."""


class SlowestRank(NamedTuple):
    """The work of the slowest rank over that of a mean one, as means over the intervals of a run: the lower limit, the
    median and the upper limit, which hold 95 of 100 runs.

    per_node: ranks on each node. of_all: None where nodes have never been compared with each other.
    """

    per_node: float
    nodes: int
    of_node: tuple[float, ...]
    of_all: tuple[float, ...] | None


def slowest_rank(runs: Sequence[PhasedRun], class_id: int, ranks: int, nodes: int | None) -> SlowestRank | None:
    """The slowest rank of a class on `ranks` ranks; None where its work is not known.

    runs: of one number of ranks. nodes: if not given, with as many ranks on each as the newest run has.
    """
    phases = [(run, run.phases()[class_id]) for run in runs if class_id in run.classes]
    known = [(run, phase) for run, phase in phases if phase.count >= MIN_INTERVALS]
    if not known:
        return None
    newest = known[-1][0]
    nodes = nodes if nodes is not None else max(1, round(ranks * newest.nodes / newest.ranks))
    within, _ = _spreads("within", known, [run.ranks - run.nodes for run, _ in known])
    between, compared = _spreads("between", known, [run.nodes - 1 for run, _ in known])
    values = np.concatenate([phase.deviations for _, phase in known])
    shares = np.concatenate([phase.shares * phase.count for _, phase in known])
    several = np.array([1.0, float(nodes)])
    means, lasting = expected_slowest(deviations_of(values, shares), between, within, ranks / nodes, several)
    of_node, of_all = (_limits(means[:, i], float(lasting[1, i])) for i in (0, 1))
    return SlowestRank(ranks / nodes, nodes, of_node, of_all if compared or nodes == 1 else None)


def _spreads(
    name: str, known: Sequence[tuple[PhasedRun, PhaseMeasurement]], freedom: Sequence[int]
) -> tuple[Floats, bool]:
    """Standard deviations by LEVELS, from the scaled inverse chi-square posterior, and whether there are any."""
    spread, total = pooled_spread(np.array([getattr(phase, name) for _, phase in known]), np.array(freedom, np.float64))
    wide = max(total, MIN_FREEDOM)
    return spread * np.sqrt(wide / chdtri(wide, LEVELS)), total > 0


def _limits(means: Floats, lasting: float) -> tuple[float, ...]:
    """means: by LEVELS. lasting: standard deviation between runs, which have other nodes and ranks each time."""
    lower, middle, upper = means.tolist()
    below, above = (float(np.hypot(middle - one, REACH * lasting)) for one in (lower, upper))
    return max(middle - below, 1.0), middle, middle + above
