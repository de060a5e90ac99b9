"""The methods that are compared: the paper's, simple baselines, and Barograph's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from barograph_modeler.maxima.band import LEVEL, Band, empirical_band, minimum_samples
from barograph_modeler.maxima.fits.bootstrap import pwm_replicas
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES, fit_pwm
from barograph_modeler.maxima.nearest import nearest_band
from barograph_modeler.maxima.predictive import Predictive, SeriesLimits
from barograph_modeler.maxima.runtime import runtime_band
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.maxima.scaleup.scaling import emmas, maximum_band, percentile_interval
from barograph_modeler.maxima.scaleup.trend import trend_band

SEED: Final = 1


class HasLimits(Protocol):
    """A pair of limits."""

    @property
    def lower(self) -> float:
        """The lower limit, in the unit of the values; itself inside."""

    @property
    def upper(self) -> float:
        """The upper limit."""


Fit = Callable[[Floats], HasLimits | None]
Follow = Callable[[Floats], SeriesLimits]
Project = Callable[[Mapping[float, Floats], float], HasLimits | None]


@dataclass(frozen=True)
class BandMethod:
    """What a method can do; None for what it cannot.

    fit: history to a band for later values. follow: for each value the limits learned from those before it, by a
    method that decides itself what to refit; where None and `refits`, fit does it. project: samples by scale and a
    larger scale to a band there. continued: in a half-half comparison it goes on learning from values once scored.
    """

    name: str
    help: str
    fit: Fit | None = None
    follow: Follow | None = None
    project: Project | None = None
    refits: bool = True
    continued: bool = False


@dataclass(frozen=True)
class Range:
    """An interval that is given by its limits."""

    lower: float
    upper: float


def _gev(sample: Floats, factor: float = 1.0) -> HasLimits | None:
    if sample.size < MINIMUM_SAMPLES:
        return None
    gev = fit_pwm(sample).scaled_up(factor)
    tail = (1 - LEVEL) / 2
    return Range(gev.quantile(tail), gev.quantile(1 - tail))


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


def _of_largest(fit: Callable[[Floats, float], HasLimits | None]) -> Project:
    """Projects from the largest scale by the factor to the target."""
    return lambda samples, scale: fit(samples[max(samples)], scale / max(samples))


METHODS: Final = (
    BandMethod(
        "nonparametric",
        "the paper's resampling, exactly: order statistics of F ** m",
        fit=lambda x: maximum_band(x, 1.0) if x.size > 1 else None,
        project=_of_largest(lambda x, factor: maximum_band(x, factor) if x.size > 1 else None),
    ),
    BandMethod(
        "emma",
        "the paper's parametric bootstrap: percentiles of 1,000 EMMA projections, an interval for the mean",
        fit=_emma,
        project=_of_largest(_emma),
        refits=False,
    ),
    BandMethod("gev", "quantiles of the fitted GEV, scaled up by max-stability", fit=_gev, project=_of_largest(_gev)),
    BandMethod(
        "empirical",
        "quantiles of the sample as if values were independent; scaled up, those of the largest scale seen",
        fit=empirical_band,
        project=_of_largest(lambda x, _: empirical_band(x)),
    ),
    BandMethod(
        "range", "smallest to largest value of the history", fit=_range, project=_of_largest(lambda x, _: _range(x))
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
