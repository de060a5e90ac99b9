"""The paper's parametric bootstraps: from the times of single nodes or ranks to the maximum over a larger machine.

Both fit a GEV to a series, draw `replicas` series of the same length from it, fit each again and project each fit by
EMMA. What scatters is the projection of the *expected* maximum, by which node is typical and how well it is known; how
single intervals scatter about it is not in the limits. They hold for sums of many intervals, as whole runs are.
The paper's pseudo-series of intra-node is read here as the maximum, interval by interval, over one rank of each node.
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
from barograph_modeler.studies.maxima.scaling import Projection, emmas, percentile_interval

SERIES_REPLICAS: Final = 50
TOTAL_REPLICAS: Final = 1000
"""An interval takes at least so many in total, so few series give more than SERIES_REPLICAS each."""

Method = Literal["pwm", "mom"]
FITS: Final[dict[Method, Callable[[npt.ArrayLike], Gevs]]] = {"pwm": fit_pwms, "mom": fit_moms}


def inter_node(
    times: npt.ArrayLike, ranks: int, *, seed: int, method: Method = "pwm", level: float = 0.95
) -> Projection:
    """The expected interval maximum on `ranks` ranks, from each node's own series.

    times: (nodes, ranks of a node, intervals) of at least MINIMUM_SAMPLES intervals, finite. A node's series is the
    maximum over its ranks, so the maximum over `ranks` ranks is that of ranks / (ranks of a node) such values.
    Raises ValueError for other arguments and for fewer ranks than one node has.
    """
    x = _check_times(times)
    return expected_maximum(x.max(axis=1), ranks / x.shape[1], seed=seed, method=method, level=level)


def intra_node(
    times: npt.ArrayLike, ranks: int, *, seed: int, method: Method = "pwm", level: float = 0.95
) -> Projection:
    """The expected interval maximum on `ranks` ranks, from one rank of each node, rank index after rank index.

    Arguments as inter_node. The series of a rank index is the maximum over the nodes of that rank's times, so the
    maximum over `ranks` ranks is that of ranks / nodes such values; fewer ranks than nodes are refused.
    """
    x = _check_times(times)
    return expected_maximum(x.max(axis=0), ranks / x.shape[0], seed=seed, method=method, level=level)


def expected_maximum(
    series: Floats, factor: float, *, seed: int, method: Method = "pwm", level: float = 0.95
) -> Projection:
    """The expected maximum of `factor` values. series: (count, n), each of n >= MINIMUM_SAMPLES such values. The limits
    are those of the replicas of all series together. factor: at least 1."""
    return percentile_interval(_projected(series, factor, method, seed), level)


def _projected(series: Floats, factor: float, method: Method, seed: int) -> Floats:
    """EMMA projections of the replicas of every series (count, n): at least TOTAL_REPLICAS in all."""
    rng = np.random.default_rng(seed)
    fits = FITS[method](series)
    each = max(SERIES_REPLICAS, math.ceil(TOTAL_REPLICAS / len(fits)))
    projected = []
    for i in range(len(fits)):
        one = slice(i, i + 1)
        fit = Gevs(fits.shape[one], fits.location[one], fits.scale[one])
        draws = fit.draw(each * series.shape[1], rng).reshape(each, series.shape[1])
        projected.append(emmas(FITS[method](draws), factor))
    return np.concatenate(projected)


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
