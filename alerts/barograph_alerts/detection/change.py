"""The test for a job that becomes slower than its own first windows."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Final

from barograph_alerts.detection.baseline import FIRST, Baseline
from barograph_alerts.detection.sequential import Residuals, Sequential
from barograph_modeler.pace.pace import MINIMUM_SHARE, PaceRatio
from barograph_modeler.pace.windows import Window

TESTED: Final = 0.6
"""Share of the margin in the null hypothesis; slowdowns between it and the margin are evidence, but do not alarm."""
COLD_MARGIN: Final = 1.5
"""Factor of the margin without a history."""
SETTLING: Final = (30, 60, 120)
"""Numbers of windows at which the reference is estimated again."""
SAMPLE: Final = 4
"""Windows for each independent one that the tolerance is for, at least."""
PATIENCE: Final = 120
"""Newest windows among which comparable first windows are searched."""


class SelfChange:
    """A `Sequential` test of a job's windows against its own first ones.

    The reference is the median L of the log ratios of its first FIRST comparable windows, but at least the margin below
    the history: a run that begins fast and returns to its usual pace is not slow. The tolerance is TESTED times the
    margin plus twice the error of L: telling a slowdown of twice the margin from the margin itself would take too
    long. The p-value is the larger of those by the history's residuals and by the job's own, so that neither a job
    nor a period of high variability alarms.

    alpha: of the test. history: p-value of an excess by the history's residuals; None without a history. windows: as in
    `Sequential`.
    """

    def __init__(
        self,
        baseline: Baseline,
        alpha: float,
        margin: float,
        history: Callable[[float], float] | None,
        windows: int = 0,
    ) -> None:
        self.slow = Sequential(alpha, windows)
        self.reference = math.nan
        self.cold = history is None
        self._baseline = baseline
        self._margin = margin
        self._history = history
        self._first: deque[Window] | None = deque(maxlen=PATIENCE)
        self._tolerance = math.nan
        self._own, self._power = Residuals((), SAMPLE), 1.0
        self._held: list[float] = []

    def add(self, window: Window, *, disturbed: bool) -> PaceRatio | None:
        """Add the next window; returns None if it cannot be compared. disturbed: an alarm is open."""
        self._baseline.learn(window)
        if self._first is not None:
            self._collect(self._first, window)
            return None
        ratio = self._baseline.compare(window)
        if ratio.share < MINIMUM_SHARE or math.isnan(ratio.log):
            return None
        excess = ratio.log - self.reference - self._tolerance
        p = self._own.p_value(excess)
        if self._history is not None and not self.cold:
            p = max(p, self._history(excess))
        expected = ratio.expected_seconds * math.exp(self.reference)
        power = min(1.0, self._power * self._own.independent)
        self.slow.add(p, window.started_at, ratio.actual_seconds, expected, power)
        self._own.follow(ratio.log - self.reference)
        if not disturbed:
            self._add_residual(ratio.log - self.reference)
        return ratio

    @property
    def margin(self) -> float:
        """The least slowdown that alarms."""
        return self._margin * (COLD_MARGIN if self.cold else 1.0)

    def drop_held(self) -> None:
        """Drop the residuals of an excursion that became an alarm."""
        self._held.clear()

    def _collect(self, first: deque[Window], window: Window) -> None:
        first.append(window)
        if len(first) < FIRST:
            return
        usable = [one for one in first if self._baseline.repeats(one)]
        if len(usable) < FIRST:
            return
        self._baseline.settle()
        self.cold = self.cold or median(map(self._baseline.by_history, usable)) < MINIMUM_SHARE
        logs = [ratio.log for ratio in map(self._baseline.compare, usable) if ratio.share >= MINIMUM_SHARE]
        self.reference = 0.0
        self._own = Residuals(logs, SAMPLE)
        self._settle()
        self._first = None

    def _add_residual(self, residual: float) -> None:
        """Add a residual to the job's own, once it is not part of an excursion that may become an alarm."""
        self._held.append(residual)
        if self.slow.quiet:
            for held in self._held:
                self._own.insert(held)
                if len(self._own.values) in SETTLING:
                    self._settle()
            self._held.clear()

    def _settle(self) -> None:
        """Set the reference to the median of the job's own windows so far, and the tolerance by its error."""
        shift = median(self._own.values)
        level = self.reference + shift
        self.reference = level if self.cold else max(level, -math.log1p(self.margin))
        self._own.shift(-shift)
        windows = max(SAMPLE, 1 / self._own.independent)
        error = 1.4826 * median(map(abs, self._own.values)) * math.sqrt(windows / len(self._own.values))
        self._tolerance = math.log1p(TESTED * self.margin) + 2 * error
        self._power = self._own.power(self._tolerance)
