"""The evidence about one job, window by window: is it slower or faster than it should be, and since when?"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

from barograph_alerts.detection.alarm import Alarm, Basis, Kind, State
from barograph_alerts.detection.baseline import Baseline
from barograph_alerts.detection.change import COLD_MARGIN, SelfChange
from barograph_alerts.detection.level import Level
from barograph_alerts.detection.runtime_prior import RuntimePrior, RuntimeTest
from barograph_alerts.detection.sequential import Sequential
from barograph_modeler.pace.pace import Pace, PaceRatio
from barograph_modeler.pace.windows import Window

ALPHA: Final = 0.01
MARGIN: Final = 0.05
MINIMUM_RESIDUALS: Final = 20
RECOVERED: Final = 5
"""An alarm is over after so many windows in a row that are nearer to the reference than to the slowdown."""

Seconds: TypeAlias = tuple[float, float]
"""Actual and expected."""


class Evidence:
    """Combines the tests of one job; together they falsely alarm in a share alpha of healthy jobs.

    Each window is a log ratio of actual to expected seconds over all its classes; each test is a `Sequential` on
    conformal p-values. Of alpha, `Level` has a half, `Change` a quarter, stalls (`Stall`) an eighth.
    Without a history `Change` judges, with a wider margin and the job's own class means, and `Total`, with the half of
    `Level`, once something is foretold of the whole run.

    Windows are not quite independent: they are autocorrelated and share the finite residuals. What that costs was
    measured: tests/benchmarks/test_alerts.py, docs/engineer/alerts.md.

    pace: None without a history. alpha: bound on the probability that a healthy job ever alarms, between 0 and 1.
    margin: slowdown that does not matter, 0.05 is 5 %. Raises ValueError for other values.
    """

    def __init__(self, pace: Pace | None, alpha: float = ALPHA, margin: float = MARGIN) -> None:
        if not 0 < alpha < 1:
            raise ValueError(f"alpha is {alpha}, expected a number between 0 and 1, both excluded")
        if not (margin >= 0 and math.isfinite(margin)):
            raise ValueError(f"margin is {margin}, expected a finite number of at least 0")
        self.pace = pace
        self.windows = 0
        self.highest = 0.0
        self.alarms: list[Alarm] = []
        self.phases: dict[int, Seconds] = {}
        """Seconds of each class since the latest onset."""
        usable = pace is not None and pace.runs >= 1 and pace.residuals.size >= MINIMUM_RESIDUALS
        self._level = Level(pace, alpha / 2, margin) if pace is not None and usable else None
        self._baseline = Baseline(pace.means if pace is not None and usable else {})
        history = self._level.p_value if self._level is not None else None
        self._change = SelfChange(self._baseline, alpha / 4, margin, history)
        self.total: RuntimeTest | None = None
        """The test of the whole run, where there is no history but a forecast."""
        self._alpha = alpha
        self._margin = margin
        self._stall_score = 0.0
        self._near = 0
        self._near_since = math.nan
        self._whole = (0.0, 0.0)
        self.over = False
        """True once it is known how long the whole run took."""

    @property
    def score(self) -> float:
        """log E over its threshold, of the test that says most, or a silence over what is allowed.

        Above 1 while there is an alarm and only then: strong evidence for less than the margin is 1.
        """
        level = max(self._level.slow.score, self._level.fast.score) if self._level is not None else 0.0
        total = self.total.score if self.total is not None else 0.0
        highest = max(level, total, self._change.slow.score, self._stall_score)
        return min(highest, 1.0) if self.open is None else highest

    @property
    def log_e(self) -> float:
        """Logarithm of the evidence that the job is slow, an e-value: the mean of those of its tests."""
        logs = [self._change.slow.log_e]
        logs += [self._level.slow.log_e] if self._level is not None else []
        logs += [self.total.log_e] if self.total is not None else []
        highest = max(logs)
        return highest + math.log(math.fsum(math.exp(log - highest) for log in logs) / len(logs))

    @property
    def open(self) -> Alarm | None:
        """The alarm that lasts, or None."""
        return self.alarms[-1] if self.alarms and self.alarms[-1].ended_at is None else None

    @property
    def state(self) -> State:
        """The verdict so far: unknown until a window could be judged; after an alarm what that was, to the end."""
        if self.alarms:
            return self.alarms[-1].kind
        return "healthy" if self.windows or self.over else "unknown"

    @property
    def basis(self) -> Basis:
        """What the job is judged by."""
        if (self.alarms and self.alarms[-1].basis == "scaling") or (self.over and not self.windows):
            return "scaling"
        return "its own first windows" if self._change.cold else "its history"

    @property
    def alarmed_at(self) -> float | None:
        """When the latest alarm was raised, in Unix seconds."""
        return self.alarms[-1].detected_at if self.alarms else None

    @property
    def onset_at(self) -> float | None:
        """When the latest disturbance most likely began, in Unix seconds; None before an alarm."""
        return self.alarms[-1].onset_at if self.alarms else None

    @property
    def slowdown(self) -> float:
        """Actual over expected seconds: of the whole job before an alarm, then of the latest disturbance.

        1.34 is 34 % slower than what it is judged by. NaN before the first window that could be compared.
        """
        if self.alarms:
            return self.alarms[-1].slowdown
        return self.total.slowdown if self.basis == "scaling" and self.total is not None else self.whole_slowdown

    @property
    def whole_slowdown(self) -> float:
        """Actual over expected seconds of the whole job so far; NaN before the first window."""
        actual, expected = self._whole
        return actual / expected if expected > 0 else math.nan

    @property
    def expected_seconds(self) -> float:
        """What the windows so far should have taken."""
        return self._whole[1]

    def add(self, window: Window) -> None:
        """Take the job's next window. Where less than half of it is of known classes it is passed over.

        `windows` counts those that were judged.
        """
        # Before the change test takes the window: it may be the first one of an excursion.
        if self._change.slow.quiet and self.open is None:
            self.phases.clear()
        level = self._level.add(window) if self._level is not None else None
        change = self._change.add(window, disturbed=self.open is not None)
        if (ratio := level or change) is None:
            return
        self.windows += 1
        self._whole = self._whole[0] + ratio.actual_seconds, self._whole[1] + ratio.expected_seconds
        if change is not None:
            self._baseline.add_phases(window, self._change.reference, self.phases)
        if self.open is None:
            self._look_for_alarm(window)
        else:
            self._follow(self.alarms[-1], window, ratio)
        self.highest = max(self.highest, self.score)

    def expect_runtime(self, foretold: RuntimePrior) -> None:
        """Judge the whole run by a forecast from now on, unless there is a history."""
        if self._level is None and self.total is None:
            self.total = RuntimeTest(foretold, self._alpha / 2, self._margin * COLD_MARGIN)

    def add_runtime(self, seconds: float, since: float, now: float, *, over: bool = False) -> None:
        """Take how long the whole run takes: at least, projected, or exactly where it is over.

        since: when it began; now: Unix seconds both. A run that has alarmed already is not called slow once more for
        being late because of that.
        """
        if self.total is None or not seconds > 0:
            return
        self.total.update(seconds)
        self.over = self.over or over
        alarm = self.alarms[-1] if self.alarms else None
        if alarm is not None and alarm.basis != "scaling":
            pass
        elif alarm is not None and alarm.ended_at is None:
            alarm.slowdown, alarm.score = self.total.slowdown, max(alarm.score, self.total.score)
            if self.total.score <= 1:
                alarm.ended_at = now
        elif self.total.score > 1:
            self.alarms.append(Alarm("slow", "scaling", since, now, self.total.slowdown, self.total.score))
        self.highest = max(self.highest, self.score)

    def add_silence(self, score: float, since: float, now: float) -> None:
        """Take how long the job has been silent, as a score of `Stall`; since, now: Unix seconds."""
        self._stall_score = score
        if (alarm := self.open) is None:
            if score > 1:
                self.alarms.append(Alarm("stalled", self.basis, since, now, math.nan, score))
        elif alarm.kind == "stalled":
            alarm.score = max(alarm.score, score)
            if score < 1:
                self._close(alarm, now)
        self.highest = max(self.highest, self.score)

    def _look_for_alarm(self, window: Window) -> None:
        tests: list[tuple[Kind, Basis, Sequential]] = [("slow", "its own first windows", self._change.slow)]
        if self._level is not None:
            tests = [("slow", "its history", self._level.slow), *tests, ("fast", "its history", self._level.fast)]
        for kind, basis, test in tests:
            if test.score <= 1:
                continue
            test.trim()
            if kind == "fast" or test.slowdown >= 1 + self._change.margin:
                self.alarms.append(Alarm(kind, basis, test.started_at, window.ended_at, test.slowdown, test.score))
                self._change.drop_held()
                return

    def _follow(self, alarm: Alarm, window: Window, ratio: PaceRatio) -> None:
        """Keep an open alarm up to date, and close it when the job has recovered."""
        if alarm.kind == "stalled" or alarm.basis == "scaling":
            return
        reference = self._change.reference if alarm.basis == "its own first windows" else 0.0
        near = ratio.log < reference + math.log(alarm.slowdown) / 2
        if near != (alarm.kind == "slow"):
            self._near = 0
        else:
            self._near += 1
            if self._near == 1:
                self._near_since = window.started_at
        if self._near >= RECOVERED:
            self._close(alarm, self._near_since)
            return
        test = self._test_of(alarm)
        alarm.score, alarm.slowdown = max(alarm.score, test.score), test.slowdown

    def _test_of(self, alarm: Alarm) -> Sequential:
        if alarm.basis == "its own first windows" or self._level is None:
            return self._change.slow
        return self._level.slow if alarm.kind == "slow" else self._level.fast

    def _close(self, alarm: Alarm, at: float) -> None:
        """The disturbance is over; what comes after it is judged afresh."""
        alarm.ended_at = at
        self._near = 0
        self._change.slow.reset()
        if self._level is not None:
            self._level.slow.reset()
            self._level.fast.reset()
