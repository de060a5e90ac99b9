"""Is the job slower, or suspiciously faster, than its history?"""

from __future__ import annotations

import math
from array import array
from typing import Final

from barograph_alerts.detection.sequential import Sequential, p_value
from barograph_alerts.detection.tolerance import tolerance
from barograph_modeler.pace.pace import MINIMUM_SHARE, Pace, PaceRatio
from barograph_modeler.pace.windows import Window

FAST_MARGIN: Final = 0.5
"""A job is suspiciously fast where it does 1.5 times the work per second, or more where its history says so."""


class Level:
    """Two `Sequential` tests of a job's windows against the pace of its history.

    With x the log ratio of actual to expected seconds, residuals those of the pace and T its tolerance, p-values are
    conformal: for `slow` of x - T among the residuals, for `fast` of -x less T or log(1 + FAST_MARGIN), whichever is
    larger, among the residuals with their signs changed.

    alpha: a quarter of it is spent on the tolerance on either side, a quarter on either test.
    """

    __slots__ = ("_fast_tolerance", "_mirrored", "_pace", "_residuals", "_tolerance", "fast", "slow")

    def __init__(self, pace: Pace, alpha: float, margin: float) -> None:
        self._pace = pace
        self._residuals = array("d", pace.residuals.tolist())
        self._mirrored = array("d", (-pace.residuals[::-1]).tolist())
        self._tolerance = tolerance(pace, margin, alpha / 4)
        self._fast_tolerance = max(math.log1p(FAST_MARGIN), self._tolerance)
        self.slow, self.fast = Sequential(alpha / 4), Sequential(alpha / 4)

    def add(self, window: Window) -> PaceRatio | None:
        """Take the next window; None where less than half of it is of classes the history knows."""
        ratio = self._pace.log_ratio(window)
        if ratio.share < MINIMUM_SHARE or math.isnan(ratio.log):
            return None
        seconds = window.started_at, ratio.actual_seconds, ratio.expected_seconds
        self.slow.add(self.p_value(ratio.log - self._tolerance), *seconds)
        self.fast.add(p_value(self._mirrored, -ratio.log - self._fast_tolerance), *seconds)
        return ratio

    def p_value(self, excess: float) -> float:
        """How seldom a healthy window of the history leaves so much or more."""
        return p_value(self._residuals, excess)
