"""What Barograph measures of a run: for each call-site class its work, its communication and its number of calls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from barograph_modeler.maxima.sample import Floats


@dataclass(frozen=True)
class PhaseMeasurement:
    """One call-site class in one run; times are seconds per interval.

    count: intervals. own: work of a rank, mean over ranks and intervals. between, within: standard deviations of the
    means of nodes, and of ranks about their node, as shares of own; NaN with one node, or one rank per node.
    deviations: (m,), ascending values of a rank's work in one interval minus that rank's mean, as shares of own;
    shares: (m,), the share of all intervals and ranks that each stands for, with sum 1. slowest: work of the slowest
    rank, mean over intervals. exchange: point-to-point time of the slowest rank, which waits for no neighbour.
    collective: time of the last rank in the collective call.
    """

    count: float
    own: float
    between: float
    within: float
    deviations: Floats
    shares: Floats
    slowest: float
    exchange: float
    collective: float


def pooled_spread(spreads: Floats, freedom: Floats) -> tuple[float, float]:
    """Standard deviation pooled over runs, and its degrees of freedom. NaN are left out; (0, 0) if all are.

    >>> pooled_spread(np.array([0.01, 0.03, np.nan]), np.array([1.0, 1.0, 0.0]))
    (0.022360679774997897, 2.0)
    """
    known = np.isfinite(spreads) & (freedom > 0)
    if not known.any():
        return 0.0, 0.0
    total = float(freedom[known].sum())
    return float(np.sqrt(freedom[known] @ spreads[known] ** 2 / total)), total
