"""The test for a job that takes longer than healthy runs have taken for the same progress."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from typing import Final

from barograph_alerts.detection.sequential import change_point
from barograph_modeler.maxima.ratio import log_ratio
from barograph_modeler.pace.pace import MINIMUM_SHARE, PaceRatio
from barograph_modeler.pace.progress import SLOPES, Delay, ProgressProfile, least_delay
from barograph_modeler.pace.windows import Window

ENOUGH: Final = 3
"""Runs from which on a job may exceed its own pace so far by the margin only."""
DELAY_RUNS: Final = 3
DELAY_SECONDS: Final = 0.05
DELAY_SHARE: Final = 0.001
"""The prior of a healthy run's longest delay: this time and share of the usual one, with the weight of so many runs."""
KAPPA: Final = 0.1
"""The calibrator's exponent, as in `RuntimeTest`."""


class DelayLimit:
    """How unlikely a delay of a healthy run is.

    The highest value of a CUSUM with independent steps and negative drift has an exponential tail (Siegmund 1985,
    Sequential Analysis, chapter 2). With a gamma prior of its rate and the longest delays M of n runs, that of one more
    run follows a Pareto distribution of the second kind:

        P(delay > x) = (1 + x / b)**-a, a = DELAY_RUNS + n, b = DELAY_RUNS prior + sum(M)

    b is enlarged where a delay that does not matter would have a probability below `risk`: most healthy runs have no
    delay at all, which says little about the few that have.

    delays: seconds, may be empty. usual_seconds: of a run. risk: of a false alarm, between 0 and 1.
    """

    __slots__ = ("_a", "_b")

    def __init__(self, delays: Sequence[float], usual_seconds: float, risk: float) -> None:
        self._a = DELAY_RUNS + len(delays)
        known = DELAY_RUNS * (DELAY_SECONDS + DELAY_SHARE * usual_seconds) + math.fsum(delays)
        self._b = max(known, least_delay(usual_seconds) / (risk ** (-1 / self._a) - 1))

    def log_p(self, seconds: float) -> float:
        """The logarithm of the probability that a healthy run ever has a delay of so many seconds, at least 0."""
        return -self._a * math.log1p(seconds / self._b)


class OneDelay:
    """A `Delay` of the running job, and its limit."""

    __slots__ = ("_delay", "_limit", "_now", "_pending")

    def __init__(self, progress: ProgressProfile, slope: float, risk: float, *, own: bool) -> None:
        known = max((i for i, one in enumerate(SLOPES) if one <= slope), default=0)
        delays = progress.delays.own if own else progress.delays.history
        self._delay = Delay(slope, progress.usual_seconds, own=own)
        self._limit = DelayLimit(delays[known], progress.usual_seconds, risk)
        self._pending = (0.0, 0.0, math.nan)
        self._now = 0.0

    def add(self, actual: float, expected: float, started_at: float) -> None:
        """Add known progress, as in `Delay.add`."""
        self._delay.add(actual, expected, started_at)
        self._now = self._delay.seconds

    def wait(self, actual: float, expected: float, started_at: float) -> None:
        """Set the time since the latest known progress, and what is expected until the next."""
        self._pending = actual, expected, started_at
        self._now = max(self._delay.seconds, self._delay.after(actual, expected))

    def reset(self) -> None:
        """End the excursion."""
        self._delay.reset()
        self._pending = (0.0, 0.0, math.nan)
        self._now = 0.0

    def trim(self) -> None:
        """Remove parts before the change point from the front of the excursion."""
        parts = [abs(log_ratio(actual, expected)) for _, actual, expected in self._delay.parts if actual > 0 < expected]
        if parts and len(parts) == len(self._delay.parts):
            self._delay.trim(change_point(parts))

    @property
    def log_p(self) -> float:
        """Of the present delay."""
        return self._limit.log_p(self._now)

    @property
    def started_at(self) -> float:
        """Begin of the excursion in Unix seconds, NaN without one."""
        return self._delay.onset_at if self._delay.seconds > 0 else self._pending[2]

    @property
    def slowdown(self) -> float:
        """Actual over expected time since then."""
        actual, expected, _ = self._pending
        known = self._delay.slowdown()
        # How far the next part has come is not known: what it has taken counts where that is more already.
        least = self._delay.slowdown(actual, expected)
        return least if math.isnan(known) else max(known, least)


class DelayTest:
    """Two tests of the delay at equal progress: against the history, and against the job's own pace so far.

    Progress is known at the points of the history. The delay is in seconds, and time without progress is compared with
    what the next point may take, so that what is overdue counts while it is. Against the history counts what exceeds
    `tolerance`, the logarithm of the slowdown up to which healthy runs differ; against the job's own pace what exceeds
    the margin, from ENOUGH runs on. Each delay is compared with those that healthy runs had against each other.
    Windows in classes that the history does not have, or not there, are no delay: the job does something else.

    risk: of a false alarm, between 0 and 1. margin: slowdown that does not matter. others: classes of the history
    besides those that measure progress.
    """

    def __init__(
        self, progress: ProgressProfile, risk: float, margin: float, tolerance: float, others: Set[int] = frozenset()
    ) -> None:
        self._progress = progress
        self._known = progress.classes.keys() | others
        self._risk = risk / 2
        own = math.log1p(margin) if progress.runs >= ENOUGH else tolerance
        self._delays = (
            OneDelay(progress, tolerance, self._risk, own=False),
            OneDelay(progress, own, self._risk, own=True),
        )
        self._counted, self._had = 0, Counter[int]()
        self._point = 0
        self._passed_at = self._until = math.nan
        self._void = self.is_apart = False
        """Whether the latest window has what earlier runs did not do there."""
        self.ratio: PaceRatio | None = None
        """The pace over the points that the latest window has passed; None if it passed none."""

    def add(self, window: Window) -> None:
        """Add the job's next window."""
        if math.isnan(self._until):
            self._passed_at = self._until = window.started_at
        self._had.update(window.counts)
        is_in_order = self._progress.is_in_order(window.counts, self._had)
        self.is_apart = window.share(self._known) < MINIMUM_SHARE or not is_in_order
        if self.is_apart:
            self.reset()
        points, seconds = self._progress.points, self._progress.seconds
        counted = self._counted + self._progress.count(window.counts)
        began_at, began = self._passed_at, self._point
        while not self._over and points[self._point + 1] <= counted:
            share = (points[self._point + 1] - self._counted) / (counted - self._counted)
            at = self._until + share * (window.ended_at - self._until)
            expected = float(seconds[self._point + 1] - seconds[self._point])
            for delay in () if self._void else self._delays:
                delay.add(at - self._passed_at, expected, self._passed_at)
            self._passed_at = at
            self._point += 1
        actual, usual = self._passed_at - began_at, float(seconds[self._point] - seconds[began])
        is_usual = not self._void and actual > 0 and usual > 0
        self.ratio = PaceRatio(log_ratio(actual, usual), 1.0, actual, usual) if is_usual else None
        self._counted, self._until = counted, window.ended_at
        if self._void:
            self._passed_at, self._void = window.ended_at, False
        if counted > points[-1]:
            self.reset()  # the run is longer than those of the history: what follows is not known
        self.wait({}, window.ended_at)

    def wait(self, counts: Mapping[int, int], at: float) -> None:
        """Set the time until which nothing but `counts` further intervals, by class id, has ended. at: Unix seconds."""
        points, seconds = self._progress.points, self._progress.seconds
        if math.isnan(self._passed_at) or self._over or self._void:
            return
        counted = self._counted + self._progress.count(counts)
        is_in_order = self._progress.is_in_order(counts, self._had + Counter(counts))
        if counted >= points[self._point + 1] or self.is_apart or not is_in_order:
            return
        expected = float(seconds[self._point + 1] - seconds[self._point])
        for delay in self._delays:
            delay.wait(at - self._passed_at, expected, self._passed_at)

    def reset(self) -> None:
        """End the excursions, and leave out the next window, of which a part belongs to them."""
        self._void = True
        for delay in self._delays:
            delay.reset()

    def trim(self) -> None:
        """Remove what was before the change point from the delay."""
        self._worse.trim()

    @property
    def has_progress(self) -> bool:
        """Whether the job has reached a point of the history."""
        return self._point > 0

    @property
    def score(self) -> float:
        """log p over log risk; above 1 alarms."""
        return self._worse.log_p / math.log(self._risk)

    @property
    def log_e(self) -> float:
        """Logarithm of the e-value KAPPA p**(KAPPA - 1) (Vovk and Wang 2021, section 2)."""
        return math.log(KAPPA) + (KAPPA - 1) * self._worse.log_p

    @property
    def started_at(self) -> float:
        """Begin of the delay, in Unix seconds."""
        return self._worse.started_at

    @property
    def slowdown(self) -> float:
        """Actual over expected time since then; NaN before."""
        return self._worse.slowdown

    @property
    def _worse(self) -> OneDelay:
        return min(self._delays, key=lambda one: one.log_p)

    @property
    def _over(self) -> bool:
        return self._point + 1 >= len(self._progress.points)
