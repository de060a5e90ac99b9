"""Whole runs as sums of interval maxima.

Intervals of one run share a node set and a clock frequency, so a run is drawn first and then intervals of that run
(cluster bootstrap; Davison and Hinkley 1997, section 3.8). Pooling the intervals of all runs would average out the
differences between runs, which are nearly all of the variance of a runtime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.maxima.scaling import Projection, percentile_interval

DRAWS_AT_ONCE: Final = 1 << 20


def runtime_replicas(
    runs: Sequence[Floats], intervals: int, replicas: int = 1000, *, seed: int, inflated: bool = True
) -> Floats:
    """Predicted runtimes of a run of `intervals` intervals: draws of a run, then of its intervals, with replacement.

    runs: interval maxima of two past runs or more, at least one of each. inflated: scale deviations from the mean by
    sqrt((R + 1) / (R - 1)) for R runs: the variance between runs is (R - 1) / R of the true one in expectation, and
    their mean has an error variance of 1 / R of it. Without inflation it is the plain cluster bootstrap.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(runs), size=replicas)
    totals = np.zeros(replicas)
    for run, x in enumerate(runs):
        where = np.flatnonzero(drawn == run)
        totals[where] = _sums(x, intervals, where.size, rng)
    if inflated:
        mean = intervals * float(np.mean([x.mean() for x in runs]))
        totals = mean + (totals - mean) * math.sqrt((len(runs) + 1) / (len(runs) - 1))
    return totals


def runtime_interval(runs: Sequence[Floats], intervals: int, *, seed: int, level: float = 0.95) -> Projection:
    """The central `level` of the next run's time."""
    return percentile_interval(runtime_replicas(runs, intervals, seed=seed), level)


def _sums(x: Floats, intervals: int, count: int, rng: np.random.Generator) -> Floats:
    """Sums of `intervals` draws with replacement from x, `count` times."""
    rows = max(1, DRAWS_AT_ONCE // min(intervals, 8 * x.size))
    chunks = [min(rows, count - start) for start in range(0, count, rows)]
    if intervals <= 8 * x.size:
        parts = [x[rng.integers(0, x.size, size=(rows, intervals))].sum(axis=1) for rows in chunks]
    else:  # drawing the count of each value is cheaper
        parts = [rng.multinomial(intervals, np.full(x.size, 1 / x.size), size=rows) @ x for rows in chunks]
    return np.concatenate([np.empty(0), *parts])
