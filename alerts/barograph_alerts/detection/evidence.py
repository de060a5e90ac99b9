"""The combined evidence that one job is slower than expected, and its alarms."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, TypeAlias

from barograph_alerts.detection.alarm import ALPHA, MARGIN, Alarm, Basis, State
from barograph_alerts.detection.baseline import Baseline
from barograph_alerts.detection.change import COLD_MARGIN, SelfChange
from barograph_alerts.detection.delay import DelayTest
from barograph_alerts.detection.level import Level
from barograph_alerts.detection.node_test import ONE_NODE, BeyondPlaces, JobNodes, NodeSpan, NodeTest, SlowNodes
from barograph_alerts.detection.runtime_prior import RuntimeHistory, RuntimePrior, RuntimeTest
from barograph_alerts.detection.sequential import Sequential
from barograph_alerts.detection.tolerance import tolerance
from barograph_alerts.detection.worker_test import SlowWorker, WorkerRow, WorkerTest
from barograph_modeler.pace.pace import Pace, PaceRatio
from barograph_modeler.pace.windows import Window

MINIMUM_RESIDUALS: Final = 20
RECOVERED: Final = 5
"""An alarm ends after this many consecutive windows that are nearer to the reference than to the slowdown."""
OPEN_SCORE: Final = 1.01
"""Least score while an alarm is open: a window that is as usual ends none."""
PASSED: Final = 256
"""Newest windows whose time is compared with that of earlier runs at the same progress."""
NODES: Final = "its pace before"
"""Basis of the test of nodes."""
WORKERS: Final = "the other workers"
"""Basis of the test of a training's workers."""
WHOLE_RUN: Final = ("its runtimes", "scaling")
"""Bases of the test of the whole run."""

Seconds: TypeAlias = tuple[float, float]
"""Actual and expected."""


class Evidence:
    """Combines the tests of one job; together they falsely alarm in a share alpha of healthy jobs.

    A window is the log ratio of actual to expected seconds over its classes; each test is a `Sequential` on conformal
    p-values. `DelayTest` compares elapsed time at equal progress. `Level`, `DelayTest` and `SelfChange` spend a quarter
    of alpha each, `Stall` and `RuntimeTest` an eighth. Of the share of `SelfChange` `WorkerTest`, of trainings, has an
    eighth, and on several nodes two of `NodeTest` three eighths: of own work, and of the time of messages. Without
    comparable windows in the history `SelfChange` has a wider margin and the job's own class means, and `RuntimeTest`
    the quarter of `Level` as well; without runs of the workload it tests against a prediction, once there is one.

    Windows are autocorrelated and share the finite residuals. The effect on false alarms is measured in
    tests/benchmarks/test_alerts.py and docs/engineer/alerts.md.

    pace: None without a history. alpha: bound on the probability that a healthy job ever alarms, between 0 and 1.
    margin: slowdown that does not matter, 0.05 is 5 %. Raises ValueError for other values.
    """

    is_within_limits = is_contradicted = False
    """Of an ended run: whether it kept the limits of its history, and whether an alarm contradicted that."""

    def __init__(
        self, pace: Pace | None, alpha: float = ALPHA, margin: float = MARGIN, nodes: JobNodes = ONE_NODE
    ) -> None:
        if not 0 < alpha < 1:
            raise ValueError(f"alpha is {alpha}, expected a number between 0 and 1, both excluded")
        if not (margin >= 0 and math.isfinite(margin)):
            raise ValueError(f"margin is {margin}, expected a finite number of at least 0")
        self.pace = pace
        self.windows, self.highest = 0, 0.0
        self.alarms: list[Alarm] = []
        self.excused: Alarm | None = None
        """The latest that was no disturbance: the program itself does more since then."""
        self.phases: dict[int, Seconds] = {}
        """Actual and expected seconds of each class since the latest onset."""
        usable = pace is not None and pace.runs >= 1 and pace.residuals.size >= MINIMUM_RESIDUALS
        self._means = dict(pace.means) if pace is not None and usable else {}
        """Of the history: those of classes of which the job has had no more intervals than they hold for."""
        self._left = dict(pace.limits) if pace is not None else {}
        """Intervals until a mean holds no more, for classes that have a limit."""
        compared = replace(pace, means=self._means) if pace is not None and usable else None
        self._level = Level(compared, alpha / 4, margin) if compared is not None else None
        self._delay: DelayTest | None = None
        if pace is not None and pace.progress is not None:
            # A quarter of its share is for the tolerance, as with `Level`.
            self._delay = DelayTest(
                pace.progress, alpha * 3 / 16, margin, tolerance(pace, margin, alpha / 16), pace.means.keys()
            )
        self._passed: deque[tuple[float, float, float]] = deque(maxlen=PASSED)
        """Ends of the newest windows, their actual seconds, and those of earlier runs at the same progress."""
        self._alpha, self._margin, self._job_nodes = alpha, margin, nodes
        self._nodes: tuple[NodeTest, ...] = ()
        """Of the own work of nodes, and of their messages; none on one node."""
        if nodes.number > 1:
            self._nodes = NodeTest(alpha / 16, margin, nodes), NodeTest(alpha / 32, margin, JobNodes(nodes.number))
        self._change = self._self_change()
        self._workers: WorkerTest | None = None
        self.slow_worker: SlowWorker | None = None
        """The worker that the latest alarm of their test is about."""
        self.runtime_test: RuntimeTest | None = None
        """The test of the whole run, if its history or a prediction says how long it takes."""
        self._stall_score = 0.0
        self._slow: SlowNodes | None = None
        self._by_nodes: tuple[Alarm, NodeTest] | None = None
        """The latest alarm of a test of nodes."""
        self._overdue: Alarm | None = None
        """The open alarm, if it was raised since the latest window."""
        self._raised: Sequential | DelayTest | None = None
        """The test that has raised the latest alarm."""
        self._near, self._near_since = 0, math.nan
        self._whole = (0.0, 0.0)
        self.known_until = -math.inf
        self.over = False
        """Whether the runtime is final."""
        self.is_unread = self.is_undecided = False
        """Whether its command could not be read; took longer than runs of the same, and communicated otherwise."""

    def _self_change(self, windows: int = 0) -> SelfChange:
        """A test that begins with the next window. windows: those of the test that it replaces."""
        self._baseline = Baseline(self._means)
        history = self._level.p_value if self._level is not None else None
        share = 1 / 8 if self._job_nodes.number > 1 else 7 / 32
        return SelfChange(self._baseline, share * self._alpha, self._margin, history, windows)

    @property
    def score(self) -> float:
        """The largest score of all tests: log E over its threshold, or silence over the allowed silence.

        Above 1 if and only if there is an alarm: strong evidence of less than the margin scores 1.
        """
        scores = [test.score for test in self._slow_tests]
        scores += [self.runtime_test.score] if self.runtime_test is not None else []
        highest = max(*scores, self._stall_score, 0.0)
        return min(highest, 1.0) if self.open is None else max(highest, OPEN_SCORE)

    @property
    def log_e(self) -> float:
        """Log e-value of the hypothesis that the job is not slow: the mean e-value of its tests."""
        logs = [test.log_e for test in self._slow_tests]
        logs += [self.runtime_test.log_e] if self.runtime_test is not None else []
        highest = max(logs)
        return highest + math.log(math.fsum(math.exp(log - highest) for log in logs) / len(logs))

    @property
    def _slow_tests(self) -> list[Sequential | DelayTest | NodeTest | WorkerTest]:
        """The tests that the job is slow, but for that of the whole run."""
        others = (self._level.slow if self._level is not None else None, self._delay, self._workers)
        return [self._change.slow, *self._nodes, *(test for test in others if test is not None)]

    @property
    def open(self) -> Alarm | None:
        """The current alarm, or None."""
        return self.alarms[-1] if self.alarms and self.alarms[-1].ended_at is None else None

    @property
    def alarm(self) -> Alarm | None:
        """The alarm that the verdict is about: the latest one, and of a run that is over the one that has cost most."""
        if not self.over:
            return self.alarms[-1] if self.alarms else None
        return max(self.alarms, key=self._cost, default=None)

    @property
    def disturbed_until(self) -> float:
        """End of the latest disturbance, in Unix seconds: infinite while nothing is as usual again."""
        if self.alarms and self.alarms[-1].ended_at is not None:
            return self.alarms[-1].ended_at
        return self._near_since if self._near else math.inf

    def _cost(self, alarm: Alarm) -> float:
        lasted = (self.known_until if alarm.ended_at is None else alarm.ended_at) - alarm.onset_at
        return lasted * (1 - 1 / alarm.slowdown) if alarm.slowdown > 0 else lasted

    @property
    def state(self) -> State:
        """The verdict so far: unknown until something was compared; from an alarm on, its kind."""
        if (alarm := self.alarm) is not None:
            return alarm.kind
        open_questions = self.is_undecided, self.is_contradicted, self.outside_limits, self.off_pace, self.excused
        if any(open_questions):
            return "inconclusive"
        is_compared = self.windows or (self.over and self.runtime_test is not None)
        return "healthy" if is_compared and not self.is_unread else "unknown"

    @property
    def outside_limits(self) -> bool:
        """Whether the runtime is outside the 95 % limits of the history."""
        test = self.runtime_test
        return test is not None and test.by_history and test.outside(over=self.over)

    @property
    def off_pace(self) -> bool:
        """Whether the pace of an ended run is none of 95 of 100 runs; a faster one within the limits of runtimes is."""
        if not self.over or self._level is None or (self.is_within_limits and self.whole_slowdown < 1):
            return False
        return not self._level.has_usual_pace(self.whole_slowdown)

    @property
    def basis(self) -> Basis:
        """The reference that the job is compared with: that of its alarm where it is not of windows."""
        if (alarm := self.alarm) is not None and alarm.basis in (*WHOLE_RUN, NODES, WORKERS):
            return alarm.basis
        if not self.windows and self.runtime_test is not None and (self.over or self.outside_limits):
            return self.runtime_test.basis
        return self._of_windows

    @property
    def _of_windows(self) -> Basis:
        has_progress = self._delay is not None and self._delay.has_progress
        return "its own first windows" if self._change.cold and not has_progress else "its history"

    @property
    def onset_at(self) -> float | None:
        """Most likely begin of the disturbance, in Unix seconds; None before an alarm."""
        return self.alarm.onset_at if self.alarm is not None else None

    @property
    def slowdown(self) -> float:
        """Actual over expected seconds: of the whole job before an alarm, then of the disturbance.

        1.34 is 34 % slower than the reference. NaN before the first comparable window.
        """
        if self.alarm is not None:
            return self.alarm.slowdown
        if self.basis in WHOLE_RUN and self.runtime_test is not None:
            return self.runtime_test.slowdown
        return self.whole_slowdown

    @property
    def whole_slowdown(self) -> float:
        """Actual over expected seconds of the whole job so far; NaN before the first window."""
        actual, expected = self._whole
        return actual / expected if expected > 0 else math.nan

    @property
    def lost_seconds(self) -> float:
        """Seconds beyond those that the windows so far have taken in the history; 0 where they are not known."""
        actual, expected = self._whole
        of_history = self.basis not in WHOLE_RUN and self._of_windows == "its history"
        return max(0.0, actual - expected) if of_history else 0.0

    def add(self, window: Window) -> None:
        """Add the job's next window. `windows` counts those that could be compared."""
        self.known_until = max(window.ended_at, self.known_until)
        # Before the change test adds the window, which may be the first of an excursion.
        if self._change.slow.quiet and self.open is None:
            self.phases.clear()
        self._limit(window)
        level = self._level.add(window) if self._level is not None else None
        change = self._change.add(window, disturbed=self.open is not None)
        if self._delay is not None:
            self._delay.add(window)
            if self._delay.is_apart and self._overdue is not None and self._overdue is self.open:
                self.alarms.pop()  # what was overdue is not what it did meanwhile
                self.highest = self.score
            self._overdue = None
            if (passed := self._delay.ratio) is not None:
                self._passed.append((window.ended_at, passed.actual_seconds, passed.expected_seconds))
        ratio = level or change or (self._delay.ratio if self._delay is not None else None)
        if ratio is not None:
            self.windows += 1
            self._whole = self._whole[0] + ratio.actual_seconds, self._whole[1] + ratio.expected_seconds
        if change is not None:
            self._baseline.add_phases(window, self._change.reference, self.phases)
        if self.open is None:
            self._look_for_alarm(window.ended_at)
        elif ratio is not None:
            self._follow(self.alarms[-1], window, ratio)
        self.highest = max(self.highest, self.score)

    def _limit(self, window: Window) -> None:
        """Compare no more by means that were learned from fewer intervals than the job has had."""
        for class_id in self._left.keys() & window.counts.keys():
            self._left[class_id] -= window.counts[class_id]
            if self._left[class_id] < 0:
                del self._left[class_id]
                self._means.pop(class_id, None)

    @property
    def slow_nodes(self) -> SlowNodes | None:
        """The nodes that the latest alarm is about, if it is about nodes."""
        if self._by_nodes is None or not self.alarms:
            return None
        alarm, test = self._by_nodes
        return self._slow if self.alarms[-1] is alarm and test is self._nodes[0] else None

    def beyond_places(self, slowdown: float) -> BeyondPlaces | None:
        """Nodes that explain why the job is slower than its history, as in `NodeTest`."""
        return self._nodes[0].beyond_places(slowdown) if self._nodes else None

    def add_nodes(self, work: NodeSpan, messages: NodeSpan | None = None) -> None:
        """Add what the nodes of a job on several did between the same sync points, and the time of their messages."""
        for test, span in zip(self._nodes, (work, messages), strict=False):
            if span is not None and test.add(span, disturbed=self.open is not None):
                self._judge_nodes(test, span.ended_at)
        self.highest = max(self.highest, self.score)

    def add_worker(self, row: WorkerRow, workers: int) -> None:
        """Add what one worker of a training did. workers: their number."""
        self._workers = test = self._workers or WorkerTest(self._alpha / 32, self._margin, workers)
        if not test.add(row):
            return
        alarm = self.open
        if alarm is None and (slow := test.slow()) is not None:
            self.slow_worker, self._raised = slow, None
            self.alarms.append(Alarm("slow", WORKERS, slow.since, row.ended_at, slow.slowdown, test.score))
            self._drop_since(slow.since)
        elif alarm is not None and alarm.basis == WORKERS and self.slow_worker is not None:
            alarm.score = max(alarm.score, test.score)
            if math.isfinite(recovered_at := test.recovered_at(self.slow_worker)):
                self._close(alarm, recovered_at)
        self.highest = max(self.highest, self.score)

    def _judge_nodes(self, test: NodeTest, now: float) -> None:
        alarm = self.open
        if alarm is None and test.score > 1 and (slow := test.slow()) is not None:
            if not self._is_usual_since(slow.started_at):
                self._raise_by_nodes(test, slow, NODES, now)
        elif alarm is None and test.score > 1 and (slow := test.always_slow(self.whole_slowdown)) is not None:
            # Its history is all that there is to compare it with: the nodes were never faster.
            self._raise_by_nodes(test, slow, "its history", now)
        elif alarm is not None and alarm.basis == NODES and self._slow is not None and self._by_nodes == (alarm, test):
            test.follow(self._slow)
            if math.isfinite(test.recovered_at):
                self._close(alarm, test.recovered_at)
            elif (slow := test.slow()) is not None:
                alarm.score, alarm.slowdown = max(alarm.score, test.score), slow.slowdown

    def _is_usual_since(self, at: float) -> bool:
        """Whether earlier runs took as long at the same progress: programs may divide their work otherwise from there.

        False where that is not known.
        """
        since = [passed for passed in self._passed if passed[0] > at]
        expected = math.fsum(usual for _, _, usual in since)
        return expected > 0 and math.fsum(actual for _, actual, _ in since) < (1 + self._margin) * expected

    def _raise_by_nodes(self, test: NodeTest, slow: SlowNodes, basis: Basis, now: float) -> None:
        alarm = Alarm("slow", basis, slow.started_at, now, slow.slowdown, test.score)
        self._slow, self._raised, self._by_nodes = slow, None, (alarm, test)
        self.alarms.append(alarm)
        self._drop_since(slow.started_at)

    def wait(self, counts: Mapping[int, int], now: float) -> None:
        """Set the time until which only `counts` intervals, by class id, have ended since the latest window."""
        if self._delay is None:
            return
        self._delay.wait(counts, now)
        if self.open is None:
            self._look_for_alarm(now)
            self._overdue = self.open
        self.highest = max(self.highest, self.score)

    def expect_runtime(self, prior: RuntimePrior | RuntimeHistory) -> None:
        """Test the whole run against its history or a prediction from now on; a prediction counts without windows."""
        if self.runtime_test is not None:
            return
        if isinstance(prior, RuntimeHistory):
            risk = self._alpha * (3 / 8 if self._level is None else 1 / 8)
            self.runtime_test = RuntimeTest(prior, risk, self._margin)
        elif self._level is None:
            self.runtime_test = RuntimeTest(prior, self._alpha / 2, self._margin * COLD_MARGIN)

    def expect_another_runtime(self) -> None:
        """Compare the runtime with the history no more: the run does other work. Takes an alarm back."""
        if self.runtime_test is None or not self.runtime_test.by_history:
            return
        self.runtime_test = None
        self._take_back()

    def is_compared_with_history(self, alarm: Alarm) -> bool:
        """Whether earlier runs have shown what the program does by the time of an alarm."""
        has_progress = self._delay is not None and self._delay.has_progress
        return has_progress or alarm.basis not in ("its own first windows", NODES)

    def excuse(self) -> None:
        """Take the latest alarm back: the program does more by itself since then, as usual from now on."""
        self.excused = self.alarms.pop()
        self._raised, self._near = None, 0
        self._change = self._self_change(self._change.slow.windows)
        for test in self._nodes:
            test.begin_anew()
        self.highest = self.score

    def _take_back(self) -> None:
        """Take the alarm for the runtime back."""
        if self.alarms and self.alarms[-1].basis in WHOLE_RUN:
            del self.alarms[-1]
            self.highest = self.score

    def set_runtime(
        self, seconds: float, since: float, now: float, *, over: bool = False, did_less: bool = False
    ) -> None:
        """Set the runtime of the whole run: a lower bound, a projection, or, if `over`, the final value.

        since: start of the run, now: Unix seconds both. A run with another alarm does not alarm again for the delay.
        did_less: it had fewer sync points than its history, so limits that it kept prove nothing.
        """
        self.over, self.known_until = self.over or over, max(now, self.known_until)
        if (test := self.runtime_test) is None or not seconds > 0:
            return
        test.update(seconds)
        if over and test.score <= 1:
            self._take_back()
        if over and test.by_history and not did_less and seconds <= test.prior.upper_seconds:
            self.is_within_limits = True
            # What an alarm says to have been lost must have been there to lose.
            alarms = [one for one in self.alarms if seconds - self._cost(one) >= test.prior.lower_seconds]
            self.is_contradicted, self.alarms = len(alarms) < len(self.alarms), alarms
        alarm = self.alarms[-1] if self.alarms else None
        if alarm is not None and alarm.basis not in WHOLE_RUN:
            pass
        elif alarm is not None and alarm.ended_at is None:
            alarm.slowdown, alarm.score = test.slowdown, max(alarm.score, test.score)
            if test.score <= 1:
                alarm.ended_at = now
        elif test.score > 1:
            self.alarms.append(Alarm("slow", test.basis, since, now, test.slowdown, test.score))
        self.highest = max(self.highest, self.score)

    def add_silence(self, score: float, since: float, now: float) -> None:
        """Add a score of `Stall` for the silence from `since` to `now`, or of 0 for an interval that ended then."""
        self._stall_score = score
        if (alarm := self.open) is None:
            if score > 1:
                self.alarms.append(Alarm("stalled", self._of_windows, since, now, math.nan, score))
        elif alarm.kind == "slow" and score > 1 and alarm.detected_at > since:
            # It was called slow while the next interval was overdue already.
            alarm.kind, alarm.onset_at, alarm.slowdown, alarm.score = "stalled", since, math.nan, score
            alarm.basis = "its history"
        elif alarm.kind == "stalled":
            alarm.score = max(alarm.score, score)
            if score < 1:
                self._close(alarm, now)
        self.highest = max(self.highest, self.score)

    def _look_for_alarm(self, now: float) -> None:
        tests: list[tuple[Basis, Sequential | DelayTest]] = [("its own first windows", self._change.slow)]
        if self._delay is not None:
            tests = [("its history", self._delay), *tests]
        if self._level is not None:
            tests = [("its history", self._level.slow), *tests]
        for basis, test in tests:
            if test.score <= 1:
                continue
            test.trim()
            if test is self._change.slow and self._is_usual_since(test.started_at):
                self._change = self._self_change(self._change.slow.windows)
                continue
            if test.slowdown >= 1 + self._change.margin:
                self.alarms.append(Alarm("slow", basis, test.started_at, now, test.slowdown, test.score))
                self._raised = test
                self._drop_since(test.started_at)
                return

    def _drop_since(self, onset_at: float) -> None:
        """Take nothing of a disturbance for usual."""
        self._change.drop_held()
        for test in self._nodes:
            test.drop_since(onset_at)

    def _follow(self, alarm: Alarm, window: Window, ratio: PaceRatio) -> None:
        """Update an open alarm, and close it once the job has recovered."""
        if alarm.kind == "stalled" or alarm.basis in (*WHOLE_RUN, NODES, WORKERS):
            return
        reference = self._change.reference if alarm.basis == "its own first windows" else 0.0
        near = ratio.log < reference + math.log(alarm.slowdown) / 2
        if not near:
            self._near = 0
        else:
            self._near += 1
            if self._near == 1:
                self._near_since = window.started_at
        if self._near >= RECOVERED:
            self._close(alarm, self._near_since)
            return
        if (test := self._raised) is not None and test.slowdown > 0:
            alarm.score, alarm.slowdown = max(alarm.score, test.score), test.slowdown

    def _close(self, alarm: Alarm, at: float) -> None:
        """End the disturbance and reset the tests."""
        alarm.ended_at = at
        self._near = 0
        for test in self._slow_tests:
            test.reset()
