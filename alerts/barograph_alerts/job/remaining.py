"""What a running job has left, and when that is news."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from barograph_alerts.detection.alarm import Alarm
from barograph_modeler.maxima.ratio import log_ratio
from barograph_modeler.maxima.runtime import PRIOR_RUNS
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.pace.progress import ProgressProfile
from barograph_modeler.pace.remaining import MAX_LOG, Disturbance, PaceSpread, Remaining, remaining, stretched
from barograph_modeler.pace.windows import Window

MAX_PASSED: Final = 512
"""Windows of which it is kept how far the run was at their end; of more, every second one."""
AT_BEGIN: Final = 0.05
"""A disturbance that began before this share of the usual time lasts since the begin of the run."""
DELIVERED_SECONDS: Final = 3.0
"""Progress is known so many seconds late: until then the run is taken to go on."""
MAX_PAUSE: Final = 3.0
"""Time per progress of a single window that counts, as a multiple of the median of all since the onset."""
RECENT_PARTS: Final = (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32)
CLEARLY: Final = 3.0
"""Standard deviations by which one of the latest parts of a run, as shares of the usual time, differs from its pace."""
UNEVEN: Final = 0.1
"""Spread of elapsed time at equal shares of the sync points, where no run of the work shows when they occur."""
LOOK_SECONDS: Final = 5.0
LOOK_SHARE: Final = 0.01
"""From one look at a job to the next: this time, or this share of the time so far if that is longer."""
NEWS_SHARE: Final = 1 / 16
"""Progress that makes a row of the log, as a share of the run."""
NEWS_MOVED: Final = 0.1
NEWS_LATER: Final = 0.02
"""A change of the expected end makes a row too: by this share of what is left, and by this share of the time so far."""


class JobRemaining(NamedTuple):
    """What a job has left. share: completed share of its usual time, NaN if unknown. runs: earlier runs of the work;
    basis: in words."""

    left: Remaining
    share: float
    runs: int
    basis: str


class RunProgress:
    """How far a job is, by the progress of earlier runs. `add` its windows in order."""

    def __init__(self, profile: ProgressProfile) -> None:
        self._profile = profile
        self._counted, self._had, self._is_usual = 0, Counter[int](), True
        self._passed: list[tuple[float, float]] = []
        """Ends of windows in Unix seconds, and the usual seconds of the progress at each."""
        self._stride, self._windows = 1, 0

    def add(self, window: Window) -> None:
        """Add the job's next window."""
        if not self._passed:
            self._passed.append((window.started_at, 0.0))
        self._had.update(window.counts)
        self._is_usual = self._profile.is_in_order(window.counts, self._had)
        self._counted += self._profile.count(window.counts)
        self._windows += 1
        if self._windows % self._stride == 0:
            self._passed.append((window.ended_at, self._usual(self._counted)))
        if len(self._passed) > MAX_PASSED:
            del self._passed[1::2]
            self._stride *= 2

    def remaining(
        self, rest: Window | None, alarms: Sequence[Alarm], known_until: float, now: float
    ) -> JobRemaining | None:
        """What is left; None where earlier runs did not do what the latest window has, or had ended.

        rest: the open window. alarms: of the job. known_until: until when the job is known to run, now: Unix seconds
        both; between them it is taken to go on.
        """
        profile, counted, until = self._profile, self._counted, self._passed[-1][0] if self._passed else math.nan
        if rest is not None and self._passed:
            counted, until = counted + profile.count(rest.counts), rest.ended_at
        if not 0 < counted <= profile.points[-1] or not profile.usual_seconds > 0 or not self._is_usual:
            return None
        usual, done = profile.usual_seconds, self._usual(counted)
        at, progress = (np.array(column) for column in zip(*self._passed, (until, done), strict=True))
        elapsed, steady = until - float(at[0]), done
        known_until = max(until, known_until)
        goes_on = max(DELIVERED_SECONDS, self._usual(counted + 1) - done)
        disturbance, since_alarm = None, float(at[0])
        for alarm in alarms:
            since, end = max(alarm.onset_at, float(at[0])), until if alarm.ended_at is None else alarm.ended_at
            before, after = np.interp([since, end], at, progress).tolist()
            elapsed, steady = elapsed - max(0.0, end - since), steady - max(0.0, after - before)
            since_alarm = max(since_alarm, end)
            if alarm.ended_at is not None:
                continue
            if alarm.kind == "stalled" or after <= before:
                goes_on, disturbance = 0.0, Disturbance(math.inf, max(0.0, known_until - since))
            else:
                slowdown = _slowdown(at, progress, since)
                disturbance = Disturbance(slowdown, known_until - since, before <= AT_BEGIN * usual)
        spread = profile.spread.posterior(profile.runs)
        left = remaining(done, usual, elapsed, spread, PRIOR_RUNS + profile.runs - 1, steady=max(steady, 0.0))
        if disturbance is None and done < usual:
            recent = at >= since_alarm
            disturbance = _unalarmed(
                at[recent], progress[recent], usual, spread, left.expected_seconds / (usual - done)
            )
        if disturbance is not None:
            left = stretched(left, disturbance)
        if not math.isnan(profile.tail_seconds):
            left = left.with_tail(profile.tail_seconds)
        left = left.after(min(known_until - until, goes_on) + max(0.0, now - known_until))
        pace = math.exp(log_ratio(until - float(at[0]), done)) if done > 0 and until > at[0] else 1.0
        share = done / usual
        return JobRemaining(left, share, profile.runs, f"{share:.0%} done, in {pace:.2f} times the usual time")

    def _usual(self, counted: int) -> float:
        return float(np.interp(counted, self._profile.points, self._profile.seconds))


def _unalarmed(at: Floats, progress: Floats, usual: float, spread: PaceSpread, pace: float) -> Disturbance | None:
    """The latest part of a run that differs most clearly from `pace`, its pace otherwise; None if none does.

    An alarm needs more: that it is not raised in one of a hundred jobs. Here a mistake costs little.
    """
    most, found = CLEARLY, None
    for part in RECENT_PARTS:
        first = int(np.searchsorted(progress, progress[-1] - part * usual, side="right")) - 1
        passed, took = float(progress[-1] - progress[max(first, 0)]), float(at[-1] - at[max(first, 0)])
        if first < 0 or not passed > 0 < took:
            continue
        deviation = math.hypot(spread.between, spread.within / math.sqrt(passed / usual))
        # As a ratio of sums first, which costs little.
        if abs(log_ratio(took, passed) - math.log(pace)) <= most * deviation:
            continue
        slowdown = log_ratio(_slowdown(at, progress, float(at[first])), pace)
        if (clearness := abs(slowdown) / deviation) > most:
            most, found = clearness, Disturbance(math.exp(min(slowdown, MAX_LOG)), took)
    return found


def _slowdown(at: Floats, progress: Floats, since: float) -> float:
    """Actual over usual time since then; a single pause counts as a part that is MAX_PAUSE times as slow as others."""
    first = max(0, int(np.searchsorted(at, since, side="right")) - 1)
    actual, usual = np.diff(at[first:]), np.diff(progress[first:])
    steps = usual > 0
    if not steps.any():
        return math.inf
    most = MAX_PAUSE * float(np.median(actual[steps] / usual[steps]))
    return float(np.minimum(actual[steps], most * usual[steps]).sum() / usual[steps].sum())


class RemainingNews:
    """Which of the looks at a job are news."""

    def __init__(self) -> None:
        self._looked_at = -math.inf
        self._share = -math.inf
        self._end = math.nan

    def is_due(self, elapsed: float, now: float) -> bool:
        """Whether to look at the job again, which runs for `elapsed` seconds."""
        if now - self._looked_at < max(LOOK_SECONDS, LOOK_SHARE * elapsed):
            return False
        self._looked_at = now
        return True

    def is_news(self, found: JobRemaining, elapsed: float, now: float) -> bool:
        """Whether a job has progressed, or its expected end has changed, since the last news. now: Unix seconds."""
        expected = found.left.expected_seconds
        moved = abs(now + expected - self._end)
        unmoved = moved <= NEWS_MOVED * expected or moved <= NEWS_LATER * elapsed
        if unmoved and not found.share >= self._share + NEWS_SHARE:
            return False
        self._end, self._share = now + expected, found.share if found.share == found.share else self._share
        return True
