"""The likelihood of each shape given the runs of one problem, and each shape's prediction at other scales.

Log time is modelled as a shape, plus a random walk over log ranks for the misfit of the shape, plus noise. Steps
between scales are independent, errors at small scales do not propagate, the prediction starts from the nearest scales,
and its variance grows with the distance. The likelihood is a product of one-step forecasts, each scale predicted from
the smaller ones (Dawid 1984): shapes are weighted by how well they extrapolate.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.configurations import Configurations
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.shapes import Rows, log_times, log_times_of_size


class Misfit(NamedTuple):
    """How scales leave a shape. odds: prior odds.

    noise: variance of a run relative to that of the walk over a factor of e in ranks; divided by the runs at a scale.
    stays: share of that variance that repeated runs do not reduce.
    """

    noise: float
    stays: float
    odds: float


MISFITS: Final = (Misfit(0.08, 0.05, 1.0), Misfit(10.0, 1.0, 20.0))
"""A curve that drifts away from its shape and is measured well, and one that keeps its shape and has scales that were
measured on a bad day: odds by the ten public sets."""
FREEDOM: Final = 4.0
"""Degrees of freedom of the prior on the spread."""


class ShapeForecast(NamedTuple):
    """Log seconds at one scale, as predicted by each shape."""

    means: Floats
    spreads: Floats


class FittedShapes(NamedTuple):
    """Shapes, fitted to the runs of one problem and one size. Arrays have a row per shape.

    residuals: decorrelated differences of log times and log shapes, (shapes, scales). level: log seconds of the whole
    work on one rank. squares: what is left of the residuals. volume: what the likelihoods share. freedom: degrees.
    """

    residuals: Floats
    level: Floats
    squares: Floats
    volume: float
    freedom: float

    def spread(self, expected: float) -> Floats:
        """Spread of the walk over a factor of e in ranks, in log seconds. expected: its prior mean."""
        return np.asarray(np.sqrt((FREEDOM * expected**2 + self.squares) / self.freedom))

    def log_likelihood(self, expected: float) -> Floats:
        """Log likelihood of each shape, but for a term that all evidence of the same runs shares.

        The marginal likelihood over the spread, whose square has a scaled inverse chi-square prior of FREEDOM degrees
        (Gelman et al., Bayesian Data Analysis, section 2.6): its normaliser is FREEDOM log expected.
        """
        return np.asarray(self.volume + FREEDOM * np.log(expected) - self.freedom * np.log(self.spread(expected)))


class ShapeEvidence:
    """Evidence from the runs of one problem and one size."""

    def __init__(self, runs: Runs, misfit: Misfit = MISFITS[0]) -> None:
        known = Configurations.of(runs)
        self.misfit = misfit
        self.scales = known.ranks
        self.runs = len(runs)
        self._x, self._y = known.log_ranks, known.log_seconds
        # The level is free, so the walk starts at the smallest scale.
        walk = np.minimum(self._x[:, None], self._x[None]) - self._x[0]
        self._repeats = known.variance
        self._inverse = np.linalg.inv(
            np.linalg.cholesky(walk + misfit.noise * np.diag(1 / known.repeats + misfit.stays))
        )
        self._one = self._inverse.sum(axis=1)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the predictive distribution."""
        return FREEDOM + self.scales.size - 1

    def fitted(self, chosen: Rows = slice(None)) -> FittedShapes:
        """The shapes, fitted to the runs. Not kept, since all of them are a hundred kilobytes."""
        residuals = self._residuals(chosen)
        norm = self._one @ self._one
        level = residuals @ self._one / norm
        squares = ((residuals - level[:, None] * self._one) ** 2).sum(axis=1)
        volume = float(np.log(np.diag(self._inverse)).sum() - 0.5 * np.log(norm))
        return FittedShapes(residuals, level, squares, volume, self.freedom)

    def at(self, ranks: float, expected: float, chosen: Rows = slice(None)) -> ShapeForecast:
        """Log seconds of another run on `ranks` ranks. expected: as for spread. chosen: the shapes to predict with."""
        x = float(np.log(ranks))
        # Below the smallest scale the walk is independent of the walk above it.
        shared = self._inverse @ np.maximum(np.minimum(self._x, x) - self._x[0], 0.0)
        fitted = self.fitted(chosen)
        means = (
            log_times_of_size(ranks, 0.0, chosen) + fitted.level * (1 - self._one @ shared) + fitted.residuals @ shared
        )
        unknown = (1 - self._one @ shared) ** 2 / (self._one @ self._one)
        walked = abs(x - self._x[0]) - shared @ shared
        variance = float(walked + unknown) + self.misfit.noise * (1 + self.misfit.stays)
        return ShapeForecast(means, np.sqrt(fitted.spread(expected) ** 2 * variance + self._repeats))

    def _residuals(self, chosen: Rows) -> Floats:
        """Decorrelated differences of log times and log shapes: (shapes, scales)."""
        shapes = np.stack([log_times(float(scale))[chosen] for scale in self.scales], axis=1)
        return np.asarray((self._y - shapes) @ self._inverse.T)
