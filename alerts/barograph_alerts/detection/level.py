"""The test for a job that is slower than its history."""

from __future__ import annotations

import math

from barograph_alerts.detection.sequential import Residuals, Sequential
from barograph_alerts.detection.tolerance import tolerance
from barograph_modeler.pace.pace import MINIMUM_SHARE, Pace, PaceRatio
from barograph_modeler.pace.windows import Window


class Level:
    """A `Sequential` test of a job's windows against the pace of its history.

    With x the log ratio of actual to expected seconds and T the tolerance of the pace, the p-value is that of x - T
    among the residuals of the pace.

    alpha: a half is spent on the test, and a half on the tolerance.
    """

    __slots__ = ("_pace", "_power", "_residuals", "_tolerance", "_usual", "slow")

    def __init__(self, pace: Pace, alpha: float, margin: float) -> None:
        self._pace = pace
        self._residuals = Residuals(pace.residuals.tolist())
        self._tolerance = tolerance(pace, margin, alpha / 2)
        self._usual = tolerance(pace, 0.0, 0.025)
        self._power = self._residuals.power(self._tolerance)
        self.slow = Sequential(alpha / 2)

    def add(self, window: Window) -> PaceRatio | None:
        """Add the next window; returns None if less than half of it is in classes of the history."""
        ratio = self._pace.log_ratio(window)
        if ratio.share < MINIMUM_SHARE or math.isnan(ratio.log):
            return None
        excess, power = ratio.log - self._tolerance, min(1.0, self._power * self._residuals.independent)
        p = self._residuals.p_value(excess)
        self.slow.add(p, window.started_at, ratio.actual_seconds, ratio.expected_seconds, power)
        self._residuals.follow(ratio.log)
        return ratio

    def has_usual_pace(self, ratio: float) -> bool:
        """Whether a whole run of this ratio of actual to expected seconds is within the spread of 95 of 100 runs."""
        return not abs(math.log(ratio)) > self._usual

    def p_value(self, excess: float) -> float:
        """The p-value of an excess among the residuals of the history."""
        return self._residuals.p_value(excess)
