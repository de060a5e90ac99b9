"""The band methods that the back-test compares: the paper's, simple baselines, and Barograph's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import genextreme

from barograph_lab.studies.maxima.nodes import expected_maximum
from barograph_modeler.maxima.band import LEVEL, Band, band_of_gev, empirical_band, minimum_samples
from barograph_modeler.maxima.distribution import Gev
from barograph_modeler.maxima.fits.bootstrap import pwm_replicas
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES, fit_pwm
from barograph_modeler.maxima.predictive import Predictive, SeriesLimits
from barograph_modeler.maxima.runtime import MINIMUM_RUNS, runtime_band, runtime_limits
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.maxima.scaling import Projection, emmas, maximum_band, percentile_interval
from barograph_modeler.maxima.trend import trend_band

SEED: Final = 1
MAX_LIKELIHOOD_SHAPE: Final = 0.95


Limits = Band | Projection
"""Lower and upper limit, both inside the band, in the unit of the values."""
Fit = Callable[[Floats], Limits | None]


@dataclass(frozen=True)
class BandMethod:
    """A method and its operations; None for an operation that it lacks.

    fit: a band for later values from a history. follow: for each value of a series the limits learned from the values
    before it, by a method that updates itself; without it and with `refits`, `fit` is repeated. project: a band at a
    larger scale from samples by scale. continued: in a half-half comparison `follow` goes on learning from scored
    values.
    """

    name: str
    help: str
    fit: Fit | None = None
    follow: Callable[[Floats], SeriesLimits] | None = None
    project: Callable[[Mapping[float, Floats], float], Limits | None] | None = None
    refits: bool = True
    continued: bool = False


def fit_gumbel(sample: Floats) -> Gev:
    """The Gumbel distribution with the sample's first two L-moments: Hosking (1990), JRSS B 52(1), table 2."""
    gaps, below = np.diff(np.sort(sample)), np.arange(1, sample.size)
    # l2 = 2 b1 - b0 as a sum over gaps between neighbouring values: every term is at least 0.
    l_scale = gaps @ (below * (sample.size - below)) / (sample.size * (sample.size - 1))
    scale = float(l_scale) / math.log(2)
    return Gev(0.0, float(sample.mean()) - np.euler_gamma * scale, scale)


def fit_mle(sample: Floats) -> Gev:
    """The GEV of maximum likelihood, by scipy from the fit by PWM; that fit without a maximum, as k tends to 1."""
    start = fit_pwm(sample)
    found = genextreme.fit(sample, start.shape, loc=start.location, scale=start.scale) if start.scale > 0 else ()
    return Gev(*map(float, found)) if found and abs(found[0]) < MAX_LIKELIHOOD_SHAPE else start


def _static(sample: Floats) -> Band | None:
    if sample.size >= minimum_samples():
        return empirical_band(sample)
    return runtime_band(sample) if (sample > 0).all() else None


def _method(
    name: str,
    text: str,
    band: Callable[[Floats, float], Limits | None],
    *,
    fewest: int = MINIMUM_SAMPLES,
    refits: bool = True,
) -> BandMethod:
    """A method of one sample and a scale factor, which projects from the largest scale seen.

    fewest: values below which there is no band.
    """

    def fit(sample: Floats, factor: float = 1.0) -> Limits | None:
        return band(sample, factor) if sample.size >= fewest else None

    return BandMethod(
        name,
        text,
        fit=fit,
        project=lambda samples, scale: fit(samples[max(samples)], scale / max(samples)),
        refits=refits,
    )


def _gev_quantiles(fit: Callable[[Floats], Gev]) -> Callable[[Floats, float], Band]:
    return lambda sample, factor: band_of_gev(fit(sample).scaled_up(factor), sample.size)


METHODS: Final = (
    _method("nonparametric", "the paper's resampling, exactly: order statistics of F ** m", maximum_band, fewest=2),
    _method(
        "emma",
        "the paper's parametric bootstrap: percentiles of 1,000 EMMA projections, an interval for the mean",
        lambda sample, factor: percentile_interval(emmas(pwm_replicas(sample, seed=SEED), factor), LEVEL),
        refits=False,
    ),
    _method("gev", "quantiles of the fitted GEV, scaled up by max-stability", _gev_quantiles(fit_pwm)),
    _method(
        "empirical",
        "quantiles of the sample as if values were independent; scaled up, those of the largest scale seen",
        lambda sample, _: empirical_band(sample),
    ),
    _method(
        "range",
        "smallest to largest value of the history",
        lambda sample, _: Projection(float(sample.min()), float(np.median(sample)), float(sample.max()), 0),
        fewest=2,
    ),
    BandMethod(
        "barograph",
        "half: one band fixed at the half; prequential: steered limits, as the daemon; scaled up: trend and F ** m",
        fit=_static,
        follow=lambda values: Predictive().learn(values),
        project=trend_band,
    ),
    BandMethod(
        "runtimes",
        "the limits of whole runs, from three on: Student's t of the logarithms, with a prior of their spread",
        fit=lambda sample: runtime_limits(sample) if sample.size >= MINIMUM_RUNS and (sample > 0).all() else None,
    ),
    BandMethod(
        "barograph-live",
        "half: the daemon's limits, which go on learning from every value of the second half once it is scored",
        follow=lambda values: Predictive().learn(values),
        continued=True,
    ),
    _method(
        "gev-mle",
        "quantiles of the GEV fitted by maximum likelihood, scaled up by max-stability",
        _gev_quantiles(fit_mle),
        refits=False,
    ),
    _method(
        "gumbel",
        "quantiles of the Gumbel with the sample's L-moments: two parameters, for short histories",
        _gev_quantiles(fit_gumbel),
    ),
    _method(
        "emma-drawn",
        "the paper's bootstrap by node, of one node: 1,000 series drawn from the fitted GEV, an interval for the mean",
        lambda sample, factor: expected_maximum(sample[None], factor, seed=SEED, level=LEVEL),
        refits=False,
    ),
)


def refit(fit: Fit, values: Floats, growth: float = 1.05) -> SeriesLimits:
    """For each value the limits fitted to the values before it; refitted once there are `growth` times as many."""
    lower, upper = np.full(values.size, np.nan), np.full(values.size, np.nan)
    start = 2
    while start < values.size:
        end = min(max(int(start * growth), start + 1), values.size)
        if (band := fit(values[:start])) is not None:
            lower[start:end], upper[start:end] = band.lower, band.upper
        start = end
    return SeriesLimits(lower, upper)
