"""A regime: a stretch in which a class keeps its level, and how its end is noticed."""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple

import numpy as np
from river.drift import ADWIN

from barograph_modeler.bands.moments import Moments
from barograph_modeler.maxima.sample import Floats

BLOCK: Final = 16
"""Values whose mean is looked at: neighbours are correlated, means of 16 hardly, and the look costs a 16th."""
WARM: Final = 16
"""Blocks that say how much a level scatters before changes are looked for."""
DELTA: Final = 0.002
"""ADWIN's bound on the probability of a false cut."""
MARGIN: Final = 0.05
"""A change of level by less than this ratio is no new regime, however certain it is."""
LAST: Final = 3
"""Blocks that the new level is read from."""
LEAST_SCATTER: Final = 0.01
"""Discrete clocks may show none at all for a while."""
_TICK: Final = 1e-9


class Regime(NamedTuple):
    """A closed regime of one class: what it was like, the band that stood last (NaN for none), Unix times."""

    since: float
    until: float
    moments: Moments
    lower: float
    expected: float
    upper: float


class ClosedRegime(NamedTuple):
    """A regime that has ended, and the level in seconds that followed it."""

    regime: Regime
    level: float


class LevelChange:
    """Watches one class for a lasting change of level.

    The logarithms of block means, less the median of the first WARM of them and in units of their median absolute
    deviation, go to ADWIN (Bifet and Gavalda 2007, SIAM SDM), which cuts its window where two parts of it differ by
    more than chance explains. ADWIN lets go of what was in several cuts, so none of them says how large the change is:
    a cut counts where the median of the last LAST blocks differs by MARGIN from the mean of all blocks before them.
    """

    def __init__(self) -> None:
        self._warm: list[float] = []
        self._middle = 0.0
        self._scatter = 1.0
        self._detector: ADWIN | None = None
        self._last: deque[float] = deque(maxlen=LAST)
        self._before = 0.0
        self._blocks = 0
        self._sum = 0.0
        self._count = 0

    @property
    def level(self) -> float:
        """The median of the last LAST blocks, in the unit of the values; NaN while there are fewer."""
        return math.exp(sorted(self._last)[LAST // 2]) if len(self._last) == LAST else math.nan

    def find(self, values: Floats) -> int | None:
        """Look at further values, in order; where a change is noticed, how many of them come before that block.

        What follows the change has not been looked at then: it belongs to another one's watch.
        """
        at = 0
        while at < values.size:
            piece = values[at : at + BLOCK - self._count]
            self._sum += float(piece.sum())
            self._count += piece.size
            if self._count == BLOCK:
                mean, self._sum, self._count = self._sum / BLOCK, 0.0, 0
                if self._see(math.log(max(mean, _TICK))):
                    return at
            at += piece.size
        return None

    def _see(self, level: float) -> bool:
        if self._detector is None:
            self._warm.append(level)
            if len(self._warm) == WARM:
                self._start()
            return False
        if len(self._last) == LAST:
            self._blocks += 1
            self._before += (self._last[0] - self._before) / self._blocks
        self._last.append(level)
        self._detector.update((level - self._middle) / self._scatter)
        if not (self._detector.drift_detected and self._blocks):
            return False
        return abs(math.log(self.level) - self._before) >= math.log1p(MARGIN)

    def _start(self) -> None:
        logs = np.array(self._warm)
        self._middle = float(np.median(logs))
        # 1.4826 makes the median absolute deviation of a normal sample its standard deviation.
        self._scatter = max(1.4826 * float(np.median(np.abs(logs - self._middle))), LEAST_SCATTER)
        self._detector = ADWIN(delta=DELTA, clock=1, min_window_length=5, grace_period=10)
        self._warm = []
