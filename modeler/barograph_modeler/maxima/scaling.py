"""Scaling up: the maximum over m times as many ranks of the same behaviour.

Non-parametric: the maximum of m independent draws with replacement from n observed maxima has distribution F_n ** m, so
its q-quantile is the order statistic x_(ceil(n q ** (1 / m))), the limit of the paper's resampling for many replicas.
Parametric: Gev.scaled_up is exact under max-stability; EMMA is the paper's point projection.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.distribution import Gevs, check_factor, check_levels
from barograph_modeler.maxima.sample import Floats, check_sample

EMMA: Final = 0.570376002
"""P of the expected mean maximum approximation, E(max of m) ~ F**-1(P ** (1 / m)): Sun and Peterson (2012)."""

REPLICAS_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True)
class Projection:
    """Lower limit, median and upper limit of a predicted time, in the unit of the sample. replicas: 0 if exact."""

    lower: float
    expected: float
    upper: float
    replicas: int


def emmas(gevs: Gevs, factor: float) -> Floats:
    """Approximate expected maximum of `factor` draws from each distribution. Raises ValueError for a factor below 1."""
    check_factor(factor)
    if factor < 1:
        raise ValueError(f"scale factor is {factor}, expected at least 1")
    return gevs.quantile(math.pow(EMMA, 1 / factor))


def maximum_quantiles(sample: npt.ArrayLike, factor: float, levels: npt.ArrayLike) -> Floats:
    """Exact quantiles of the maximum of `factor` draws with replacement from the sample: values of the sample.

    sample: at least 1 finite value in any order, not modified. factor: finite, above 0, need not be whole; 1 gives
    quantiles of the sample. levels: (count,) between 0 and 1. Raises ValueError otherwise.
    """
    x = check_sample(sample, 1)
    check_factor(factor)
    q = np.asarray(levels, dtype=np.float64)
    check_levels(q)
    # The tolerance keeps rounding from moving a whole number to the next order statistic.
    at = np.ceil(x.size * q ** (1 / factor) - 1e-9 * x.size).astype(np.int64).clip(1, x.size) - 1
    return np.asarray(np.partition(x, at)[at])


def maximum_band(sample: npt.ArrayLike, factor: float, level: float = 0.95) -> Projection:
    """Exact central interval of the maximum of `factor` draws with replacement from the sample.

    Arguments as maximum_quantiles; level: between 0 and 1. It has no allowance for the finite sample and never exceeds
    the largest observed value.
    """
    tail = (1 - level) / 2
    lower, expected, upper = maximum_quantiles(sample, factor, (tail, 0.5, 1 - tail)).tolist()
    return Projection(lower, expected, upper, 0)


def mean_maximum(sample: npt.ArrayLike, factor: float, *, seed: int, replicas: int = 1000) -> Projection:
    """Limits and median of the mean, over as many intervals as the sample has, of the maximum of `factor` draws.

    The paper's non-parametric bootstrap of a runtime: each replica draws one maximum per interval, from F_n ** factor.
    sample: at least 1 finite value. factor: at least 1, need not be whole. Raises ValueError otherwise.
    """
    x = np.sort(check_sample(sample, 1))
    check_factor(factor)
    if factor < 1:
        raise ValueError(f"scale factor is {factor}, expected at least 1")
    rng = np.random.default_rng(seed)
    rows = max(1, REPLICAS_AT_ONCE // x.size)
    means = []
    for start in range(0, replicas, rows):
        u = rng.random((min(rows, replicas - start), x.size))
        # The order statistic at or above each quantile, as in maximum_quantiles.
        at = np.ceil(x.size * u ** (1 / factor)).astype(np.int64).clip(1, x.size) - 1
        means.append(x[at].mean(axis=1))
    return percentile_interval(np.concatenate(means))


def percentile_positions(count: int, level: float) -> tuple[int, int]:
    """The paper's 1-based positions of the limits among `count` ordered replicas: count (1 -+ level) / 2, rounded up.

    For 1,000 replicas and level 0.95, the 25th and the 975th.
    """
    if count < 1:
        raise ValueError(f"replicas are {count}, expected at least 1")
    if not 0 < level < 1:
        raise ValueError(f"level is {level}, expected a number between 0 and 1, both excluded")
    lower, upper = (math.ceil(count * share / 2 - 1e-9) for share in (1 - level, 1 + level))
    return max(1, lower), upper


def percentile_interval(replicas: npt.ArrayLike, level: float = 0.95) -> Projection:
    """The limits at the paper's positions among bootstrap replicas, and their median."""
    x = np.sort(check_sample(replicas, 1))
    lower, upper = percentile_positions(x.size, level)
    return Projection(float(x[lower - 1]), float(np.median(x)), float(x[upper - 1]), x.size)
