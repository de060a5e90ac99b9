"""Rows of `scores`: written from the monitor of a job, and read back after a restart."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from barograph_agent.protocol.tables import TEXT_LIMIT
from barograph_agent.protocol.wire import Column
from barograph_alerts.detection.alarm import Basis
from barograph_alerts.detection.evidence import Evidence
from barograph_alerts.detection.runtime_prior import FROM_PROGRESS, RuntimeHistory, RuntimePrior
from barograph_alerts.job.job import WatchedJob
from barograph_alerts.job.monitor import JobMonitor
from barograph_alerts.job.references import References
from barograph_alerts.job.remaining import JobRemaining
from barograph_alerts.job.verdict import prediction_clause, runtime_clause, sentence
from barograph_collector.daemon.runner import Output
from barograph_modeler.forecasts.history import Application, parse_params, problem_name

BASES: Final[Mapping[Basis, str]] = {
    "its history": "history",
    "its own first windows": "own",
    "its runtimes": "runtimes",
    "scaling": "scaling",
    "its pace before": "own",
    "the other workers": "workers",
}


EXCESS: Final = "excess"
"""In the evidence of a disturbed run that has ended: its time beyond the usual one, as a share of that."""


class JobVerdict(NamedTuple):
    """The final verdict of a job. hosts: its nodes; empty if they were too many for one value of the log."""

    job: str
    workload: str
    cause: str
    members: tuple[str, ...]
    hosts: tuple[str, ...]
    state: str
    excess: float = math.nan
    """Its time beyond the usual one, as a share of that; 0 if nothing disturbed it, NaN if unknown."""


def score_output(
    name: str, job: WatchedJob, monitor: JobMonitor, known: References, now: float, *, left: float = math.nan
) -> Output:
    """The row of `scores` of a job. Also sets the sentence of the job. left: seconds that remain, NaN if unknown."""
    evidence, cause = monitor.evidence, monitor.cause
    alarm = evidence.alarm
    judged = evidence.state != "unknown"
    phase = job.class_name(cause.phase) if cause.phase is not None else ""
    first = job.coincidences[0].text if job.coincidences else ""
    runtimes = known.runtime(job.workload)
    job.sentence = sentence(
        evidence,
        job.workload,
        cause,
        runs=runtimes.runs if runtimes is not None else 0,
        how=job.how,
        phase=phase,
        runtime=_runtime(job, monitor, runtimes, now, left),
        coincidence=first,
        former=known.runtime(job.former),
        unit=job.unit,
    )
    columns = {
        "job": name,
        "workload": job.workload,
        "state": evidence.state,
        "score": (evidence.highest if job.ended else evidence.score) if judged else math.nan,
        "slowdown": evidence.slowdown if judged else math.nan,
        "onset_at": alarm.onset_at if alarm else math.nan,
        "alarmed_at": alarm.detected_at if alarm else math.nan,
        "windows": evidence.windows,
        "final": int(job.ended),
        "sentence": job.sentence[:TEXT_LIMIT],  # it has call sites and parameters
        "time": now,
        "cause": cause.kind if alarm or evidence.excused else "none",
        "members": _listed(cause.members if alarm or evidence.excused else ()),
        "evidence": json.dumps(_numbers(job, monitor), separators=(",", ":")),
        "basis": BASES[evidence.basis],
        "recovered_at": alarm.ended_at if alarm and alarm.ended_at is not None else math.nan,
        "hosts": _listed(job.hosts if job.ended else ()),
    }
    return Output("scores", 1, columns)


def remaining_output(name: str, job: WatchedJob, found: JobRemaining, now: float) -> Output:
    """The row of `predictions` of a running job, of which `problem` is known."""
    assert job.problem is not None
    application = Application(job.problem.cluster, job.problem.app)
    # The clocks of nodes differ.
    so_far = max(0.0, now - job.started_at)
    columns = {
        "job": name,
        "application": str(application),
        "problem": problem_name(application, parse_params(job.problem.params)),
        "ranks": job.ranks,
        "nodes": job.nodes,
        "model": found.basis,
        "runs": found.runs,
        "lower_seconds": so_far + found.left.lower_seconds,
        "expected_seconds": so_far + found.left.expected_seconds,
        "upper_seconds": so_far + found.left.upper_seconds,
        "made_at": now,
        "scales": 1,
        "method": FROM_PROGRESS,
    }
    return Output("predictions", 1, columns)


def unjudged_output(name: str, workload: str, reason: str, now: float) -> Output:
    """The final row of `scores` of a job that is not judged. now: Unix seconds."""
    unknown = dict.fromkeys(("score", "slowdown", "onset_at", "alarmed_at", "recovered_at"), math.nan)
    columns = {
        **unknown,
        "job": name,
        "workload": workload or "unknown",
        "state": "unknown",
        "windows": 0,
        "final": 1,
        "sentence": f"unknown: {reason}"[:TEXT_LIMIT],
        "time": now,
        "cause": "none",
        "members": "[]",
        "evidence": "{}",
        "basis": "history",
        "hosts": "[]",
    }
    return Output("scores", 1, columns)


VERDICT_COLUMNS: Final = ("final", "job", "workload", "cause", "members", "hosts", "state", "evidence")
"""What is read of a final row of `scores`."""


def verdicts(columns: Mapping[str, Column]) -> Iterator[JobVerdict]:
    """The final verdicts in rows of `scores`."""
    rows = zip(*(columns[name] for name in VERDICT_COLUMNS), strict=True)
    for final, job, workload, cause, members, hosts, state, evidence in rows:
        if final:
            excess = float(json.loads(evidence).get(EXCESS, 0.0 if state == "healthy" else math.nan))
            yield JobVerdict(job, workload, cause, _names(members), _names(hosts), state, excess)


def _runtime(job: WatchedJob, monitor: JobMonitor, history: RuntimeHistory | None, now: float, left: float) -> str:
    """A clause about the runtime of the whole run."""
    test = monitor.evidence.runtime_test
    # The run may have become part of the history meanwhile.
    if test is not None and isinstance(test.prior, RuntimeHistory):
        history = test.prior
    verb = "ran" if job.ended else "has run" if job.other_work else "will take"
    so_far = now - job.started_at
    seconds = job.runtime_seconds if job.ended else so_far if job.other_work else so_far + left
    clause = runtime_clause(seconds, history, verb, other_work=job.other_work)
    if test is None or not isinstance(test.prior, RuntimePrior):
        return clause
    return "; ".join(filter(None, (clause, prediction_clause(test.prior))))


def _numbers(job: WatchedJob, monitor: JobMonitor) -> dict[str, float]:
    evidence: Evidence = monitor.evidence
    numbers: dict[str, Any] = {}
    if evidence.alarms:
        numbers.update(monitor.cause.numbers)
        for coincidence in job.coincidences:
            numbers.update(coincidence.numbers)
        if job.ended and (excess := job.excess) > 0:
            numbers[EXCESS] = excess
    test = evidence.runtime_test
    if evidence.basis == "scaling" and test is not None and isinstance(test.prior, RuntimePrior):
        lower, expected, upper, runs, scales = test.prior
        numbers.update(foretold=expected, foretold_lower=lower, foretold_upper=upper, runs=runs, scales=scales)
    return {key: round(value, 9) for key, value in numbers.items()}


def _listed(names: Iterable[str]) -> str:
    text = json.dumps(list(names))
    return text if len(text) <= TEXT_LIMIT else "[]"


def _names(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text)) if text != "[]" else ()
