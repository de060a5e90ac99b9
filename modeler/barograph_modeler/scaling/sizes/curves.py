"""Runtime over ranks and size: one shape of `shapes.py` for all sizes of a problem.

    T(p, N) = w N**a (work(p)**blend + (u N**(a d) overhead(p))**blend) ** (1 / blend)

with the shapes of one size. a: exponents of the work, one for each number that makes up the size, integrated out like
the level w. d: how overhead grows beside the work, a grid: 0 if it grows like the work, -1/3 like the surface of a
volume, -1 if it does not grow (a latency, a collective of one number). As in `evidence.py`, log time is the shape, plus
a random walk for its misfit, here over log ranks and over log work, plus noise.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.evidence import FREEDOM, MISFITS
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.scaling.pool import SPREAD, posterior, relevant
from barograph_modeler.scaling.shapes import SHAPES, Rows, log_prior, log_times_of_size

OVERHEADS: Final = ((-1.0, 0.4), (-2 / 3, 0.2), (-1 / 3, 0.2), (0.0, 0.2))
"""d, and its prior."""
GROWING_WITH_WORK: Final = 0.1
"""Prior odds of overhead that grows with the ranks and with the work: rare, unlike each alone."""
EXPONENT, EXPONENT_SPREAD = 1.0, 1.0
FALL, FALL_SPREAD = 0.9, 0.3
RESIDUAL: Final = 0.1
"""Priors of the first estimate of a, a line in logarithms: exponents, fall with the ranks, log seconds beside it."""
REFINED: Final = 0.3
"""Relative spread of a about its first estimate, for the expected misfit."""
MIN_EXPONENT: Final = 0.3
"""Exponents below it have the spread of this one."""
SIZE_WALK: Final = 1.0
"""Variance of the random walk over a factor of e in work, over that in ranks."""
NOISE, STAYS, _ = MISFITS[0]


class SizedCurves:
    """The shapes of a problem over ranks and size, weighted by the configurations that were run."""

    def __init__(self, known: Configurations) -> None:
        self._x = known.log_ranks
        largest = known.log_ranks == known.log_ranks[-1]
        self._origin: Floats = known.log_sizes[largest].mean(axis=0)
        n = known.log_sizes - self._origin
        self._exponents = _first_exponents(known, n)
        self._work: Floats = n @ self._exponents
        walk = self._walk(self._x[:, None], self._work[:, None])
        self._inverse = np.linalg.inv(np.linalg.cholesky(walk + NOISE * np.diag(1 / known.repeats + STAYS)))
        self._repeats = known.variance
        self.freedom = FREEDOM + len(known) - 1
        """Degrees of freedom of the predictive distribution."""
        # The level has no prior; each exponent has one, as a further row of the regression.
        self._design = self._inverse @ np.column_stack([np.ones(len(known)), n])
        spreads = REFINED / SPREAD * np.maximum(np.abs(self._exponents), MIN_EXPONENT)
        design = np.vstack([self._design, np.column_stack([np.zeros(spreads.size), np.diag(1 / spreads)])])
        self._covariance: Floats = np.linalg.inv(design.T @ design)

        def fitted(d: float, chosen: Rows) -> tuple[Floats, Floats, Floats]:
            """Residuals, coefficients and squares of some shapes."""
            places = zip(self._x, self._work, strict=True)
            shapes = np.stack([log_times_of_size(np.exp(x), d * w, chosen) for x, w in places], axis=1)
            left = (known.log_seconds - shapes) @ self._inverse.T
            rows = np.hstack([left, np.broadcast_to(self._exponents / spreads, (len(left), spreads.size))])
            found = rows @ design @ self._covariance
            return left - found @ self._design.T, found, ((rows - found @ design.T) ** 2).sum(axis=1)

        general = log_prior(None if known.is_series else float(known.ranks[-1]))
        squares, prior = [], []
        for d, odds in OVERHEADS:
            squares.append(fitted(d, slice(None))[2])
            unusual = np.where((SHAPES.growth > 0) & (d > -1), np.log(GROWING_WITH_WORK), 0.0)
            prior.append(np.log(odds) + unusual + general)
        spread = np.sqrt((FREEDOM * SPREAD**2 + np.concatenate(squares)) / self.freedom)
        chosen, self._weights = relevant(posterior(-self.freedom * np.log(spread), np.concatenate(prior)))
        self._overhead, self._shape = np.divmod(chosen, SHAPES.fall.size)
        self._spread: Floats = spread[chosen]
        # Those of all shapes take megabytes.
        kept = [fitted(d, self._shape[self._overhead == i])[:2] for i, (d, _) in enumerate(OVERHEADS)]
        self._residuals: Floats = np.concatenate([left for left, _ in kept])
        self._coefficients: Floats = np.concatenate([found for _, found in kept])

    def at(self, ranks: float, size: Floats) -> Mixture:
        """Log seconds of another run. size: (k,), as in the configurations, above 0."""
        x, n = float(np.log(ranks)), np.log(size) - self._origin
        work = float(n @ self._exponents)
        shared = self._inverse @ self._walk(x, work)
        shapes = np.empty(self._shape.size)
        for i, (d, _) in enumerate(OVERHEADS):
            mine = self._overhead == i
            shapes[mine] = log_times_of_size(ranks, d * work, self._shape[mine])
        row = np.concatenate([[1.0], n])
        means = shapes + self._coefficients @ row + self._residuals @ shared
        rest = row - self._design.T @ shared
        walked = float(self._distance(x, work) - shared @ shared)
        variance = walked + float(rest @ self._covariance @ rest) + NOISE * (1 + STAYS)
        return Mixture(self._weights, means, np.sqrt(self._spread**2 * variance + self._repeats), self.freedom)

    def _walk(self, x: Floats | float, work: Floats | float) -> Floats:
        """Covariances of the walks at some places with those at the configurations, from the first of them on."""
        ranks = _shared_steps(x, self._x, self._x[0])
        return np.asarray(ranks + SIZE_WALK * _shared_steps(work, self._work, self._work[0]))

    def _distance(self, x: float, work: float) -> float:
        return float(abs(x - self._x[0]) + SIZE_WALK * abs(work - self._work[0]))


def _shared_steps(a: Floats | float, b: Floats, origin: float) -> Floats:
    """Covariance of a random walk that begins at `origin` in both directions."""
    return np.asarray(0.5 * (np.abs(a - origin) + np.abs(b - origin) - np.abs(a - b)))


def _first_exponents(known: Configurations, n: Floats) -> Floats:
    """Exponents of the work: a line of log seconds over log ranks and log sizes, with priors. n: (m, k), centred."""
    design = np.column_stack([np.ones(len(known)), -known.log_ranks, n])
    count = n.shape[1]
    precision = np.array([0.0, FALL_SPREAD**-2, *[EXPONENT_SPREAD**-2] * count])
    mean = np.array([0.0, FALL, *[EXPONENT] * count])
    information = design.T @ design / RESIDUAL**2 + np.diag(precision)
    moment = design.T @ known.log_seconds / RESIDUAL**2 + precision * mean
    return np.asarray(np.linalg.solve(information, moment)[2:])
