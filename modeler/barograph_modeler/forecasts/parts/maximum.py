"""The expected work of the slowest rank, from the differences between nodes, within nodes, and between intervals.

A rank's work in an interval, relative to the mean, is 1 + b + w + e: b of its node and w of the rank in the node are
normal and last for a run, e is drawn for each interval. With F the distribution of w + e, the maximum over a node's r
ranks is below x with G(x) = integral of F(x - b)**r over b, and that over m nodes with G(x)**m. This is the paper's
projection of maxima for clustered ranks: the exponents are exact where the paper's EMMA takes one extremal index.

Beyond the largest values seen, e has the tail of a generalized Pareto distribution (Hosking and Wallis 1987), which
extends the maximum's domain of attraction to larger scales.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from scipy.special import ndtr

from barograph_modeler.maxima.sample import Floats

TAIL: Final = 0.005
"""Share of the largest deviations whose tail is fitted, if that are MIN_TAIL values."""
MIN_TAIL: Final = 12
MAX_HEAVY: Final = 0.2
MAX_BOUNDED: Final = 0.5
"""Limits of the tail's shape xi, and of -xi."""
TAIL_LEVELS: Final = np.geomspace(1.0, 1e-7, 60)
"""Exceedance probabilities inside the tail that are represented."""
BODY: Final = 48
"""Atoms of the distribution below the tail."""
GRID: Final = 200
NODES: Final = 21
"""Points of the Gauss-Hermite rule over differences between nodes."""
_RULE: Final = np.polynomial.hermite_e.hermegauss(NODES)
MIN_SPREAD: Final = 1e-5
TINY: Final = 1e-300


class Deviations(NamedTuple):
    """The distribution of e: ascending atoms and their probabilities, with sum 1."""

    values: Floats
    shares: Floats


def deviations_of(values: Floats, shares: Floats) -> Deviations:
    """Atoms of pooled deviations, with a fitted tail. values: (m,) in any order; shares: (m,), of any sum."""
    order = np.argsort(values)
    x, weight = values[order], shares[order] / shares.sum()
    above = 1 - np.cumsum(weight) + weight
    tail = above <= TAIL
    if tail.sum() < MIN_TAIL or np.ptp(x[tail]) <= 0:
        return Deviations(*_thinned(x, weight))
    threshold, mass = float(x[tail][0]), float(weight[tail].sum())
    excess, parts = x[tail] - threshold, weight[tail] / mass
    first = float(parts @ excess)
    ranked = 1 - (np.cumsum(parts) - parts / 2)
    second = float((parts * ranked) @ excess)
    # Probability-weighted moments: k = a0 / (a0 - 2 a1) - 2, scale = 2 a0 a1 / (a0 - 2 a1); xi = -k.
    gap = max(first - 2 * second, 1e-12)
    xi = float(np.clip(2 - first / gap, -MAX_BOUNDED, MAX_HEAVY))
    scale = first * (1 - xi)
    edges = np.append(TAIL_LEVELS, 0.0)
    middle = (edges[:-1] + edges[1:]) / 2
    found = threshold + (scale * -np.log(middle) if abs(xi) < 1e-6 else scale * (middle**-xi - 1) / xi)
    body = _thinned(x[~tail], weight[~tail])
    masses = np.concatenate([body[1], mass * -np.diff(edges)])
    return Deviations(np.concatenate([body[0], found]), masses / masses.sum())


def expected_slowest(
    deviations: Deviations, between: Floats, within: Floats, per_node: float, nodes: Floats
) -> tuple[Floats, Floats]:
    """Mean over intervals of the slowest rank's work relative to the mean, and its standard deviation between runs.

    between, within: (s,), draws of standard deviations. nodes: (k,), numbers of nodes. Returns two arrays (s, k).
    """
    means, spreads = np.empty((between.size, nodes.size)), np.empty((between.size, nodes.size))
    for i in range(between.size):
        means[i], _ = _maximum(deviations, float(between[i]), float(within[i]), per_node, nodes)
        lasting = Deviations(np.zeros(1), np.ones(1))
        _, spreads[i] = _maximum(lasting, float(between[i]), float(within[i]), per_node, nodes)
    return 1 + means, spreads


def last_of_nodes(deviations: Deviations, per_node: float, arrivals: Floats) -> float:
    """Expected arrival of the last node of single intervals, after the node that is last on average; 0 for one node.

    deviations: of a rank in an interval. arrivals: (nodes,), means of the last ranks of nodes, in the same unit.
    Nodes are independent in an interval: the last is below x with product of F(x - arrival + mean)**per_node, F the
    distribution of deviations and mean that of the largest of per_node of them.
    """
    if arrivals.size < 2 or float(np.ptp(deviations.values)) <= 0:
        return 0.0
    steps = np.cumsum(deviations.shares) ** per_node
    mean = float(np.diff(steps, prepend=0.0) @ deviations.values)
    late = arrivals - arrivals.max()
    values = deviations.values - mean
    x = np.linspace(float(values[0]), float(values[-1]), GRID)
    logs = np.log(np.maximum(steps, TINY))
    # Between atoms the distribution is interpolated: as steps, all nodes would share their values.
    below = np.zeros(GRID)
    for one in late[late > float(values[0] - values[-1])]:
        below += np.interp(x - one, values, logs, left=float(np.log(TINY)), right=0.0)
    # Mean of the last minus that of a single node: the integral of the difference of their distributions.
    apart = np.exp(np.interp(x, values, logs)) - np.exp(np.maximum(below, -700.0))
    return max(float(np.trapezoid(apart, x)), 0.0)


def _maximum(
    deviations: Deviations, between: float, within: float, per_node: float, nodes: Floats
) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the maximum of b + w + e over all ranks, for each number of nodes: (k,) each."""
    between, within = max(between, MIN_SPREAD), max(within, MIN_SPREAD)
    reach = 7 * (between + within)
    x = np.linspace(float(deviations.values[0]) - reach, float(deviations.values[-1]) + reach, GRID)
    # The grid is dense where the mass is, and reaches the largest values.
    dense = np.linspace(-reach, reach, GRID) + float(deviations.values @ deviations.shares)
    x = np.unique(np.concatenate([x, dense]))
    cdf = ndtr((x[:, None] - deviations.values) / within) @ deviations.shares
    points, weights = _RULE
    shifted = np.stack([np.interp(x - between * one, x, cdf, left=0.0, right=1.0) for one in points])
    node = np.clip(weights @ shifted**per_node / weights.sum(), 0.0, 1.0)
    every = node ** nodes[:, None]
    steps = np.diff(x)
    middle = (every[:, 1:] + every[:, :-1]) / 2
    mean = x[-1] - middle @ steps
    density, centres = np.diff(every, axis=1), (x[1:] + x[:-1]) / 2
    variance = (density * (centres - mean[:, None]) ** 2).sum(axis=1)
    return mean, np.sqrt(variance)


def _thinned(values: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Ascending values joined to BODY atoms of about equal probability."""
    if values.size <= BODY:
        return values, shares
    bins = np.minimum((np.cumsum(shares) / shares.sum() * BODY).astype(int), BODY - 1)
    mass = np.asarray(np.bincount(bins, shares, minlength=BODY), dtype=np.float64)
    known = mass > 0
    sums = np.asarray(np.bincount(bins, shares * values, minlength=BODY), dtype=np.float64)
    return sums[known] / mass[known], mass[known]
