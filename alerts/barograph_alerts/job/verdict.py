"""The verdict of a job as one sentence."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from barograph_alerts.attribution.cause import Cause
from barograph_alerts.detection.alarm import Alarm
from barograph_alerts.detection.baseline import FIRST
from barograph_alerts.detection.evidence import MINIMUM_RESIDUALS, WHOLE_RUN, Evidence
from barograph_alerts.detection.runtime_prior import RuntimeHistory, RuntimePrior, counted_runs
from barograph_alerts.job import cause_words

COMPARED = {"same": "the same input", "like": "like work", "merged": "like work"}
"""What runs of a group have in common, by how a job was found to belong to it."""


def sentence(
    evidence: Evidence,
    workload: str,
    cause: Cause,
    *,
    runs: int = 0,
    how: str = "",
    phase: str = "",
    runtime: str = "",
    coincidence: str = "",
    former: RuntimeHistory | None = None,
    unit: str = "sync point",
) -> str:
    """The verdict of a job in words.

    cause: of its latest alarm. runs: healthy runs of the workload whose runtimes are known. how: the group of like work
    was found, as in table `assignments`. phase: name of the slow class, if one is. runtime: a clause about the whole
    run. coincidence: text of the first coincidence with the onset. former: runtimes of the runs that asked for the
    same, but did other work. unit: what ends an interval.
    """
    tail = f"; {runtime}" if runtime else ""
    coincides = f"; coincides with: {coincidence}" if coincidence else ""
    lacks = missing(evidence, workload, runs, how)
    if evidence.state == "unknown":
        return f"unknown: {lacks}{tail}"
    tail = _compared(evidence, runs, how) + _mixed(evidence) + tail
    if evidence.basis == "scaling":
        return f"{evidence.state}: {_by_scaling(evidence)}{coincides}"
    if (alarm := evidence.alarm) is None:
        open_question = evidence.state == "inconclusive"
        compared = _undecided(evidence, cause, unit, former) if open_question else _usual(evidence)
        score = f" (score {evidence.highest:.2f}, slow above 1)"
        score += f", for {lacks}" if evidence.basis == "its own first windows" else ""
        is_taken_back = evidence.is_undecided or evidence.excused is not None
        return f"{evidence.state}: {compared}{'' if is_taken_back else score}{tail}"
    if alarm.basis == "its runtimes":
        whole = f"{alarm.slowdown:.2f}x the runtime of {_runs(evidence)}{cause_words.clause(cause)}"
        return f"{alarm.kind}: {whole} (score {alarm.score:.1f}){coincides}{tail}"
    until = evidence.known_until if alarm.ended_at is None and evidence.is_within_limits else alarm.ended_at
    since = _clock(alarm.onset_at) + (f" until {_clock(until)}" if until is not None else "")
    why = cause_words.clause(cause, phase, unit)
    if alarm.kind == "stalled":
        return f"stalled: no {unit} since {since}, far longer than any interval of {alarm.basis}{why}{tail}"
    earlier = f", of {len(evidence.alarms)} disturbances of this job" if len(evidence.alarms) > 1 else ""
    score = f"(score {alarm.score:.1f}{earlier})"
    return f"{alarm.kind}: {alarm.slowdown:.2f}x {alarm.basis} since {since}{why} {score}{coincides}{tail}"


def _compared(evidence: Evidence, runs: int, how: str) -> str:
    """A clause about the runs that the job is compared with, if it is known what they were asked for."""
    is_of_pace = evidence.basis == "its history" and (evidence.alarm or not evidence.outside_limits)
    if evidence.pace is not None and is_of_pace:
        runs = evidence.pace.runs
    if how not in COMPARED or not runs or evidence.basis not in ("its history", *WHOLE_RUN):
        return ""
    return f"; compared with {counted_runs(runs)} of {COMPARED[how]}"


def _mixed(evidence: Evidence) -> str:
    """A clause about a history in which intervals of one class are of several kinds: less can be told of a window."""
    kinds = evidence.pace.kinds() if evidence.pace is not None and evidence.basis == "its history" else None
    if kinds is None:
        return ""
    return f"; a mixture: in {kinds.share:.0%} of its history the same intervals took {kinds.ratio:.2g}x as long"


def _usual(evidence: Evidence) -> str:
    """What a healthy job is like; its slowdown cannot be told from 1."""
    if evidence.basis == "its runtimes":
        return f"within the limits of {_runs(evidence)}"
    own = evidence.basis == "its own first windows"
    return "steady since its first windows" if own else "within the spread of its history"


def _undecided(evidence: Evidence, cause: Cause, unit: str, former: RuntimeHistory | None) -> str:  # noqa: PLR0911
    """What keeps a job from being healthy, and from being slow."""
    if evidence.is_undecided and former is not None:
        lower, expected, upper, _ = former
        took = f"{expected:.2f} s, 95 %: {lower:.2f} to {upper:.2f} s"
        return f"longer than {counted_runs(former.runs)} of the same command ({took}), but it communicated otherwise"
    test = evidence.runtime_test
    if evidence.excused is not None and not evidence.outside_limits:
        return _more_work(evidence.excused, cause, unit)
    if evidence.is_contradicted:
        return f"slower for a time, but over no later than {_runs(evidence)} were"
    if not evidence.outside_limits or test is None:
        pace = f"{evidence.slowdown:.2f}x the time per interval of its history"
        if evidence.slowdown < 1:
            return f"{pace}, faster than its runs differ: check its results"
        return f"{pace}, more than its runs differ, but too little evidence"
    if test.seconds < test.prior.expected_seconds:
        return f"shorter than the limits of {_runs(evidence)}"
    lacking = "by less than the margin" if test.is_small else "but too little evidence"
    return f"longer than the limits of {_runs(evidence)}, {lacking}"


def _more_work(alarm: Alarm, cause: Cause, unit: str) -> str:
    """What a program does more by itself."""
    slowdown = f"{alarm.slowdown:.2f}x {alarm.basis} since {_clock(alarm.onset_at)}"
    either = "more work, or slower in a way that no counter shows: a first run cannot tell"
    return f"{slowdown}{cause_words.clause(cause, unit=unit)}: {either}"


def _runs(evidence: Evidence) -> str:
    test = evidence.runtime_test
    return test.prior.basis if test is not None else "its history"


def prediction_clause(prior: RuntimePrior) -> str:
    """A clause about the runtime predicted by scaling."""
    lower, expected, upper = prior[:3]
    return f"{expected:.2f} s predicted by {prior.basis} (95 %: {lower:.2f} to {upper:.2f} s)"


def _by_scaling(evidence: Evidence) -> str:
    """A clause about a run that is tested as a whole."""
    if (total := evidence.runtime_test) is None or not isinstance(total.prior, RuntimePrior):
        return "by scaling"
    score = evidence.alarm.score if evidence.alarm is not None else total.score
    verb = "ran" if evidence.over else "takes"
    return (
        f"{total.slowdown:.2f}x what was predicted (score {score:.2f}, slow above 1); "
        f"{verb} {total.seconds:.2f} s, {prediction_clause(total.prior)}"
    )


def missing(evidence: Evidence, workload: str, runs: int, how: str) -> str:
    """The reason that a job is not compared with a history. runs: healthy runs whose runtimes are known."""
    pace = evidence.pace
    if evidence.is_unread:
        return "its command could not be read, so nobody knows which runs did the same work"
    if pace is None or pace.runs < 1:
        history = f"0 healthy runs of {workload} in the history, 1 needed"
        if how == "first":
            history = f"this is the first run of this work, {workload}"
        if runs:
            history = f"no windows of sync points in the history of {workload}, {counted_runs(runs)}"
    elif (windows := int(pace.residuals.size)) < MINIMUM_RESIDUALS:
        history = f"{windows} comparable windows of {workload} in the history, {MINIMUM_RESIDUALS} needed"
    else:
        history = f"not one window of {pace.window_seconds:g} s of the work that {workload} is known for"
    if evidence.windows:
        return history
    return f"{history}, and fewer than {FIRST} windows of repeated work of its own"


def _clock(at: float, convert: Callable[[float], time.struct_time] = time.localtime) -> str:
    return time.strftime("%d %b %H:%M:%S", convert(at))


def runtime_clause(
    runtime_seconds: float, history: RuntimeHistory | None, verb: str = "ran", other_work: str = ""
) -> str:
    """A clause with actual and expected runtime, empty if unknown. other_work: why it is not expected."""
    if not math.isfinite(runtime_seconds):
        return ""
    actual = f"{verb} {runtime_seconds:.2f} s"
    if history is None:
        return actual
    if other_work:
        return f"{actual}, {other_work}"
    if history.vague:
        return f"{actual}; its history, {history.basis}, differs too much to expect anything"
    lower, expected, upper, _ = history
    return f"{actual}, expected {expected:.2f} s (95 %: {lower:.2f} to {upper:.2f} s)"
