"""A score in words: one sentence that an operator or a user can act on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from barograph_alerts.attribution.cause import Cause
from barograph_alerts.detection.baseline import FIRST
from barograph_alerts.detection.evidence import MINIMUM_RESIDUALS, Evidence
from barograph_alerts.detection.runtime_prior import RuntimePrior

MEMBERS = 3
"""Names said in a sentence; further ones are counted."""


def sentence(
    evidence: Evidence, workload: str, cause: Cause, phase: str = "", runtime: str = "", coincidence: str = ""
) -> str:
    """What is to be said of a job.

    cause: of its latest alarm. phase: the slow class in words, where one is. runtime: a clause about its whole run.
    coincidence: what coincides with the onset, in words.
    """
    tail = f"; {runtime}" if runtime else ""
    if evidence.state == "unknown":
        return f"unknown: {missing(evidence, workload)}{tail}"
    if evidence.basis == "scaling":
        return f"{evidence.state}: {_by_scaling(evidence)}{_coincides(coincidence)}"
    if not evidence.alarms:
        compared = f"{evidence.slowdown:.2f}x {evidence.basis} (score {evidence.highest:.2f}, slow above 1)"
        lacking = f", for {missing(evidence, workload)}" if evidence.basis != "its history" else ""
        return f"healthy: {compared}{lacking}{tail}"
    alarm = evidence.alarms[-1]
    since = _clock(alarm.onset_at) + (f" until {_clock(alarm.ended_at)}" if alarm.ended_at is not None else "")
    if alarm.kind == "stalled":
        return f"stalled: no sync point since {since}, far longer than any interval of {alarm.basis}{tail}"
    why = _why(cause, phase)
    earlier = f", disturbance {len(evidence.alarms)} of this job" if len(evidence.alarms) > 1 else ""
    score = f"(score {alarm.score:.1f}{earlier})"
    coincides = _coincides(coincidence)
    return f"{alarm.kind}: {alarm.slowdown:.2f}x {alarm.basis} since {since}{why} {score}{coincides}{tail}"


def foretold_clause(foretold: RuntimePrior) -> str:
    """What scaling says of a whole run."""
    lower, expected, upper = foretold[:3]
    return f"{expected:.2f} s foretold by {foretold.basis} (95 %: {lower:.2f} to {upper:.2f} s)"


def _by_scaling(evidence: Evidence) -> str:
    """How a run that is judged as a whole did."""
    if (total := evidence.total) is None:
        return "by scaling"
    score = evidence.alarms[-1].score if evidence.alarms else total.score
    verb = "ran" if evidence.over else "takes"
    return (
        f"{total.slowdown:.2f}x what was foretold (score {score:.2f}, slow above 1); "
        f"{verb} {total.seconds:.2f} s, {foretold_clause(total.foretold)}"
    )


def _coincides(text: str) -> str:
    return f"; coincides with: {text}" if text else ""


def missing(evidence: Evidence, workload: str) -> str:
    """Why a job is not judged by a history."""
    pace = evidence.pace
    if pace is None or pace.runs < 1:
        history = f"0 healthy runs of {workload} in the history, 1 needed"
    elif (windows := int(pace.residuals.size)) < MINIMUM_RESIDUALS:
        history = f"{windows} comparable windows of {workload} in the history, {MINIMUM_RESIDUALS} needed"
    else:
        history = f"not one window of {pace.window_seconds:g} s of the work that {workload} is known for"
    if evidence.windows:
        return history
    return f"{history}; or {FIRST} windows of repeated work of its own"


def _why(cause: Cause, phase: str) -> str:
    numbers = cause.numbers
    if cause.kind == "straggler":
        more = f" and {len(cause.members) - MEMBERS} more" if len(cause.members) > MEMBERS else ""
        who = ", ".join(cause.members[:MEMBERS]) + more
        if "blame" in numbers:
            return (
                f": {who} came last, with {numbers['blame']:.0%} of the waiting against {numbers['blame_before']:.0%}"
            )
        return f": {who} worked {1e3 * numbers['own']:.3g} ms longer per sync point, the others waited"
    if cause.kind == "network":
        return f": waiting grew by {1e3 * numbers['wait']:.3g} ms per sync point, nobody's own work did"
    if cause.kind == "one-phase":
        return f": {numbers['share']:.0%} of the lost time in {phase or 'one phase'}"
    if cause.kind == "all-slow" and numbers:
        return ": all ranks together"
    return ""


def _clock(at: float, convert: Callable[[float], time.struct_time] = time.localtime) -> str:
    return time.strftime("%H:%M:%S", convert(at))


def runtime_clause(runtime_seconds: float, band: tuple[float, float, float] | None, verb: str = "ran") -> str:
    """How long the run took beside how long it should; band: lower, expected, upper seconds. Empty if unknown."""
    if not math.isfinite(runtime_seconds):
        return ""
    if band is None:
        return f"{verb} {runtime_seconds:.2f} s"
    lower, expected, upper = band
    return f"{verb} {runtime_seconds:.2f} s, expected {expected:.2f} s (95 %: {lower:.2f} to {upper:.2f} s)"
