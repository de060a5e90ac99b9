"""The paper's parametric bootstraps: from the times of single nodes or ranks to the maximum over a larger machine.

Both fit a GEV to a series, draw series of the same length from it, refit each and project each fit by EMMA. The limits
are those of the *expected* maximum: they include the difference between nodes and the error of the fit, but not the
scatter of single intervals. They apply to sums of many intervals, such as whole runs. The paper's pseudo-series of
intra-node is taken as the maximum, interval by interval, over one rank of each node.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.distribution import Gevs
from barograph_modeler.maxima.fits.moments import fit_moms
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES, fit_pwms
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.maxima.scaling import Projection, emmas, percentile_interval

SERIES_REPLICAS: Final = 50
TOTAL_REPLICAS: Final = 1000
"""Least number for an interval in total: few series give more than SERIES_REPLICAS each."""

Method = Literal["pwm", "mom"]
FITS: Final[dict[Method, Callable[[npt.ArrayLike], Gevs]]] = {"pwm": fit_pwms, "mom": fit_moms}


def inter_node(
    times: npt.ArrayLike, ranks: int, *, seed: int, method: Method = "pwm", level: float = 0.95
) -> Projection:
    """The expected interval maximum on `ranks` ranks, from each node's own series.

    times: (nodes, ranks of a node, intervals), finite, at least MINIMUM_SAMPLES intervals. A node's series is the
    maximum over its ranks, so the maximum over `ranks` ranks is that of ranks / (ranks of a node) such values.
    Raises ValueError otherwise and for fewer ranks than a node has.
    """
    x = _check_times(times)
    return expected_maximum(x.max(axis=1), ranks / x.shape[1], seed=seed, method=method, level=level)


def intra_node(
    times: npt.ArrayLike, ranks: int, *, seed: int, method: Method = "pwm", level: float = 0.95
) -> Projection:
    """The expected interval maximum on `ranks` ranks, from one rank of each node, for each rank index.

    Arguments as inter_node. The series of a rank index is the maximum over nodes of that rank's times, so the maximum
    over `ranks` ranks is that of ranks / nodes such values. Raises ValueError for fewer ranks than nodes.
    """
    x = _check_times(times)
    return expected_maximum(x.max(axis=0), ranks / x.shape[0], seed=seed, method=method, level=level)


def expected_maximum(
    series: Floats, factor: float, *, seed: int, method: Method = "pwm", level: float = 0.95
) -> Projection:
    """The expected maximum of `factor` values: limits of the EMMA projections of all replicas of all series.

    series: (count, n), n >= MINIMUM_SAMPLES. factor: at least 1.
    """
    rng = np.random.default_rng(seed)
    fits = FITS[method](series)
    each = max(SERIES_REPLICAS, math.ceil(TOTAL_REPLICAS / len(fits)))
    projected = []
    for i in range(len(fits)):
        one = slice(i, i + 1)
        fit = Gevs(fits.shape[one], fits.location[one], fits.scale[one])
        draws = fit.draw(each * series.shape[1], rng).reshape(each, series.shape[1])
        projected.append(emmas(FITS[method](draws), factor))
    return percentile_interval(np.concatenate(projected), level)


def _check_times(times: npt.ArrayLike) -> Floats:
    x = np.asarray(times, dtype=np.float64)
    if x.ndim != 3 or 0 in x.shape:
        raise ValueError(f"times have shape {x.shape}, expected (nodes, ranks of a node, intervals)")
    if x.shape[2] < MINIMUM_SAMPLES:
        raise ValueError(f"times have {x.shape[2]} intervals, expected at least {MINIMUM_SAMPLES}")
    if not (finite := np.isfinite(x)).all():
        node, rank, interval = (int(i) for i in np.unravel_index(int(np.argmin(finite)), x.shape))
        bad = x[node, rank, interval]
        raise ValueError(f"time of node {node} rank {rank} interval {interval} is {bad}, expected finite numbers")
    return x
