"""GEV fits by maximum likelihood, many samples at once, by Newton's method from the fits by moments.

Efficient in large samples; below 50 to 100 values its variance exceeds that of probability-weighted moments (Hosking,
Wallis and Wood 1985), so it is meant for more than 100 values, though it works from MINIMUM_SAMPLES on.
For shapes of 1/2 and more the usual asymptotics fail, and above 1 the likelihood is unbounded (Smith 1985). So a
maximum counts only within LIKELIHOOD_SHAPES.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.distribution import Gev, Gevs
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES, fit_pwms
from barograph_modeler.maxima.sample import Floats, check_sample, check_samples

LIKELIHOOD_SHAPES: Final = (-0.95, 0.95)
ITERATIONS: Final = 60
TOLERANCE: Final = 1e-9
"""Of the gradient per value of the standardised sample: far below the standard error at any sample size."""


@dataclass(frozen=True, eq=False)
class LikelihoodFits:
    """gevs: the fits. log_likelihood: (count,), of the samples in their unit. covariance: (count, 3, 3) of location,
    scale and shape k, from the observed information. converged: False if no maximum was found, as for constant samples;
    then gevs is the fit by probability-weighted moments and the other two are NaN.
    """

    gevs: Gevs
    log_likelihood: Floats
    covariance: Floats
    converged: npt.NDArray[np.bool_]


def fit_mle(sample: npt.ArrayLike) -> Gev:
    """Fit one sample of at least MINIMUM_SAMPLES finite values. Without a maximum, the fit is that of pwm.fit_pwm."""
    return fit_mles(check_sample(sample, MINIMUM_SAMPLES)[None]).gevs[0]


def fit_mles(samples: npt.ArrayLike) -> LikelihoodFits:
    """Fit many samples of one size, one per row: (count, n). They are not modified. Errors as pwm.fit_pwms."""
    x = check_samples(samples, MINIMUM_SAMPLES)
    start = fit_pwms(x)
    n = x.shape[1]
    unit = np.where(start.scale > 0, start.scale, 1.0)
    z = (x - start.location[:, None]) / unit[:, None]
    # Parameters for the standardised sample: location, log scale, shape.
    theta = np.stack([np.zeros(len(x)), np.zeros(len(x)), np.clip(start.shape, -0.9, 0.9)], axis=1)
    outside = ~np.isfinite(_loss(z, theta))
    theta[outside, 2] = 0.0  # a Gumbel has unbounded support
    varied = start.scale > 0
    done = _newton(z, theta, varied)
    _, hessian = _derivatives(z, theta)
    eigenvalues = np.linalg.eigvalsh(np.where(done[:, None, None], hessian, np.eye(3)))
    done &= (eigenvalues[:, 0] > 0) & (np.abs(theta[:, 2]) < LIKELIHOOD_SHAPES[1])
    scale = unit * np.exp(theta[:, 1])
    gevs = Gevs(
        np.where(done, theta[:, 2], start.shape),
        np.where(done, start.location + unit * theta[:, 0], start.location),
        np.where(done, scale, start.scale),
    )
    jacobian = np.stack([unit, scale, np.ones(len(x))], axis=1)
    covariance = np.linalg.inv(np.where(done[:, None, None], hessian * n, np.eye(3)))
    covariance = covariance * jacobian[:, :, None] * jacobian[:, None, :]
    log_likelihood = np.where(done, -n * (_loss(z, theta) + np.log(unit)), np.nan)
    return LikelihoodFits(gevs, log_likelihood, np.where(done[:, None, None], covariance, np.nan), done)


def _newton(z: Floats, theta: Floats, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Move theta, in place, to a stationary point of the loss where `wanted`. Returns where that was reached."""
    done = np.zeros(len(z), dtype=np.bool_)
    active = np.flatnonzero(wanted)
    loss = _loss(z, theta)
    for _ in range(ITERATIONS):
        if not active.size:
            break
        gradient, hessian = _derivatives(z[active], theta[active])
        reached = np.abs(gradient).max(axis=1) < TOLERANCE
        done[active[reached]] = True
        active, gradient, hessian = active[~reached], gradient[~reached], hessian[~reached]
        values, vectors = np.linalg.eigh(hessian)
        values = np.maximum(np.abs(values), 1e-3)  # a descent direction where the loss is not convex
        step = -np.einsum("sij,sj,skj,sk->si", vectors, 1 / values, vectors, gradient)
        step *= np.minimum(1.0, 0.5 / np.abs(step).max(axis=1))[:, None]
        moved = np.zeros(active.size, dtype=np.bool_)
        for _ in range(30):
            rest = np.flatnonzero(~moved)
            if not rest.size:
                break
            rows = active[rest]
            trial = theta[rows] + step[rest]
            new = _loss(z[rows], trial)
            better = new <= loss[rows] + 1e-15 * np.abs(loss[rows])
            theta[rows[better]], loss[rows[better]] = trial[better], new[better]
            moved[rest[better]] = True
            step[rest[~better]] /= 2
        active = active[moved]
    return done


def _loss(z: Floats, theta: Floats) -> Floats:
    """Negative log-likelihood per value; infinite for a value outside the support or a shape out of range."""
    location, log_scale, k = (theta[:, i, None] for i in range(3))
    u = (z - location) * np.exp(-log_scale)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        y = _reduced(u, k)
        loss = log_scale[:, 0] + ((1 - k) * y + np.exp(-y)).mean(axis=1)
    allowed = (k[:, 0] > LIKELIHOOD_SHAPES[0]) & (k[:, 0] < LIKELIHOOD_SHAPES[1]) & ((k * u).max(axis=1) < 1)
    return np.where(allowed & np.isfinite(loss), loss, math.inf)


def _reduced(u: Floats, k: Floats) -> Floats:
    flat = np.abs(k) < 1e-12
    safe = np.where(flat, 1.0, k)
    return np.where(flat, u, -np.log1p(-safe * np.where(flat, 0.0, u)) / safe)


def _derivatives(z: Floats, theta: Floats) -> tuple[Floats, Floats]:
    """Gradient (count, 3) and Hessian (count, 3, 3) of the loss, inside the support."""
    location, log_scale, k = (theta[:, i, None] for i in range(3))
    inverse = np.exp(-log_scale)
    u = (z - location) * inverse
    w = 1 - k * u
    y = _reduced(u, k)
    e = np.exp(-y)
    a = 1 - k - e
    v = u / w
    # First and second derivative of y by k. The closed forms lose digits for small k u, the series do not.
    near = np.abs(k * u) < 1e-3
    t, safe = np.where(near, k * u, 0.0), np.where(near, 1.0, k)
    y_k = np.where(near, u**2 * (1 / 2 + t * (2 / 3 + t * (3 / 4 + t * 4 / 5))), (v - y) / safe)
    series = u**3 * (2 / 3 + t * (3 / 2 + t * (12 / 5 + t * 10 / 3)))
    y_kk = np.where(near, series, (v**2 - 2 * y_k) / safe)
    slope = a / w
    bend = (e + k * a) / w**2
    cross = (e * y_k - 1 + a * v) / w
    i = inverse[:, 0]
    gradient = np.stack([-slope.mean(1) * i, 1 - (u * slope).mean(1), (a * y_k - y).mean(1)], axis=1)
    hessian = np.empty((len(z), 3, 3))
    hessian[:, 0, 0] = bend.mean(1) * i**2
    hessian[:, 0, 1] = hessian[:, 1, 0] = (u * bend + slope).mean(1) * i
    hessian[:, 1, 1] = (u * slope + u**2 * bend).mean(1)
    hessian[:, 0, 2] = hessian[:, 2, 0] = -cross.mean(1) * i
    hessian[:, 1, 2] = hessian[:, 2, 1] = -(u * cross).mean(1)
    hessian[:, 2, 2] = ((e * y_k - 2) * y_k + a * y_kk).mean(1)
    return gradient, hessian
