"""Gaussian processes: the likelihood of observations, the last value given the others, and a curvature that fades."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats

FADES: Final = 0.5
"""Correlation of curvatures one doubling apart."""
STEPS: Final = 8
"""Points of the curvature's grid per doubling."""


def log_likelihood(errors: Floats, covariance: Floats) -> float:
    """Log likelihood of (m,) differences from the prior mean, but for a constant. covariance: (m, m), with noise."""
    factor = np.linalg.cholesky(covariance)
    whitened = np.linalg.solve(factor, errors)
    return float(-0.5 * whitened @ whitened - np.log(np.diag(factor)).sum())


def last_given(y: Floats, mean: Floats, covariance: Floats, noise: Floats) -> tuple[float, float]:
    """Mean and variance of the last of m + 1 values without its noise.

    y: (m,), observations of the others. mean: (m + 1,) and covariance: (m + 1, m + 1), of the prior without noise.
    noise: (m,), variances of the observations.
    """
    gain = np.linalg.solve(covariance[:-1, :-1] + np.diag(noise), covariance[:-1, -1])
    return float(mean[-1] + gain @ (y - mean[:-1])), float(covariance[-1, -1] - gain @ covariance[:-1, -1])


@lru_cache(maxsize=1024)
def bending(x: tuple[float, ...]) -> tuple[Floats, Floats]:
    """Mean and covariance at each x of the double integral from x[0], for a curvature of mean and deviation 1."""
    points = np.array(x) - x[0]
    low, high = min(0.0, float(points.min())), max(float(points.max()), 1e-9)
    count = max(1, round((high - low) * STEPS))
    width = (high - low) / count
    u = low + (np.arange(count) + 0.5) * width
    # Left of the first point, the integral runs backwards.
    reach = np.where(u > 0, np.maximum(points[:, None] - u, 0.0), np.maximum(u - points[:, None], 0.0)) * width
    return reach.sum(axis=1), reach @ FADES ** np.abs(u[:, None] - u) @ reach.T
