"""The band at an unseen larger scale, from samples at smaller scales: resampled maxima, shifted along the trend.

The maximum over m times as many independent ranks has distribution F ** m, which suffices if only noise grows with
scale. The cost of communication grows too: log interval length is linear in log scale, with a slope that is estimated
from the seen scales and may change with every doubling. The band is a quantile range of the mixture of both effects,
and never narrower than that of F ** m.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.band import LEVEL, Band, check_level, minimum_samples
from barograph_modeler.maxima.sample import Floats, check_sample

OBSERVED_SLOPE_ERROR: Final = 0.35
"""Least standard deviation of the prior if slopes were observed, which then outweigh it."""
CHANGE: Final = 0.2
"""Upper bound of the standard deviation of the slope from one doubling to the next: it is CHANGE_RATIO times the root
mean square of the observed slopes, at least CHANGE_FLOOR."""
CHANGE_RATIO: Final = 0.25
CHANGE_FLOOR: Final = 0.03
FOLDED: Final = 0.25
"""Weight of noise that grows as F ** m besides the trend; the rest has the shape of the largest scale seen."""
BLOCKS: Final = 10
"""Pieces of a sample whose medians measure the drift of the regime within it."""
REGIMES: Final = 1.5
"""Multiple of that variance between a sample and a later time: 2 for independent times, less for near ones."""

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(9)
"""Quadrature points and weights for the normal distribution of the growth."""


class Slope(NamedTuple):
    """A prior of the slope: doublings of length per doubling of scale, and their standard deviation, above 0."""

    mean: float
    error: float

    @classmethod
    def of_split(cls, work: float, work_slope: float, distance: float) -> Slope:
        """Of intervals of which a share of `work`, 0 to 1, is computed and changes with work_slope, and the rest is
        communicated, over so many doublings, above 0."""
        length = work * 2.0 ** (work_slope * distance) + (1 - work) * 2.0 ** (COLLECTIVE.mean * distance)
        return cls(math.log2(length) / distance, SPLIT_ERROR)


COLLECTIVE: Final = Slope(0.5, 0.2)
"""Of collective calls: half-way between a cost independent of scale (0: rings) and one proportional to it (1:
all-to-all). On public measurements on 4 to 16 ranks this and CHANGE cover 93 to 95 % of the values at twice and four
times the scale of the only sample."""
UNKNOWN: Final = Slope(-0.5, 0.5)
"""Of intervals known at one scale only: divided work (-1) and collective calls are within its limits."""
SPLIT_ERROR: Final = 0.2
"""Spread of the slopes of classes about what their measured split tells."""


class Drift(NamedTuple):
    """Expected growth from the largest scale seen, in doublings of length, and its standard error."""

    mean: float
    error: float


def trend_band(
    samples: Mapping[float, npt.ArrayLike], scale: float, level: float = LEVEL, prior: Slope = COLLECTIVE
) -> Band | None:
    """The band for one interval at `scale`, or None if the largest scale seen has < minimum_samples(level) values.

    samples: values of each scale (ranks or nodes, above 0) in order of time, finite and above 0, not modified. scale:
    above all of these. level: between 0 and 1. prior: of the slope. Raises ValueError otherwise.
    """
    check_level(level)
    if not samples:
        raise ValueError("samples of no scale, expected at least one")
    logs = {own: _logs(own, samples[own]) for own in sorted(samples)}
    seen = max(logs)
    if not (seen < scale < math.inf):
        raise ValueError(f"scale is {scale}, expected a finite number above the largest scale seen, {seen}")
    x = np.sort(logs[seen])
    if x.size < minimum_samples(level):
        return None
    drift = growth(logs, scale, prior)
    shares = np.arange(x.size + 1) / x.size
    folded = np.diff(shares ** (scale / seen))
    mass = (1 - FOLDED) / x.size + FOLDED * folded
    moved = (x + drift.mean + drift.error * NODES[:, None]).ravel()
    tail = (1 - level) / 2
    lower, expected, upper = _quantiles(moved, np.outer(WEIGHTS, mass).ravel(), (tail, 0.5, 1 - tail))
    least, _, most = _quantiles(x, folded, (tail, 0.5, 1 - tail))
    lower, upper = 2.0 ** min(lower, least), 2.0 ** max(upper, most)
    return Band("trend", x.size, lower, 2.0**expected, upper, level=level)


def growth(logs: Mapping[float, Floats], scale: float, prior: Slope = COLLECTIVE) -> Drift:
    """Growth of interval lengths from the largest scale to `scale`. logs: binary logarithms in input order, by scale.

    The posterior of the slope under a normal prior and normal observations, one per pair of neighbouring scales, with
    the regime variances of both; then the extrapolation to `scale`, over which the slope may change once more.
    """
    scales = sorted(logs)
    regime = {own: _regime(logs[own]) for own in scales}
    slopes, widths, noises = [], [], []
    for smaller, larger in pairwise(scales):
        width = math.log2(larger / smaller)
        slopes.append(float(np.median(logs[larger]) - np.median(logs[smaller])) / width)
        widths.append(width)
        noises.append(REGIMES / 2 * (regime[smaller] + regime[larger]) / width**2)
    change = CHANGE
    if slopes:
        change = CHANGE_RATIO * math.sqrt(math.fsum(s * s for s in slopes) / len(slopes))
        change = min(CHANGE, max(CHANGE_FLOOR, change))
    precision = max(prior.error, OBSERVED_SLOPE_ERROR if slopes else 0.0) ** -2
    total = prior.mean * precision
    for slope, width, noise in zip(slopes, widths, noises, strict=True):
        one = 1 / (change**2 / width + noise)
        precision += one
        total += slope * one
    distance = math.log2(scale / scales[-1])
    variance = distance**2 / precision + change**2 * distance + REGIMES * regime[scales[-1]]
    return Drift(total / precision * distance, math.sqrt(variance))


def _logs(scale: float, sample: npt.ArrayLike) -> Floats:
    if not 0 < scale < math.inf:
        raise ValueError(f"scale is {scale}, expected a finite number above 0")
    x = check_sample(sample, 1)
    if (bad := x <= 0).any():
        raise ValueError(f"value {int(np.argmax(bad))} at scale {scale:g} is {x[bad][0]}, expected more than 0")
    return np.log2(x)


def _regime(logs: Floats) -> float:
    """Variance of the medians of consecutive pieces."""
    if logs.size < 2 * BLOCKS:
        return float(logs.var())
    return float(np.var([np.median(block) for block in np.array_split(logs, BLOCKS)], ddof=1))


def _quantiles(values: Floats, mass: Floats, levels: tuple[float, ...]) -> list[float]:
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(mass[order])
    at = np.minimum(np.searchsorted(upto, np.array(levels) * upto[-1]), values.size - 1)
    found: list[float] = values[order[at]].tolist()
    return found
