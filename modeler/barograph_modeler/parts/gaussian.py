"""Gaussian processes: the likelihood of observations, and the last value given the others."""

from __future__ import annotations

import numpy as np

from barograph_modeler.maxima.sample import Floats


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
