"""A regime, a period in which a class keeps its level, and the detection of its end."""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple

import numpy as np
from river._river_rust.drift import AdaptiveWindowing  # `river.drift` loads scikit-learn and pandas, for seconds

from barograph_modeler.bands.moments import Moments
from barograph_modeler.maxima.sample import Floats

BLOCK: Final = 16
"""Values averaged before testing: neighbouring values are correlated, means of 16 hardly, and the cost is a 16th."""
WARM: Final = 16
"""Warm-up blocks, from which the scatter of the level is estimated."""
DELTA: Final = 0.002
"""ADWIN's bound on the probability of a false cut."""
MARGIN: Final = 0.05
"""A smaller relative change of level does not start a new regime, however significant it is."""
LAST: Final = 3
"""Blocks that define the new level."""
LEAST_SCATTER: Final = 0.01
"""Lower bound of the scatter, since values of a coarse clock may be equal for a while."""
_TICK: Final = 1e-9


class Regime(NamedTuple):
    """A closed regime: its period in Unix seconds, its moments, and the limits of its last band (NaN without one).

    next_level: level in seconds after the change that closed it; NaN if no change of level did.
    """

    since: float
    until: float
    moments: Moments
    lower: float
    expected: float
    upper: float
    next_level: float


class LevelChange:
    """Detects a lasting change of level of one class.

    The logarithms of block means, standardised by the median and the median absolute deviation of the first WARM of
    them, are passed to ADWIN (Bifet and Gavalda 2007, SIAM SDM), which cuts its window where two parts differ
    significantly. ADWIN discards old values in several cuts, and none of them measures the size of the change: a cut
    counts as a change if the median of the last LAST blocks differs by MARGIN from the mean of all blocks before them.
    """

    def __init__(self) -> None:
        self._warm: list[float] = []
        self._middle = 0.0
        self._scatter = 1.0
        self._detector: AdaptiveWindowing | None = None
        self._last: deque[float] = deque(maxlen=LAST)
        self._before = 0.0
        self._blocks = 0
        self._sum = 0.0
        self._count = 0

    @property
    def level(self) -> float:
        """Median of the last LAST blocks, in the unit of the values; NaN while there are fewer."""
        return math.exp(sorted(self._last)[LAST // 2]) if len(self._last) == LAST else math.nan

    def find(self, values: Floats) -> int | None:
        """Add values in order until a change is detected; returns how many come before its block, None without change.

        Values from that block on are not used: they belong to the next regime's detector.
        """
        at = 0
        while at < values.size:
            piece = values[at : at + BLOCK - self._count]
            self._sum += float(piece.sum())
            self._count += piece.size
            if self._count == BLOCK:
                mean, self._sum, self._count = self._sum / BLOCK, 0.0, 0
                if self._add(math.log(max(mean, _TICK))):
                    return at
            at += piece.size
        return None

    def _add(self, level: float) -> bool:
        if self._detector is None:
            self._warm.append(level)
            if len(self._warm) == WARM:
                self._start()
            return False
        if len(self._last) == LAST:
            self._blocks += 1
            self._before += (self._last[0] - self._before) / self._blocks
        self._last.append(level)
        if not self._detector.update((level - self._middle) / self._scatter):
            return False
        # ADWIN goes on with the newer part of its window; this one starts anew, as river's class does.
        self._detector = _adwin()
        if not self._blocks:
            return False
        return abs(math.log(self.level) - self._before) >= math.log1p(MARGIN)

    def _start(self) -> None:
        logs = np.array(self._warm)
        self._middle = float(np.median(logs))
        # 1.4826 times the median absolute deviation of a normal sample estimates its standard deviation.
        self._scatter = max(1.4826 * float(np.median(np.abs(logs - self._middle))), LEAST_SCATTER)
        self._detector = _adwin()
        self._warm = []


def _adwin() -> AdaptiveWindowing:
    return AdaptiveWindowing(delta=DELTA, clock=1, min_window_length=5, grace_period=10)
