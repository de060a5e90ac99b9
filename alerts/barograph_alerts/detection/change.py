"""Has the job become slower than it was itself?"""

from __future__ import annotations

import math
from array import array
from bisect import insort
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Final

from barograph_alerts.detection.baseline import FIRST, Baseline
from barograph_alerts.detection.sequential import Sequential, p_value
from barograph_modeler.pace.pace import MINIMUM_SHARE, PaceRatio
from barograph_modeler.pace.windows import Window

TESTED: Final = 0.6
"""Share of the margin in the null hypothesis: what lies between it and the margin is evidence, but no alarm."""
COLD_MARGIN: Final = 1.5
"""Without a history the margin is so many times as wide."""
RESIDUALS: Final = 512
SETTLING: Final = (30, 60, 120)
"""The reference is looked at again when so many windows of the job are known."""
PATIENCE: Final = 120
"""First windows are looked for among the last so many."""


class SelfChange:
    """A `Sequential` test of a job's windows against its own first ones.

    The median L of the log ratios of its first FIRST comparable windows is the reference, but never less than the
    margin below the history: a run that begins fast and comes back to what is usual is not slow. The tolerance is
    TESTED of the margin and twice the error of L: to tell a slowdown of twice the margin from the margin itself would
    take too long. The p-value is the larger one of those by the history's residuals and by the
    job's own, so neither a job that is restless by nature nor a restless hour alarms.

    alpha: of the test. history: p-value of an excess by the history's residuals, None where there is none.
    """

    __slots__ = (
        "_baseline",
        "_first",
        "_held",
        "_history",
        "_margin",
        "_own",
        "_tolerance",
        "cold",
        "reference",
        "slow",
    )

    def __init__(
        self, baseline: Baseline, alpha: float, margin: float, history: Callable[[float], float] | None
    ) -> None:
        self.slow = Sequential(alpha)
        self.reference = math.nan
        self.cold = history is None
        self._baseline = baseline
        self._margin = margin
        self._history = history
        self._first: deque[Window] | None = deque(maxlen=PATIENCE)
        self._tolerance = math.nan
        self._own = array("d")
        self._held: list[float] = []

    def add(self, window: Window, *, disturbed: bool) -> PaceRatio | None:
        """Take the next window; None where it could not be judged. disturbed: an alarm is open."""
        self._baseline.learn(window)
        if self._first is not None:
            self._collect(self._first, window)
            return None
        ratio = self._baseline.compare(window)
        if ratio.share < MINIMUM_SHARE or math.isnan(ratio.log):
            return None
        excess = ratio.log - self.reference - self._tolerance
        p = p_value(self._own, excess)
        if self._history is not None and not self.cold:
            p = max(p, self._history(excess))
        self.slow.add(p, window.started_at, ratio.actual_seconds, ratio.expected_seconds * math.exp(self.reference))
        if not disturbed:
            self._remember(ratio.log - self.reference)
        return ratio

    @property
    def margin(self) -> float:
        """The least slowdown that is worth an alarm."""
        return self._margin * (COLD_MARGIN if self.cold else 1.0)

    def drop_held(self) -> None:
        """The windows of the excursion were a disturbance: none of them is a residual of this job."""
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
        self._own = array("d", sorted(logs))
        self._settle()
        self._first = None

    def _remember(self, residual: float) -> None:
        """Take residuals for the job's own, once they are not part of an excursion that may become an alarm."""
        self._held.append(residual)
        if self.slow.quiet:
            for one in self._held[: max(0, RESIDUALS - len(self._own))]:
                insort(self._own, one)
                if len(self._own) in SETTLING:
                    self._settle()
            self._held.clear()

    def _settle(self) -> None:
        """Put the reference into the middle of the job's own windows so far, and the tolerance to what is left open."""
        shift = median(self._own)
        level = self.reference + shift
        self.reference = level if self.cold else max(level, -math.log1p(self.margin))
        self._own = array("d", (one - shift for one in self._own))
        # Neighbouring windows resemble each other: a fourth of them is taken to be independent.
        error = 1.4826 * median(map(abs, self._own)) * math.sqrt(4 / len(self._own))
        self._tolerance = math.log1p(TESTED * self.margin) + 2 * error
