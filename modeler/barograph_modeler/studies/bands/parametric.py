"""Methods that fit a GEV other than by probability-weighted moments, or bootstrap by drawing from the fit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from barograph_modeler.maxima.band import LEVEL, band_of_gev
from barograph_modeler.maxima.distribution import Gev
from barograph_modeler.maxima.fits.pwm import MINIMUM_SAMPLES
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.bands.method import SEED, BandMethod, HasLimits, of_largest
from barograph_modeler.studies.maxima.likelihood import fit_mle
from barograph_modeler.studies.maxima.lmoments import l_moments
from barograph_modeler.studies.maxima.nodes import expected_maximum


def fit_gumbel(sample: Floats) -> Gev:
    """The Gumbel distribution with the sample's first two L-moments: Hosking (1990), JRSS B 52(1), table 2."""
    moments = l_moments(sample[None], 2)
    scale = float(moments.scale[0]) / math.log(2)
    return Gev(0.0, float(moments.mean[0]) - np.euler_gamma * scale, scale)


def quantiles(fit: Callable[[Floats], Gev]) -> Callable[..., HasLimits | None]:
    """The central range of the fitted distribution, scaled up by max-stability; None below MINIMUM_SAMPLES values."""

    def band(sample: Floats, factor: float = 1.0) -> HasLimits | None:
        if sample.size < MINIMUM_SAMPLES:
            return None
        return band_of_gev(fit(sample).scaled_up(factor), sample.size)

    return band


def _drawn(sample: Floats, factor: float = 1.0) -> HasLimits | None:
    if sample.size < MINIMUM_SAMPLES:
        return None
    return expected_maximum(sample[None], factor, seed=SEED, level=LEVEL)


_mle, _gumbel = quantiles(fit_mle), quantiles(fit_gumbel)

PARAMETRIC: Final = (
    BandMethod(
        "gev-mle",
        "quantiles of the GEV fitted by maximum likelihood, scaled up by max-stability",
        fit=_mle,
        project=of_largest(_mle),
        refits=False,
    ),
    BandMethod(
        "gumbel",
        "quantiles of the Gumbel with the sample's L-moments: two parameters, for short histories",
        fit=_gumbel,
        project=of_largest(_gumbel),
    ),
    BandMethod(
        "emma-drawn",
        "the paper's bootstrap by node, of one node: 1,000 series drawn from the fitted GEV, an interval for the mean",
        fit=_drawn,
        project=of_largest(_drawn),
        refits=False,
    ),
)
