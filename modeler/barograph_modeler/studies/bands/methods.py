"""The methods that are compared: the paper's, simple baselines, and Barograph's own."""

from __future__ import annotations

from typing import Final

import numpy as np

from barograph_modeler.maxima.band import LEVEL, Band, empirical_band, minimum_samples
from barograph_modeler.maxima.fits.bootstrap import pwm_replicas
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES, fit_pwm
from barograph_modeler.maxima.predictive import Predictive, SeriesLimits
from barograph_modeler.maxima.runtime import runtime_band
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.bands.method import SEED, BandMethod, Fit, HasLimits, Range, of_largest
from barograph_modeler.studies.bands.parametric import PARAMETRIC, quantiles
from barograph_modeler.studies.maxima.nearest import nearest_band
from barograph_modeler.studies.maxima.scaling import emmas, maximum_band, percentile_interval
from barograph_modeler.studies.maxima.trend import trend_band


def _emma(sample: Floats, factor: float = 1.0) -> HasLimits | None:
    if sample.size < MINIMUM_SAMPLES:
        return None
    return percentile_interval(emmas(pwm_replicas(sample, seed=SEED), factor), LEVEL)


def _range(sample: Floats) -> HasLimits | None:
    return Range(float(sample.min()), float(sample.max())) if sample.size > 1 else None


def _static(sample: Floats) -> Band | None:
    if sample.size >= minimum_samples():
        return nearest_band(sample)
    return runtime_band(sample) if (sample > 0).all() else None


def _follow(values: Floats) -> SeriesLimits:
    return Predictive().learn(values)


_gev = quantiles(fit_pwm)

METHODS: Final = (
    BandMethod(
        "nonparametric",
        "the paper's resampling, exactly: order statistics of F ** m",
        fit=lambda x: maximum_band(x, 1.0) if x.size > 1 else None,
        project=of_largest(lambda x, factor: maximum_band(x, factor) if x.size > 1 else None),
    ),
    BandMethod(
        "emma",
        "the paper's parametric bootstrap: percentiles of 1,000 EMMA projections, an interval for the mean",
        fit=_emma,
        project=of_largest(_emma),
        refits=False,
    ),
    BandMethod("gev", "quantiles of the fitted GEV, scaled up by max-stability", fit=_gev, project=of_largest(_gev)),
    BandMethod(
        "empirical",
        "quantiles of the sample as if values were independent; scaled up, those of the largest scale seen",
        fit=empirical_band,
        project=of_largest(lambda x, _: empirical_band(x)),
    ),
    BandMethod(
        "range", "smallest to largest value of the history", fit=_range, project=of_largest(lambda x, _: _range(x))
    ),
    BandMethod(
        "barograph",
        "half: one band fixed at the half; prequential: steered limits, as the daemon; scaled up: trend and F ** m",
        fit=_static,
        follow=_follow,
        project=trend_band,
    ),
    BandMethod(
        "barograph-live",
        "half: the daemon's limits, which go on learning from every value of the second half once it is scored",
        follow=_follow,
        continued=True,
    ),
    *PARAMETRIC,
)


def refit(fit: Fit, values: Floats, growth: float = 1.05) -> SeriesLimits:
    """For each value the limits fitted to those before it; fitted again once there are `growth` times as many."""
    lower, upper = np.full(values.size, np.nan), np.full(values.size, np.nan)
    start = 2
    while start < values.size:
        end = min(max(int(start * growth), start + 1), values.size)
        if (band := fit(values[:start])) is not None:
            lower[start:end], upper[start:end] = band.lower, band.upper
        start = end
    return SeriesLimits(lower, upper)
