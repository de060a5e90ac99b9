"""Whole runs as sums of intervals: runtime = remainder + sum of K interval maxima.

Intervals of one run share a node set and a clock frequency, so a run is drawn first and then intervals of that run
(cluster bootstrap; Davison and Hinkley 1997, section 3.8). Pooling the intervals of all runs would average out the
differences between runs, which are nearly all of the variance of a runtime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats, check_sample
from barograph_modeler.maxima.scaling import Projection, percentile_interval

DRAWS_AT_ONCE: Final = 1 << 20
MINIMUM_RUNS: Final = 2


@dataclass(frozen=True, eq=False)
class RunHistory:
    """Past runs of one workload, in one unit, finite. maxima: interval maxima of each run, at least one, in any order.

    remainders: of each run the runtime outside these intervals (start, end, anything not between barriers), >= 0.
    """

    maxima: Sequence[Floats]
    remainders: Floats

    @classmethod
    def of(cls, maxima: Sequence[npt.ArrayLike], remainders: npt.ArrayLike) -> RunHistory:
        """From any sequences. Raises ValueError for fewer than MINIMUM_RUNS runs and for values out of range."""
        rest = check_sample(remainders, MINIMUM_RUNS)
        if len(maxima) != rest.size:
            raise ValueError(f"there are {len(maxima)} runs and {rest.size} remainders, expected one for each")
        if (rest < 0).any():
            raise ValueError(f"remainder {int(np.argmax(rest < 0))} is {rest[rest < 0][0]}, expected at least 0")
        return cls([check_sample(one, 1) for one in maxima], rest)


def runtime_moments(history: RunHistory, intervals: int) -> tuple[float, float]:
    """Exact mean and variance of runtime_replicas without inflation.

    With mean m_r, variance s_r**2 (over n) and remainder c_r of run r: the mean over runs of c_r + K m_r, and its
    variance over runs plus the mean of K s_r**2.
    """
    _check_intervals(intervals)
    totals = np.array([c + intervals * x.mean() for x, c in zip(history.maxima, history.remainders, strict=True)])
    within = np.array([intervals * x.var() for x in history.maxima])
    return float(totals.mean()), float(totals.var() + within.mean())


def runtime_replicas(
    history: RunHistory, intervals: int, replicas: int = 1000, *, seed: int, inflated: bool = True
) -> Floats:
    """Predicted runtimes of a run of `intervals` intervals: draws of a run, then of its intervals, with replacement.

    inflated: scale deviations from the mean by sqrt((R + 1) / (R - 1)) for R runs: the variance between runs is
    (R - 1) / R of the true one in expectation, and their mean has an error variance of 1 / R of it. Without inflation
    it is the plain cluster bootstrap. intervals, replicas: at least 1.
    """
    _check_intervals(intervals)
    if replicas < 1:
        raise ValueError(f"replicas are {replicas}, expected at least 1")
    rng = np.random.default_rng(seed)
    runs = len(history.maxima)
    drawn = rng.integers(0, runs, size=replicas)
    totals = history.remainders[drawn]
    for run, x in enumerate(history.maxima):
        where = np.flatnonzero(drawn == run)
        totals[where] += _sums(x, intervals, where.size, rng)
    if inflated:
        mean, _ = runtime_moments(history, intervals)
        totals = mean + (totals - mean) * math.sqrt((runs + 1) / (runs - 1))
    return totals


def runtime_interval(history: RunHistory, intervals: int, *, seed: int, level: float = 0.95) -> Projection:
    """Limits and median of 1,000 replicas, at the paper's positions."""
    return percentile_interval(runtime_replicas(history, intervals, seed=seed), level)


def _sums(x: Floats, intervals: int, count: int, rng: np.random.Generator) -> Floats:
    """Sums of `intervals` draws with replacement from x, `count` times."""
    rows = max(1, DRAWS_AT_ONCE // min(intervals, 8 * x.size))
    chunks = [min(rows, count - start) for start in range(0, count, rows)]
    if intervals <= 8 * x.size:
        parts = [x[rng.integers(0, x.size, size=(rows, intervals))].sum(axis=1) for rows in chunks]
    else:  # drawing the count of each value is cheaper
        parts = [rng.multinomial(intervals, np.full(x.size, 1 / x.size), size=rows) @ x for rows in chunks]
    return np.concatenate([np.empty(0), *parts])


def _check_intervals(intervals: int) -> None:
    if intervals < 1:
        raise ValueError(f"intervals are {intervals}, expected at least 1")
