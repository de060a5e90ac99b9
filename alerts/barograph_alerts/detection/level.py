"""The tests for a job that is slower, or suspiciously faster, than its history."""

from __future__ import annotations

import math
from array import array
from typing import Final

from barograph_alerts.detection.sequential import Sequential, p_value
from barograph_alerts.detection.tolerance import tolerance
from barograph_modeler.pace.pace import MINIMUM_SHARE, Pace, PaceRatio
from barograph_modeler.pace.windows import Window

FAST_MARGIN: Final = 0.5
"""A job is suspiciously fast at 1.5 times the work per second, or more if its history is more variable."""


class Level:
    """Two `Sequential` tests of a job's windows against the pace of its history.

    With x the log ratio of actual to expected seconds and T the tolerance of the pace, p-values are conformal: for
    `slow` of x - T among the residuals of the pace, for `fast` of -x - max(T, log(1 + FAST_MARGIN)) among the negated
    residuals.

    alpha: a quarter is spent on each test, and a quarter on the tolerance of each side.
    """

    __slots__ = ("_fast_tolerance", "_mirrored", "_pace", "_residuals", "_tolerance", "_usual", "fast", "slow")

    def __init__(self, pace: Pace, alpha: float, margin: float) -> None:
        self._pace = pace
        self._residuals = array("d", pace.residuals.tolist())
        self._mirrored = array("d", (-pace.residuals[::-1]).tolist())
        self._tolerance = tolerance(pace, margin, alpha / 4)
        self._usual = tolerance(pace, 0.0, 0.025)
        self._fast_tolerance = max(math.log1p(FAST_MARGIN), self._tolerance)
        self.slow, self.fast = Sequential(alpha / 4), Sequential(alpha / 4)

    def add(self, window: Window) -> PaceRatio | None:
        """Add the next window; returns None if less than half of it is in classes of the history."""
        ratio = self._pace.log_ratio(window)
        if ratio.share < MINIMUM_SHARE or math.isnan(ratio.log):
            return None
        seconds = window.started_at, ratio.actual_seconds, ratio.expected_seconds
        self.slow.add(self.p_value(ratio.log - self._tolerance), *seconds)
        self.fast.add(p_value(self._mirrored, -ratio.log - self._fast_tolerance), *seconds)
        return ratio

    def has_usual_pace(self, ratio: float) -> bool:
        """Whether a whole run of this ratio of actual to expected seconds is within the spread of 95 of 100 runs."""
        return not abs(math.log(ratio)) > self._usual

    def p_value(self, excess: float) -> float:
        """The p-value of an excess among the residuals of the history."""
        return p_value(self._residuals, excess)
