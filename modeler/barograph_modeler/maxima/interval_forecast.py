"""The length of the intervals of one class at a scale that has run, or at a larger one.

An interval is a maximum over ranks (Dominguez-Trujillo et al., section III). What is kept of a scale are its newest
values, the band that follows them, and a fitted GEV if it is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from barograph_modeler.maxima.band import Band, minimum_samples
from barograph_modeler.maxima.distribution import Gev
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.maxima.scaling import EMMA
from barograph_modeler.maxima.trend import UNKNOWN, Slope, growth, trend_band


class IntervalSample(NamedTuple):
    """Intervals of one class at one scale, in seconds.

    values: (count,), in order of time, finite and above 0. band: for the next value; None for too few. gev: a fit of
    the values that is trusted, else None.
    """

    values: Floats
    band: Band | None
    gev: Gev | None


class IntervalForecast(NamedTuple):
    """The band for one interval and its expected length, in seconds. emma: whether a GEV gave the latter."""

    band: Band
    expected_maximum: float
    emma: bool


def forecast_interval(
    samples: Mapping[int, IntervalSample], ranks: int, prior: Slope = UNKNOWN
) -> IntervalForecast | None:
    """The intervals on `ranks` ranks; None where the samples are too few for a band.

    samples: by ranks, at least one. ranks: one of these, or above all of them. prior: of the slope. Raises ValueError
    otherwise.

    At a scale in `samples`, the band is the one that follows the intervals there. Above, it is `trend_band`, which
    assumes that log length is linear in log ranks. The expected maximum is

        median * Q(EMMA) / Q(1/2),

    with the median of that band at a scale in `samples`, above that of the values at the largest scale times
    2 ** `growth`. Q(p) is the p ** (1 / m) quantile of the GEV: the p quantile of the maximum over m = ranks / largest
    times as many ranks (Sun and Peterson 2012 for EMMA). The trend of the medians has in it what maxima over more ranks
    add at the seen scales. Therefore F ** m gives the ratio of mean to median only, not the growth, which would count
    twice (docs/adr/0057). Without a trusted GEV it is the mean of the values at the largest scale, times the growth.
    """
    if ranks in samples:
        x, band, gev = samples[ranks]
        if band is None:
            return None
        return _with_mean(band, band.expected, float(x.mean()) if x.size else band.expected, gev, 1.0)
    largest = max(samples)
    x, _, gev = samples[largest]
    if x.size < minimum_samples():
        return None
    values: dict[float, Floats] = {scale: sample.values for scale, sample in samples.items()}
    band = trend_band(values, ranks, prior=prior)
    if band is None:
        return None
    growth_factor = 2.0 ** growth({scale: np.log2(one) for scale, one in values.items()}, ranks, prior).mean
    return _with_mean(band, growth_factor * float(np.median(x)), growth_factor * float(x.mean()), gev, ranks / largest)


def _with_mean(band: Band, median: float, mean: float, gev: Gev | None, factor: float) -> IntervalForecast:
    """The band with the mean that belongs to a median by a GEV, else with `mean`.

    factor: ranks over those of which the GEV is.
    """
    if gev is not None:
        emma, middle = (gev.quantile(math.pow(p, 1 / factor)) for p in (EMMA, 0.5))
        if middle > 0:
            return IntervalForecast(band, median * emma / middle, True)
    return IntervalForecast(band, mean, False)
