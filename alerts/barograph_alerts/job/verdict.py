"""The verdict of a job as one sentence."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from barograph_alerts.attribution.cause import Cause
from barograph_alerts.detection.alarm import Alarm
from barograph_alerts.detection.baseline import FIRST
from barograph_alerts.detection.evidence import MINIMUM_RESIDUALS, Evidence
from barograph_alerts.detection.runtime_prior import RuntimeHistory, RuntimePrior, counted_runs
from barograph_alerts.job import kernel_words

COMPARED = {"same": "the same input", "like": "like work", "merged": "like work"}
"""What runs of a group have in common, by how a job was found to belong to it."""
LONGER = 1.1
"""Updates of a worker that are told."""
MEMBERS = 3
"""Names listed in a sentence; further ones are counted."""


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
    tail = (f"; {runtime}" if runtime else "") + _not_compared(former)
    lacks = missing(evidence, workload, runs, how)
    if evidence.state == "unknown":
        return f"unknown: {lacks}{tail}"
    tail = _compared(evidence, runs, how) + _mixed(evidence) + tail
    if evidence.basis == "scaling":
        return f"{evidence.state}: {_by_scaling(evidence)}{_coincides(coincidence)}"
    if not evidence.alarms:
        compared = _undecided(evidence, cause, unit) if evidence.state == "inconclusive" else _usual(evidence)
        lacking = f", for {lacks}" if evidence.basis == "its own first windows" else ""
        return f"{evidence.state}: {compared} (score {evidence.highest:.2f}, slow above 1){lacking}{tail}"
    alarm = evidence.alarms[-1]
    if alarm.basis == "its runtimes":
        whole = f"{alarm.slowdown:.2f}x the runtime of {_runs(evidence)}{_by_kernel(cause, '')}"
        return f"{alarm.kind}: {whole} (score {alarm.score:.1f}){_coincides(coincidence)}{tail}"
    since = _clock(alarm.onset_at) + (f" until {_clock(alarm.ended_at)}" if alarm.ended_at is not None else "")
    if alarm.kind == "stalled":
        why = _by_kernel(cause, "")
        return f"stalled: no {unit} since {since}, far longer than any interval of {alarm.basis}{why}{tail}"
    why = _by_kernel(cause, cause_clause(cause, phase, unit))
    earlier = f", disturbance {len(evidence.alarms)} of this job" if len(evidence.alarms) > 1 else ""
    score = f"(score {alarm.score:.1f}{earlier})"
    coincides = _coincides(coincidence)
    return f"{alarm.kind}: {alarm.slowdown:.2f}x {alarm.basis} since {since}{why} {score}{coincides}{tail}"


def _compared(evidence: Evidence, runs: int, how: str) -> str:
    """A clause about the runs that the job is compared with, if it is known what they were asked for."""
    if evidence.pace is not None and evidence.basis == "its history":
        runs = evidence.pace.runs
    if how not in COMPARED or not runs or evidence.basis == "its own first windows":
        return ""
    return f"; compared with {counted_runs(runs)} of {COMPARED[how]}"


def _mixed(evidence: Evidence) -> str:
    """A clause about a history in which intervals of one class are of several kinds: less can be told of a window."""
    kinds = evidence.pace.kinds() if evidence.pace is not None and evidence.basis == "its history" else None
    if kinds is None:
        return ""
    return f"; a mixture: in {kinds.share:.0%} of its history the same intervals took {kinds.ratio:.2g}x as long"


def _not_compared(history: RuntimeHistory | None) -> str:
    """A clause about runs that asked for the same, and are not compared with: a disturbance may be why they differ."""
    if history is None:
        return ""
    took = "" if history.vague else f", which took {history.expected_seconds:.2f} s"
    asked = f"{counted_runs(history.runs)} that asked for the same"
    return f"; not compared with {asked}{took}: other messages, or another number of intervals"


def _usual(evidence: Evidence) -> str:
    """What a healthy job is like; its slowdown cannot be told from 1."""
    if evidence.basis == "its runtimes":
        return f"within the limits of {_runs(evidence)}"
    own = evidence.basis == "its own first windows"
    return "steady since its first windows" if own else "within the spread of its history"


def _undecided(evidence: Evidence, cause: Cause, unit: str) -> str:
    """What keeps a job from being healthy, and from being slow."""
    test = evidence.runtime_test
    if evidence.excused is not None and not evidence.outside_limits:
        return _more_work(evidence.excused, cause, unit)
    if not evidence.outside_limits or test is None:
        pace = f"{evidence.slowdown:.2f}x the time per interval of its history"
        return f"{pace}, more than its runs differ, but too little evidence"
    if test.seconds < test.prior.expected_seconds:
        return f"shorter than the limits of {_runs(evidence)}"
    lacking = "by less than the margin" if test.is_small else "but too little evidence"
    return f"longer than the limits of {_runs(evidence)}, {lacking}"


def _more_work(alarm: Alarm, cause: Cause, unit: str) -> str:
    """What a program does more by itself."""
    slowdown = f"{alarm.slowdown:.2f}x {alarm.basis} since {_clock(alarm.onset_at)}"
    return f"{slowdown}: {_computed(cause, unit)}: more work, as far as a first run tells"


def _computed(cause: Cause, unit: str) -> str:
    who = "all ranks" if cause.members == ("all",) else _names(cause)
    longer = f"{1e3 * own:.3g} ms longer per {unit}" if (own := cause.numbers.get("own", 0.0)) > 0 else "longer"
    return f"{who} computed {longer}, at the same speed as before"


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
    score = evidence.alarms[-1].score if evidence.alarms else total.score
    verb = "ran" if evidence.over else "takes"
    return (
        f"{total.slowdown:.2f}x what was predicted (score {score:.2f}, slow above 1); "
        f"{verb} {total.seconds:.2f} s, {prediction_clause(total.prior)}"
    )


def _coincides(text: str) -> str:
    return f"; coincides with: {text}" if text else ""


def missing(evidence: Evidence, workload: str, runs: int, how: str) -> str:
    """The reason that a job is not compared with a history. runs: healthy runs whose runtimes are known."""
    pace = evidence.pace
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


def _by_kernel(cause: Cause, why: str) -> str:
    """What kernels know, or `why` and what they show beside it."""
    if words := kernel_words.known(cause):
        return f": {words}"
    words = kernel_words.beside(cause)
    return why + (f"{',' if why else ':'} {words}" if words else "")


def _by_straggler(cause: Cause, names: str, unit: str) -> str:
    """A clause about members that others wait for. names: theirs."""
    numbers = cause.numbers
    if "blame" in numbers:
        shares = f"{numbers['blame']:.0%} of the waiting against {numbers['blame_before']:.0%}"
        return f": {names} came last, with {shares}"
    if "worker" in numbers:
        names = f"worker {numbers['worker']:.0f}" + ("" if names.startswith("rank ") else f" on {names}")
    if "own_more" in numbers:
        others = "nodes at its place in earlier runs" if "place" in numbers else "the others"
        updates = f", and updated {numbers['update']:.2f}x as long" if numbers.get("update", 0.0) >= LONGER else ""
        return f": {names} worked {1e3 * numbers['own_more']:.3g} ms longer per {unit} than {others}{updates}"
    return f": {names} worked {1e3 * numbers['own']:.3g} ms longer per {unit}, the others waited"


def cause_clause(cause: Cause, phase: str = "", unit: str = "sync point") -> str:
    """A clause about what nodes and ranks did since the onset. phase, unit: as in `sentence`."""
    numbers = cause.numbers
    names = _names(cause)
    if cause.kind == "straggler":
        return _by_straggler(cause, names, unit)
    if cause.kind == "more-work":
        return f": {_computed(cause, unit)}"
    if cause.kind == "link":
        link = f"the link of {names}" if len(cause.members) == 1 else f"a link of {names}"
        if "transfer" in numbers:
            now, usual = (1e3 * numbers[name] for name in ("transfer", "usual"))
            return f": {link}: a megabyte was in flight for {now:.3g} ms, {usual:.3g} ms before"
        return f": {link}: messages took {1e3 * numbers['p2p']:.3g} ms longer per {unit}, nobody's own work did"
    if cause.kind == "network":
        return f": waiting grew by {1e3 * numbers['wait']:.3g} ms per {unit}, nobody's own work did"
    clauses = [_uncompared(cause)]
    if cause.kind == "one-phase":
        clauses.insert(0, f"{numbers['share']:.0%} of the lost time in {phase or 'one phase'}")
    if cause.kind == "all-slow" and numbers:
        clauses = ["all ranks together"]
    return f": {', '.join(filter(None, clauses))}" if any(clauses) else ""


def _names(cause: Cause) -> str:
    more = f" and {len(cause.members) - MEMBERS} more" if len(cause.members) > MEMBERS else ""
    return ", ".join(cause.members[:MEMBERS]) + more


def _uncompared(cause: Cause) -> str:
    """A clause about nodes without which the cause is not known; empty if there are none."""
    if "nodes_compared" not in cause.numbers:
        return ""
    nodes, compared = int(cause.numbers["nodes"]), int(cause.numbers["nodes_compared"])
    lacking = f"{nodes - compared} of {nodes}" if compared else f"{nodes}"
    return f"nodes could not be compared: no common sync points of {lacking} before and since then"


def _clock(at: float, convert: Callable[[float], time.struct_time] = time.localtime) -> str:
    return time.strftime("%H:%M:%S", convert(at))


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
