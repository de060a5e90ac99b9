"""A band: the values between which the next interval of a class is expected to lie."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.distribution import Gev
from barograph_modeler.maxima.sample import check_sample

LEVEL: Final = 0.95


@dataclass(frozen=True)
class Band:
    """Lower limit, median and upper limit for one new value, in the unit of the sample.

    method: how it came about. samples: values it was learned from. gev: the fit of method "gev", else None.
    level: the share of new values it expects to hold, limits included.
    """

    method: Literal["empirical", "gev", "log-t", "nearest", "tracked", "trend"]
    samples: int
    lower: float
    expected: float
    upper: float
    gev: Gev | None = None
    level: float = LEVEL


def minimum_samples(level: float = LEVEL) -> int:
    """The fewest values whose minimum and maximum bracket a new one with probability `level`: 39 for 0.95."""
    check_level(level)
    return max(2, math.ceil(2 / (1 - level) - 1e-9) - 1)


def empirical_band(sample: npt.ArrayLike, level: float = LEVEL) -> Band | None:
    """The band that assumes no distribution, or None for fewer than minimum_samples(level) values.

    sample: finite values in any order; it is left as it is. level: share of new values inside, between 0 and 1.
    The quantile q is read at position q (n + 1) of the sorted sample (Weibull's plotting position), between order
    statistics by interpolation. Between the j-th value from below and the j-th from above a new exchangeable value
    falls with probability (n + 1 - 2 j) / (n + 1) exactly, whatever the distribution, so the band holds its level for
    *new* values at every n; the usual position 1 + q (n - 1) describes the sample and is too narrow for small n.
    Below 2 / (1 - level) - 1 values not even minimum and maximum reach the level: then there is no band rather than
    one that promises too much. Raises ValueError for values that are not finite.
    """
    x = check_sample(sample, 0)
    if x.size < minimum_samples(level):
        return None
    tail = (1 - level) / 2
    lower, expected, upper = (float(v) for v in np.quantile(x, [tail, 0.5, 1 - tail], method="weibull"))
    return Band("empirical", x.size, lower, expected, upper, level=level)


def band_of_gev(gev: Gev, samples: int, level: float = LEVEL) -> Band:
    """The quantiles of a GEV that was fitted to so many values. Raises ValueError for other levels.

    The parameters are taken as if known, so the band is a little narrow while n is small: at level 0.95 and shapes from
    -0.3 to 0.2, simulated samples of 15, 30 and 100 values gave bands that hold 0.91, 0.93 and 0.945 of new values.
    """
    check_level(level)
    tail = (1 - level) / 2
    return Band("gev", samples, gev.quantile(tail), gev.quantile(0.5), gev.quantile(1 - tail), gev, level)


def check_level(level: float) -> None:
    """Raises ValueError unless 0 < level < 1."""
    if not 0 < level < 1:
        raise ValueError(f"level is {level}, expected a number between 0 and 1, both excluded")
