"""A law of one part over ranks and size: in logarithms a line whose slope changes, and whose changes fade.

    log2 T = level + g log2 n + slope x + double integral of c(u) + noise,     x = log2 p - e log2 n

p: ranks. n: size; where several numbers make it up, their product in x, each with its own g. With e = 1, parts depend
on the work per rank, and what small problems show on few ranks holds for large ones on many. The curvature c is an
Ornstein-Uhlenbeck process with mean `bend`, standard deviation `tau` and correlation FADES per doubling of ranks. Far
out the slope that was seen last continues, which is the damped trend of Gardner and McKenzie (1985). Shapes with few
parameters add a floor to each part, and the floors of many parts sum up; a trend adds none that was not seen.

The hyperparameters e, `bend`, `tau` and the noise are averaged over a grid, weighted by the likelihood of all problems
that have the part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.parts.gaussian import bending, last_given, log_likelihood
from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.scaling.pool import relevant

BENDS: Final = (0.0, 0.05)
BENDS_OF_TOTAL: Final = (0.0, 0.05, 0.1)
"""Mean curvatures in slope per doubling, where time falls as 1/p: curves of strong scaling get flatter. In proportion
less where time falls more slowly, and 0 where it does not fall. A sum of laws
bends more than each of them."""
TAUS: Final = (0.02, 0.06, 0.2)
NEARLY_STRAIGHT: Final = (0.0, 0.02)
NOISES: Final = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Standard deviations of a scale about the curve, in log2 seconds; of repeats the measured variance is added."""
USUAL_NOISE: Final = 0.05
"""Scale of the Cauchy prior of the noise."""
EXPONENTS: Final = (0.0, 0.5, 1.0, 2.0, 3.0)
"""Values of e, where there are several sizes."""
SLOPE: Final = -0.5
SLOPE_SPREAD: Final = 0.8
SIZE_SPREAD: Final = 1.5
"""Standard deviation of g."""
LEVEL_SPREAD: Final = 30.0
FREEDOM: Final = 6.0
"""Degrees of freedom of the answer."""


class _Series(NamedTuple):
    """Known configurations of one part, in log2. x: (m,) ranks. z: (m, k) sizes. y: (m,) seconds.

    repeats: (m,), variances of medians of repeats. fall: minus the slope over ranks, between 0 and 1.
    """

    x: Floats
    z: Floats
    y: Floats
    repeats: Floats
    fall: float


class _Point(NamedTuple):
    """Hyperparameters."""

    exponent: float
    bend: float
    tau: float
    noise: float


class Trends:
    """Trends of one part in all problems that have it. problems: runs with the seconds of the part."""

    def __init__(
        self, problems: Mapping[str, Runs], bends: Sequence[float] = BENDS, taus: Sequence[float] = TAUS
    ) -> None:
        self._series = {name: _series(runs) for name, runs in problems.items()}
        sized = any(np.ptp(one.z, axis=0).any() for one in self._series.values())
        self._grid = [_Point(*row) for row in product(EXPONENTS if sized else (0.0,), bends, taus, NOISES)]
        likelihoods = np.sum([[_log_likelihood(one, at) for at in self._grid] for one in self._series.values()], axis=0)
        likelihoods = likelihoods - [np.log1p((at.noise / USUAL_NOISE) ** 2) for at in self._grid]
        chosen, self._weights = relevant(np.exp(likelihoods - likelihoods.max()))
        self._chosen = [self._grid[i] for i in chosen]

    def at(self, problem: str, ranks: float, sizes: Floats) -> Mixture:
        """Log seconds of the part on `ranks` ranks, for a size of k numbers. KeyError for an unknown problem."""
        series, x, z = self._series[problem], float(np.log2(ranks)), np.log2(sizes)
        found = np.array([_predict(series, x, z, point) for point in self._chosen]) * np.log(2)
        return Mixture(self._weights, found[:, 0], np.maximum(found[:, 1], 1e-6), FREEDOM)


def _series(runs: Runs) -> _Series:
    known = Configurations.of(runs)
    x, z, y = (logs / np.log(2) for logs in (known.log_ranks, known.log_sizes, known.log_seconds))
    slopes = np.linalg.lstsq(np.column_stack([x - x.mean(), z - z.mean(axis=0)]), y - y.mean(), rcond=None)[0]
    repeats = known.variance / known.repeats / np.log(2) ** 2
    return _Series(x, z, y, repeats, float(np.clip(-slopes[0], 0.0, 1.0)))


def _moments(x: Floats, z: Floats, fall: float, point: _Point) -> tuple[Floats, Floats]:
    """Prior mean and covariance of log2 seconds, without noise."""
    at = x - point.exponent * z.sum(axis=1)
    mean, covariance = bending(tuple(at.tolist()))
    along, sizes = at - at[0], z - z[0]
    prior = LEVEL_SPREAD**2 + SLOPE_SPREAD**2 * np.outer(along, along) + SIZE_SPREAD**2 * sizes @ sizes.T
    return SLOPE * along + fall * point.bend * mean, prior + point.tau**2 * covariance


def _log_likelihood(series: _Series, point: _Point) -> float:
    mean, covariance = _moments(series.x, series.z, series.fall, point)
    return log_likelihood(series.y - mean, covariance + np.diag(point.noise**2 + series.repeats))


def _predict(series: _Series, x: float, z: Floats, point: _Point) -> tuple[float, float]:
    """Mean and standard deviation of log2 seconds of another run."""
    both = np.append(series.x, x), np.vstack([series.z, z])
    mean, covariance = _moments(*both, series.fall, point)
    expected, variance = last_given(series.y, mean, covariance, point.noise**2 + series.repeats)
    return expected, float(np.sqrt(max(variance + point.noise**2 + series.repeats.max(), 0.0)))
