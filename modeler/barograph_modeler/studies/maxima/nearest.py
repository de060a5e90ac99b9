"""The band of a sample of clock ticks: the two observed values whose coverage is nearest to the level.

On a coarse clock a single value carries several per cent of the sample. A quantile at 2.5 % then lies on a tick whose
whole mass is inside, since limits belong to the band, and the band covers far more than its level.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.band import LEVEL, Band, check_level, minimum_samples
from barograph_modeler.maxima.sample import check_sample

LOPSIDED: Final = 0.15
"""Weight of the difference of both tail shares, against that of the error of their sum."""


def nearest_band(sample: npt.ArrayLike, level: float = LEVEL) -> Band | None:
    """Both limits chosen jointly among the observed values, or None for fewer than minimum_samples(level) values.

    sample: finite values in any order, not modified. level: between 0 and 1. Without ties, the next of n exchangeable
    values lies below a limit that exceeds b of them with probability (b + 1) / (n + 1), and likewise above. The limits
    are the pair whose probabilities are nearest to 1 - level in sum and to each other; without ties that is the
    empirical band to within one order statistic. Raises ValueError for values that are not finite.
    """
    check_level(level)
    x = check_sample(sample, 0)
    n = x.size
    if n < minimum_samples(level):
        return None
    ticks, counts = np.unique(x, return_counts=True)
    upto = np.cumsum(counts)
    below = (upto - counts + 1) / (n + 1)
    above = (n - upto + 1) / (n + 1)
    outside = 1 - level
    lows = np.flatnonzero(below <= outside + 1 / n)
    highs = np.flatnonzero(above <= outside + 1 / n)
    low, high = below[lows, None], above[None, highs]
    cost = np.abs(low + high - outside) + LOPSIDED * np.abs(low - high)
    i, j = np.unravel_index(int(np.argmin(cost)), cost.shape)
    lower, upper = float(ticks[lows[i]]), float(ticks[highs[j]])
    return Band("nearest", n, lower, min(max(float(np.median(x)), lower), upper), upper, level=level)
