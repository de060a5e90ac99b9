"""The band for the next value of a correlated, discrete, shifting series, learned one value at a time.

Quantiles of past values hold their level for independent values of one distribution. Interval maxima are neither, so
each limit is steered by the integrated error of its coverage. This is adaptive conformal inference (Gibbs and Candes
2021, NeurIPS 34) for each side separately, with the error bounded as in the integrator of Angelopoulos, Candes and
Tibshirani (2023, NeurIPS 36), over a sliding window.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.band import LEVEL, Band, check_level, minimum_samples
from barograph_modeler.maxima.recent import SortedWindow
from barograph_modeler.maxima.runtime import MINIMUM_RUNS, runtime_band
from barograph_modeler.maxima.sample import Floats, check_sample

WINDOW: Final = 512
"""Values in the window: 13 lie beyond each limit at level 0.95."""
GAIN: Final = 0.4
"""Relative change of a limit's tail share per value too many or too few. Larger values follow faster and oscillate
more: from half to twice this, coverage is unchanged and width changes by a tenth."""
SPAN: Final = 4.0
"""A limit that is passed too seldom narrows to at most this multiple of its nominal tail share; the other side takes
the rest. A limit that is passed too often moves beyond all values in the window, by at most half their range when its
error is this multiple of the tail share."""
ERROR_BOUNDS: Final = ((1 - SPAN) / GAIN, (1 + SPAN) / GAIN)


class SeriesLimits(NamedTuple):
    """The limits in force before each value was learned: two arrays of one length, NaN while there was no band."""

    lower: Floats
    upper: Floats


class Predictive:
    """Learns a series in order and gives the band for the next value. Takes 16 * window bytes and a few numbers.

    With tail = (1 - level) / 2, each limit is the quantile of the window at tail share tail (1 - GAIN error). The error
    is the number of values beyond the limit less the nominal number: it changes by 1 - tail or by -tail per value.
    While errors stay within ERROR_BOUNDS, the share of n values beyond a limit is tail to within 13 / n, for any
    series, ties included. The bounds limit how long a change of regime has an effect. What one side cannot let
    through, because its limit is a tick of large mass or the series moves away from it, is added to the other side.
    Below minimum_samples(level) values the band is that of runtime_band, for at least 3 values, all above 0.

    level: share of new values inside, between 0 and 1. window: values kept, at least minimum_samples(level).

    >>> series = Predictive()
    >>> limits = series.learn([10.0, 11.0, 12.0, 11.0])
    >>> [round(float(x), 2) for x in limits.lower]
    [nan, nan, nan, 6.97]
    """

    def __init__(self, level: float = LEVEL, window: int = WINDOW) -> None:
        check_level(level)
        if window < minimum_samples(level):
            raise ValueError(f"window is {window} values, expected at least {minimum_samples(level)} for level {level}")
        self.level = level
        self.count = 0
        self._tail = (1 - level) / 2
        self._recent = SortedWindow(window)
        self._errors = (0.0, 0.0)

    @property
    def values(self) -> Floats:
        """The values in the window, ascending: a copy."""
        return np.array(self._recent.ordered, dtype=np.float64)

    @property
    def series(self) -> Floats:
        """The values in the window in the order in which they were learned: a copy."""
        return np.array(self._recent.arrived(), dtype=np.float64)

    def band(self) -> Band | None:
        """The band for the next value; None for fewer than 3 values, or for few of which one is not above 0."""
        limits = self._limits()
        if limits is None:
            return None
        held = len(self._recent.ordered)
        method: Final = "tracked" if held >= minimum_samples(self.level) else "log-t"
        middle = min(max(self._recent.at((held - 1) / 2), limits[0]), limits[1])
        return Band(method, held, limits[0], middle, limits[1], level=self.level)

    def learn(self, values: npt.ArrayLike) -> SeriesLimits:
        """Learn finite values in order; returns the limits in force before each.

        Batches of any size give the same result. Raises ValueError for values that are not finite, and learns none.
        """
        x = check_sample(values, 0)
        lower, upper = np.full(x.size, math.nan), np.full(x.size, math.nan)
        for i, value in enumerate(x.tolist()):
            limits = self._limits()
            if limits is not None:
                lower[i], upper[i] = limits
                self._add_error(value < limits[0], value > limits[1])
            self._recent.add(value)
        self.count += x.size
        return SeriesLimits(lower, upper)

    def _add_error(self, below: bool, above: bool) -> None:
        least, most = ERROR_BOUNDS
        low, high = self._errors
        low, high = low + below - self._tail, high + above - self._tail
        # What exceeds the bound of one side is added to the other, so that their sum is preserved.
        spare_low, spare_high = min(low - least, 0.0), min(high - least, 0.0)
        self._errors = (min(max(low + spare_high, least), most), min(max(high + spare_low, least), most))

    def _limits(self) -> tuple[float, float] | None:
        recent = self._recent
        held = len(recent.ordered)
        if held < minimum_samples(self.level):
            if held < MINIMUM_RUNS or recent.ordered[0] <= 0:
                return None
            band = runtime_band(recent.ordered, self.level)
            return None if band is None else (band.lower, band.upper)
        low, high = (min(self._tail * (1 - GAIN * error), 0.5) for error in self._errors)
        # Weibull's positions, as in empirical_band; a share below 0 lies beyond the extremes.
        lower, upper = recent.at(low * (held + 1) - 1), recent.at((1 - high) * (held + 1) - 1)
        middle = recent.ordered[held // 2]
        if low < 0:
            further = -low / (SPAN * self._tail)
            # Durations are above 0, so the limit is moved by ratios.
            lower = lower * (lower / middle) ** further if lower > 0 else lower - further * (middle - lower)
        if high < 0:
            upper += -high / (SPAN * self._tail) * (upper - middle)
        return lower, upper
