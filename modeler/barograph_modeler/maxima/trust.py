"""Whether a GEV describes a sample, and of which type.

The fits by probability-weighted moments and by moments have the same shape if the sample is of a GEV, and different
ones if it is a mixture or has outliers. The paper trusts a fit where both agree; here agreement is tested against
their bootstrap errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from barograph_modeler.maxima.distribution import Gev, Gevs, TypeName
from barograph_modeler.maxima.fits.bootstrap import pairs_of_replicas
from barograph_modeler.maxima.fits.moments import HEAVIEST, SHAPE_ENDS, fit_moms
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES, SHAPE_RANGE, fit_pwms
from barograph_modeler.maxima.sample import check_sample

ERROR_REPLICAS: Final = 200
"""Efron (1987): enough for a standard error."""


@dataclass(frozen=True)
class Shape:
    """A fitted shape k with its standard error, confidence limits and type.

    type_name: "gumbel" if 0 lies within `lower` to `upper`, so that the sign of k is not significant.
    """

    k: float
    error: float
    lower: float
    upper: float
    type_name: TypeName


@dataclass(frozen=True)
class FitVerdict:
    """Both fits of a sample with their shapes, whether the GEV is trusted, and why: one line with the numbers.

    If it is not trusted, bands should be non-parametric. replicas: PWM fits of the resamples.
    """

    pwm: Gev
    mom: Gev
    pwm_shape: Shape
    mom_shape: Shape
    trusted: bool
    reason: str
    replicas: Gevs = field(repr=False, compare=False)


def classify(k: float, error: float, level: float = 0.95) -> Shape:
    """The type of a shape k with a standard error, by the normal interval of `level`, between 0 and 1."""
    if not (error >= 0 and math.isfinite(error)):
        raise ValueError(f"standard error is {error}, expected a finite number of at least 0")
    if not 0 < level < 1:
        raise ValueError(f"level is {level}, expected a number between 0 and 1, both excluded")
    reach = float(ndtri((1 + level) / 2)) * error
    lower, upper = k - reach, k + reach
    type_name: TypeName = "gumbel" if lower <= 0 <= upper else "frechet" if k < 0 else "weibull"
    return Shape(k, error, lower, upper, type_name)


def judge(sample: npt.ArrayLike, *, seed: int, replicas: int = ERROR_REPLICAS, level: float = 0.95) -> FitVerdict:
    """Fit a sample by PWM and by moments, and decide whether the fits agree.

    Neither shape may lie at an end of its range: the true shape may be outside, and the errors are too large to reject
    anything. The fits agree on k if the difference lies within the `level` interval of its error,
    sqrt(e1**2 + e2**2), and on the type unless one is significantly Frechet and the other Weibull.
    sample: as for fit_pwm. replicas: at least 2.
    A constant sample has no shape and is not trusted. Raises ValueError for other arguments.
    """
    (verdict,) = judge_all(check_sample(sample, MINIMUM_SAMPLES)[None], seed=seed, replicas=replicas, level=level)
    return verdict


def judge_all(
    samples: npt.ArrayLike, *, seed: int, replicas: int = ERROR_REPLICAS, level: float = 0.95
) -> list[FitVerdict]:
    """`judge` of many samples of one size, one per row, with the same results in a fraction of the time."""
    if replicas < 2:
        raise ValueError(f"replicas are {replicas}, expected at least 2")
    pwms, moms = fit_pwms(samples), fit_moms(samples)
    pairs = pairs_of_replicas(samples, replicas, seed=seed)
    return [_judge(pwms[row], moms[row], pair, level) for row, pair in enumerate(pairs)]


def _judge(pwm: Gev, mom: Gev, pairs: tuple[Gevs, Gevs], level: float) -> FitVerdict:
    shapes = [classify(fit.shape, _error(gevs), level) for fit, gevs in zip((pwm, mom), pairs, strict=True)]
    trusted, reason = _compare(shapes[0], shapes[1], level)
    if pwm.scale == 0:
        trusted, reason = False, "all values are equal"
    elif not SHAPE_RANGE[0] < pwm.shape < SHAPE_RANGE[1]:
        trusted, reason = False, f"shape {pwm.shape:.3f} (PWM) is at the end of its range"
    elif not HEAVIEST + 1e-3 < mom.shape < SHAPE_ENDS[1]:
        trusted, reason = False, f"shape {mom.shape:.3f} (MOM) is at the end of its range"
    return FitVerdict(pwm, mom, shapes[0], shapes[1], trusted, reason, pairs[0])


def _compare(pwm: Shape, mom: Shape, level: float) -> tuple[bool, str]:
    if {pwm.type_name, mom.type_name} == {"frechet", "weibull"}:
        return False, f"PWM says {pwm.type_name}, MOM says {mom.type_name}"
    apart = abs(pwm.k - mom.k)
    reach = float(ndtri((1 + level) / 2)) * math.hypot(pwm.error, mom.error)
    text = f"shapes {pwm.k:.3f} (PWM) and {mom.k:.3f} (MOM) differ by {apart:.3f}"
    return (True, f"{text}, within {reach:.3f}") if apart <= reach else (False, f"{text}, more than {reach:.3f}")


def _error(replicas: Gevs) -> float:
    return float(np.std(replicas.shape, ddof=1))
