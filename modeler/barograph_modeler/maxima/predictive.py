"""The band for the next value of a series that is correlated, discrete and shifts: learned one value at a time.

Quantiles of past values hold their level for independent values of one distribution. Interval maxima are neither, so
the two limits are steered: each keeps account of how many values it let through, and moves until that is the share it
promised. This is adaptive conformal inference (Gibbs and Candes 2021, NeurIPS 34) for each side by itself, with the
account bounded as in the integrator of Angelopoulos, Candes and Tibshirani (2023, NeurIPS 36), over a sliding window.
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
"""Values looked back on: 13 beyond each limit at level 0.95. An old regime is forgotten after as many."""
GAIN: Final = 0.4
"""How much a limit's tail share moves for one value too many or too few, as a part of the share promised. More follows
faster and swings wider: from half to twice this, coverage stays and width changes by a tenth."""
SPAN: Final = 4.0
"""A limit that let too little through narrows to this many times the tail share promised and no further; then the other
side takes over. One that let too much through goes beyond all values held, at most by half their range when it owes
this many times the tail share."""
DEBTS: Final = ((1 - SPAN) / GAIN, (1 + SPAN) / GAIN)


class SeriesLimits(NamedTuple):
    """The limits that stood before each value was learned: two arrays of one length, NaN while there was no band."""

    lower: Floats
    upper: Floats


class BandScore(NamedTuple):
    """How many values lie below, inside (limits included) and above a band."""

    below: int
    inside: int
    above: int


class Predictive:
    """Learns a series in its order and gives the band for the next value. At most 16 * window bytes and a few numbers.

    With tail = (1 - level) / 2, each limit stands at tail share tail (1 - GAIN debt) of the window. Debt is the number
    of values that passed it less the number that should have: it grows by 1 - tail or by -tail with each value. While
    debts stay within their bounds, the share of n values that pass a limit is tail to within 13 / n, whatever the
    series does, ties included. The bounds let a change of regime be forgiven rather than paid back for ever. What one
    side cannot let through, because its limit is a tick of much mass or the series moves away from it, the other may.
    Below minimum_samples(level) values the band is that of runtime_band, for values above 0 and at least 3 of them.

    level: share of new values inside, between 0 and 1. window: values remembered, at least minimum_samples(level).

    >>> series = Predictive()
    >>> limits = series.learn([10.0, 11.0, 12.0, 11.0])
    >>> [round(float(x), 2) for x in limits.lower]
    [nan, nan, nan, 6.97]
    >>> series.score([5.0, 11.5, 30.0])
    BandScore(below=1, inside=1, above=1)
    """

    def __init__(self, level: float = LEVEL, window: int = WINDOW) -> None:
        check_level(level)
        if window < minimum_samples(level):
            raise ValueError(f"window is {window} values, expected at least {minimum_samples(level)} for level {level}")
        self.level = level
        self.count = 0
        self.below = 0
        self.above = 0
        self.judged = 0
        self._tail = (1 - level) / 2
        self._recent = SortedWindow(window)
        self._debts = (0.0, 0.0)

    @property
    def coverage(self) -> float:
        """Share of the values learned so far that lay inside the band that stood before them; NaN before the first."""
        return 1 - (self.below + self.above) / self.judged if self.judged else math.nan

    @property
    def reason(self) -> str:
        """Why there is no band; empty where there is one."""
        if self._limits() is not None:
            return ""
        held = len(self._recent.ordered)
        if held < MINIMUM_RUNS:
            return f"{held} values, expected at least {MINIMUM_RUNS}"
        few = minimum_samples(self.level)
        return f"{held} values of which one is not above 0, expected at least {few}"

    def band(self) -> Band | None:
        """The band for the next value, or None where history cannot support the level: see `reason`."""
        limits = self._limits()
        if limits is None:
            return None
        held = len(self._recent.ordered)
        method: Final = "tracked" if held >= minimum_samples(self.level) else "log-t"
        middle = min(max(self._recent.at((held - 1) / 2), limits[0]), limits[1])
        return Band(method, held, limits[0], middle, limits[1], level=self.level)

    def score(self, values: npt.ArrayLike) -> BandScore | None:
        """How the present band holds these values, without learning them; None where there is no band."""
        x = check_sample(values, 0)
        limits = self._limits()
        if limits is None:
            return None
        below, above = int((x < limits[0]).sum()), int((x > limits[1]).sum())
        return BandScore(below, x.size - below - above, above)

    def learn(self, values: npt.ArrayLike) -> SeriesLimits:
        """Learn finite values in the order they came, each judged by the band that stood before it.

        Learning one by one or in batches is the same. Raises ValueError for values that are not finite, and then has
        learned none of them.
        """
        x = check_sample(values, 0)
        lower, upper = np.full(x.size, math.nan), np.full(x.size, math.nan)
        for i, value in enumerate(x.tolist()):
            limits = self._limits()
            if limits is not None:
                lower[i], upper[i] = limits
                self._judge(value, limits)
            self._recent.add(value)
        self.count += x.size
        return SeriesLimits(lower, upper)

    def _judge(self, value: float, limits: tuple[float, float]) -> None:
        below, above = value < limits[0], value > limits[1]
        self.judged += 1
        self.below += below
        self.above += above
        least, most = DEBTS
        low, high = self._debts
        low, high = low + below - self._tail, high + above - self._tail
        # What one side cannot let through the other may: the sum of both is what was promised.
        spare_low, spare_high = min(low - least, 0.0), min(high - least, 0.0)
        self._debts = (
            min(max(low + spare_high, least), most),
            min(max(high + spare_low, least), most),
        )

    def _limits(self) -> tuple[float, float] | None:
        recent = self._recent
        held = len(recent.ordered)
        if held < minimum_samples(self.level):
            if held < MINIMUM_RUNS or recent.ordered[0] <= 0:
                return None
            band = runtime_band(recent.ordered, self.level)
            return None if band is None else (band.lower, band.upper)
        low, high = (min(self._tail * (1 - GAIN * debt), 0.5) for debt in self._debts)
        # Weibull's positions, as in empirical_band; below a share of 0 beyond the extremes.
        lower, upper = recent.at(low * (held + 1) - 1), recent.at((1 - high) * (held + 1) - 1)
        middle = recent.ordered[held // 2]
        if low < 0:
            further = -low / (SPAN * self._tail)
            # Durations stay above 0: down there a limit moves by ratios.
            lower = lower * (lower / middle) ** further if lower > 0 else lower - further * (middle - lower)
        if high < 0:
            upper += -high / (SPAN * self._tail) * (upper - middle)
        return lower, upper
