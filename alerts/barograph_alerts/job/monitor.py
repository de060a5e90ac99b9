"""The monitor of one job: evidence, stalls, attribution and projected runtime."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import replace
from statistics import median
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_alerts.attribution.cause import (
    ALL,
    AllSlow,
    Attribution,
    Cause,
    KernelLoss,
    LongerWork,
    MoreWork,
    NoProgress,
    phase_cause,
)
from barograph_alerts.attribution.kernel.kernel_account import KernelAccount
from barograph_alerts.attribution.work import WorkSpan
from barograph_alerts.detection.alarm import Alarm
from barograph_alerts.detection.evidence import WHOLE_RUN, WORKERS, Evidence
from barograph_alerts.detection.node_test import ONE_NODE, JobNodes, NodeSpan
from barograph_alerts.detection.runtime_prior import FREEDOM, RuntimePrior
from barograph_alerts.detection.stall import SilentSpan, Stall
from barograph_alerts.detection.worker_test import WorkerRow
from barograph_alerts.job.class_times import ClassTimes
from barograph_alerts.job.remaining import UNEVEN, JobRemaining, RemainingNews, RunProgress
from barograph_modeler.pace.pace import Pace
from barograph_modeler.pace.remaining import Disturbance, PaceSpread, Remaining, remaining, stretched
from barograph_modeler.pace.windows import WINDOW_SECONDS, JobBlocks, Window, Windower

SETTLED: Final = 30.0
"""The cause is recomputed until intervals and node work of this many seconds after the onset are known."""
KNOWN: Final = 90.0
"""What kernels know of so many seconds after the onset counts: quiet rows come each half a minute."""
WORK: Final = 1024
"""Work spans held until the windows of their time arrive; the oldest are dropped."""
MESSAGES: Final = 0.1
"""Share of the time per sync point that is added to that of messages, where nodes are compared by it."""
MIN_OWN_SECONDS: Final = 1e-9
"""Less own work per sync point than a clock resolves is none, and such nodes are not compared."""
WINDOWS: Final = 64
"""Newest windows kept, to see what the job did during a work span."""
AWAITED: Final = 10.0
"""Seconds from an alarm without a history until what kernels know of the nodes to blame is waited for no more."""
_OF_PROGRAMS: Final = frozenset({"straggler", "all-slow", "one-phase"})
"""Causes that a program without a history may have by itself, since it does more work."""
_WITHOUT_MEMBERS: Final = {"slow": Cause(), "stalled": Cause(NoProgress(), ALL)}
PROJECTED: Final = 0.5
"""Completed share of a run from which on its projected runtime is tested."""


class JobMonitor:
    """Evidence, stall test, attribution, time by class and projected runtime of one job.

    pace: as of the begin of the job, None without a history. longest_seconds: longest interval in the history.
    kernel: what the kernels of its nodes know.
    """

    def __init__(
        self,
        pace: Pace | None,
        alpha: float,
        margin: float,
        longest_seconds: float,
        kernel: KernelAccount | None = None,
        nodes: JobNodes = ONE_NODE,
    ) -> None:
        self.evidence = Evidence(pace, alpha, margin, nodes)
        self._causes: dict[int, Cause] = {}
        self.began_at = math.nan
        self.class_times = ClassTimes()
        profile = pace.progress if pace is not None else None
        self.news = RemainingNews()
        self._progress = RunProgress(profile) if profile is not None else None
        self._windower = Windower(pace.window_seconds if pace is not None else WINDOW_SECONDS)
        self._stall = Stall(alpha / 8, longest_seconds)
        self._silences: deque[SilentSpan] = deque()
        self._nodes = nodes.number
        self._attribution = Attribution(nodes.number)
        self._windows: deque[Window] | None = deque(maxlen=WINDOWS) if nodes.number > 1 else None
        self._until = -math.inf
        self._lived_from = math.inf
        self._lived_until = -math.inf
        """From and until when the job is known to have run, whether or not an interval ended."""
        self._work: deque[WorkSpan] = deque(maxlen=WORK)
        self._worked_until = -math.inf
        self._explained = 0
        self._explained_work = -math.inf
        self._kernel = kernel or KernelAccount()
        self._work_cause = Cause()
        self._disturbed = False
        self._excused_cause = Cause()

    def add(self, blocks: JobBlocks, longest: npt.NDArray[np.float64]) -> None:
        """Add blocks in order of arrival. longest: the longest interval of each, seconds."""
        done = 0
        # Where they were in the stream, so that reading the log again gives the same alarms.
        while self._silences and self._silences[0].at < blocks.ended_at[-1]:
            silence = self._silences.popleft()
            stop = done + int(np.searchsorted(blocks.ended_at[done:], silence.at))
            self._add(blocks, longest, done, stop)
            self._add_silence(silence)
            done = stop
        self._add(blocks, longest, done, len(blocks.ended_at))

    def _add(self, blocks: JobBlocks, longest: npt.NDArray[np.float64], start: int, stop: int) -> None:
        if start == stop:
            return
        alarm = self.evidence.open
        if alarm is not None and alarm.kind == "stalled":
            # The interval that ends the silence is judged before the alarm ends: it is the stall, not a slowdown.
            self._add_part(blocks.part(start, start + 1), 0.0)
            self.evidence.add_silence(0.0, self._stall.began_at, self._stall.began_at)
            start += 1
        if start < stop:
            self._add_part(blocks.part(start, stop), float(np.max(longest[start:stop])))
        self.evidence.add_silence(0.0, self._stall.began_at, self._stall.began_at)

    def _add_part(self, blocks: JobBlocks, longest: float) -> None:
        ended_at = blocks.ended_at
        if math.isnan(self.began_at):
            first = 1 if blocks.counts is None else blocks.counts[0]
            self.began_at = float(ended_at[0] - blocks.seconds[0] * first)
            self._lived_from = min(self.began_at, self._lived_from)
        self._stall.add(float(ended_at[-1]), longest)
        # Window by window, so that rereading the log after a restart gives the same alarm and the same cause.
        for window in self._windower.add(*blocks):
            self._until = window.ended_at
            if self._windows is not None:
                self._windows.append(window)
            self._take_work()
            self.evidence.add(window)
            self.class_times.add(window)
            if self._progress is not None:
                self._progress.add(window)
            self._explain()
        self._until = float(ended_at[-1])

    def add_silences(self, silences: Iterable[SilentSpan]) -> None:
        """Add silences in order of time. They are evaluated with the blocks around them."""
        self._silences.extend(silences)

    def _add_silence(self, silence: SilentSpan) -> None:
        self._stall.add_silence(silence)
        self._lived_from = min(self._lived_from, silence.since)
        self._lived_until = max(self._lived_until, silence.at)
        rest = self._windower.rest
        self.evidence.wait(rest.counts if rest is not None else {}, silence.at)
        if not math.isnan(self._stall.began_at):
            self.evidence.add_silence(self._stall.score, self._stall.began_at, silence.at)

    def add_work(self, spans: Iterable[WorkSpan]) -> None:
        """Add the work of ranks or nodes in order of time. It is evaluated with the windows of its time."""
        self._work.extend(spans)

    def add_workers(self, rows: Iterable[WorkerRow], workers: int) -> None:
        """Add what the workers of a training did, in order of arrival. workers: their number."""
        for row in rows:
            self.evidence.add_worker(row, workers)

    def _take_work(self) -> None:
        onset_at = self.evidence.alarms[-1].onset_at if self._disturbed and self.evidence.alarms else math.inf
        if self._windows is not None and not self._windows:
            return  # what the job did meanwhile is not known yet
        while self._work and self._work[0].ended_at <= self._until:
            span = self._work.popleft()
            self._worked_until = span.ended_at
            self._attribution.add(span, onset_at)
            self._compare_nodes(span)

    def _compare_nodes(self, span: WorkSpan) -> None:
        """Test the nodes of a job on several, with what the job did meanwhile."""
        if self._windows is None:
            return
        members = [one for one in span.members if min(one.own_seconds, one.most_seconds) >= MIN_OWN_SECONDS * one.syncs]
        if len(members) < 2:
            return
        most, mean = (
            {one.name: seconds / one.syncs for one, seconds in zip(members, found, strict=True)}
            for found in ([one.most_seconds for one in members], [one.own_seconds for one in members])
        )
        pace = median((one.own_seconds + one.wait_seconds) / one.syncs for one in members)
        # A node may write numbers that contradict each other.
        if not pace >= MIN_OWN_SECONDS:
            return
        began_at = span.ended_at - pace * max(one.syncs for one in members)
        classes: Counter[int] = Counter()
        for window in self._windows:
            if window.ended_at > began_at and window.started_at < span.ended_at:
                classes.update(window.seconds)
        if classes:
            places = {one.name: one.place for one in members if one.place >= 0}
            work = NodeSpan(began_at, span.ended_at, most, mean, pace, classes, places, span.unit)
            # Next to no time in messages may vary by factors.
            late = {one.name: one.p2p_seconds / one.syncs + MESSAGES * pace for one in members}
            self.evidence.add_nodes(work, work._replace(most=late, mean=late))

    def judge_runtime(
        self, started_at: float, share: float, runtime_seconds: float = math.nan, *, did_less: bool = False
    ) -> None:
        """Test the runtime of the whole run. share: completed share of its sync points, NaN if unknown.

        From the share PROJECTED on a runtime without history is projected linearly; otherwise it is the time for which
        the program is known to have run.
        runtime_seconds: of an ended run. did_less: whether it had fewer sync points than its history, and took longer.
        """
        if math.isfinite(runtime_seconds):
            ended_at = started_at + runtime_seconds
            self.evidence.set_runtime(runtime_seconds, started_at, ended_at, over=True, did_less=did_less)
            return
        now = max(self._until, self._lived_until)
        # A launcher notes `started_at` before it writes to a disk that may be slow.
        seconds = now - max(started_at, self._lived_from)
        test = self.evidence.runtime_test
        if test is not None and not test.by_history and PROJECTED <= share <= 1:
            seconds += (self._until - self.began_at) * (1 / share - 1)
        self.evidence.set_runtime(seconds, started_at, now)

    def take_silences(self) -> None:
        """Evaluate the silences after the last block, now that everything up to some time was added."""
        while self._silences:
            self._add_silence(self._silences.popleft())

    def step(self) -> None:
        """Update the cause of an alarm."""
        self._take_work()
        self._explain()

    def _explain(self) -> None:
        if not self.evidence.alarms:
            # None was raised, or it was taken back.
            self._explained, self._disturbed = 0, False
            return
        alarm, last = self.evidence.alarms[-1], len(self.evidence.alarms) - 1
        self._explained = min(self._explained, len(self.evidence.alarms))
        fresh = self._explained < len(self.evidence.alarms)
        again = fresh or ((alarm.ended_at is None or self._disturbed) and not self._is_settled(alarm))
        if again:
            self._work_cause = self._why(alarm)
            self._explained = len(self.evidence.alarms)
            self._explained_work = self._worked_until
        if again or self._until - alarm.onset_at < 2 * KNOWN:
            named = Cause() if fresh else self._causes[last]
            self._causes[last] = self._by_kernel(alarm, self._work_cause, named)
        if self._causes[last].kind == "more-work" and not self.evidence.is_compared_with_history(alarm):
            self._excuse()
            return
        was, self._disturbed = self._disturbed, alarm.ended_at is None
        if was and not self._disturbed:
            self._attribution.end_disturbance(alarm.onset_at)

    def _excuse(self) -> None:
        """What the job does since its latest alarm is its usual work from now on."""
        self._attribution.begin_anew(self.evidence.alarms[-1].onset_at)
        self.evidence.excuse()
        self._disturbed = False
        self._excused_cause = self._causes.pop(len(self.evidence.alarms))
        self._explained = len(self.evidence.alarms)

    def _by_kernel(self, alarm: Alarm, cause: Cause, named: Cause) -> Cause:
        """The cause as far as kernels know one. named: the one that was told of this alarm before any row of theirs."""
        if not self._kernel.count or alarm.basis == "scaling":
            return cause
        # Later rows would dilute what was there when the job became slow.
        until = min(alarm.ended_at or math.inf, math.inf if alarm.basis in WHOLE_RUN else alarm.onset_at + KNOWN)
        lost = 1 - 1 / alarm.slowdown if alarm.slowdown > 1 else 1.0
        earlier = [(one.onset_at, one.ended_at or alarm.onset_at) for one in self.evidence.alarms[:-1]]
        found = self._kernel.explain(cause, alarm.onset_at, until, lost, earlier, self._nodes)
        is_compared = self.evidence.is_compared_with_history(alarm)
        if found.computed and (found.kind == "straggler" or (found.kind in _OF_PROGRAMS and not is_compared)):
            return replace(found, reason=MoreWork(found.numbers.get("own", 0.0)), silent=())
        if found.kind not in _OF_PROGRAMS or (is_compared and found.kind != "straggler"):
            return found
        if found.computed is not None or (found.kind, found.members) == (named.kind, named.members):
            return found
        waited = max(self._until, self._lived_until) - alarm.detected_at
        return Cause() if waited < AWAITED else found

    def _is_settled(self, alarm: Alarm) -> bool:
        # Node work may arrive late: sidecars deliver from their spools once the collector is available again.
        is_late = self._explained_work < min(self._worked_until, alarm.onset_at + SETTLED)
        return self._until - alarm.onset_at >= SETTLED and not is_late

    def remaining(self, now: float) -> JobRemaining | None:
        """What is left by the progress of earlier runs; None where the job has no comparable progress."""
        if self._progress is None:
            return None
        return self._progress.remaining(self._windower.rest, self.evidence.alarms, self._lived_until, now)

    def remaining_by_share(self, prior: RuntimePrior, started_at: float, share: float) -> JobRemaining | None:
        """What is left by a prediction and the completed share of the sync points; None if either tells nothing.

        share: NaN if unknown.
        """
        if not 0 < share <= 1 or not self._until > started_at:
            return None
        spread = PaceSpread(prior.scale, UNEVEN)
        usual = prior.expected_seconds
        left = remaining(share * usual, usual, self._until - started_at, spread, FREEDOM)
        return JobRemaining(left, share, prior.runs, f"{share:.0%} of the sync points, {prior.basis}")

    def disturbed(self, left: Remaining, now: float) -> Remaining:
        """What is left, which was found without the progress of the job, while a disturbance lasts."""
        alarm = self.evidence.open
        if alarm is None or not (alarm.kind == "stalled" or alarm.slowdown > 0) or not now > alarm.onset_at:
            return left
        slowdown = math.inf if alarm.kind == "stalled" else alarm.slowdown
        return stretched(left, Disturbance(slowdown, now - alarm.onset_at))

    def lost_to_others(self, since: float, seconds: float, expected_seconds: float) -> bool:
        """Whether kernels show what took the time that a run of so many seconds lost. since: its start."""
        share = 1 - expected_seconds / seconds
        cause = self._kernel.explain(Cause(), since, math.inf, share, (), self._nodes)
        return isinstance(cause.reason, KernelLoss)

    @property
    def cause(self) -> Cause:
        """The cause of the alarm that the verdict is about, or why its latest one was taken back."""
        if (alarm := self.evidence.alarm) is None:
            return self._excused_cause
        place = next(place for place, one in enumerate(self.evidence.alarms) if one is alarm)
        return self._causes.get(place, Cause())

    @property
    def open_since(self) -> float:
        """Onset of the current alarm, infinite without one."""
        return self.evidence.open.onset_at if self.evidence.open is not None else math.inf

    @property
    def members(self) -> tuple[str, ...]:
        """Names of ranks or nodes whose work is known."""
        return self._attribution.members()

    def _why(self, alarm: Alarm) -> Cause:
        if alarm.kind != "slow" or alarm.basis in WHOLE_RUN:
            # Of a whole run, there is no time before the onset to compare with.
            return _WITHOUT_MEMBERS[alarm.kind]
        if alarm.basis == WORKERS and (slow := self.evidence.slow_worker) is not None:
            members = (slow.host if self._nodes > 1 else f"rank {slow.rank}",)
            return Cause(LongerWork(slow.delay, "the others", slow.rank, slow.update), members)
        cause = self._attribution.cause(alarm.onset_at, alarm.slowdown, self.evidence.disturbed_until)
        beyond = self.evidence.beyond_places(alarm.slowdown) if alarm.basis == "its history" else None
        if beyond is not None and beyond.names:
            return Cause(LongerWork(beyond.seconds, "nodes at its place in earlier runs"), beyond.names, beyond.unit)
        if beyond is not None and isinstance(cause.reason, LongerWork) and cause.reason.reference == "the others":
            # The node that works longer than the others does so in every run.
            cause = Cause(AllSlow(as_before=True), ALL)
        if (slow_nodes := self.evidence.slow_nodes) is not None and cause.kind != "straggler":
            reason = LongerWork(slow_nodes.seconds)
            return Cause(reason, slow_nodes.names, slow_nodes.unit, growths=cause.growths)
        if cause.kind in ("all-slow", "unknown") and (phase := phase_cause(self.evidence.phases)) is not None:
            return replace(cause, reason=phase.reason, members=ALL)
        return cause
