"""A score in words: one sentence that an operator or a user can act on."""

from __future__ import annotations

import math
import time

from barograph_alerts.evidence import MINIMUM_RESIDUALS, Evidence
from barograph_modeler.pace import MINIMUM_RUNS, Pace


def sentence(evidence: Evidence | None, pace: Pace | None, workload: str, runtime: str = "") -> str:
    """What is to be said of a job. runtime: a clause about its whole run, once it has ended."""
    tail = f"; {runtime}" if runtime else ""
    if evidence is None or evidence.state == "unknown":
        return f"unknown: {_missing(pace, workload)}{tail}"
    if evidence.state == "slow" and evidence.onset_at is not None:
        since = time.strftime("%H:%M:%S", time.localtime(evidence.onset_at))
        return f"slow: {evidence.slowdown:.2f}x its history since {since} (score {evidence.highest:.1f}){tail}"
    return f"healthy: {evidence.slowdown:.2f}x its history (score {evidence.highest:.2f}, slow above 1){tail}"


def _missing(pace: Pace | None, workload: str) -> str:
    runs = pace.runs if pace is not None else 0
    if pace is None or runs < MINIMUM_RUNS:
        return f"{runs} healthy runs of {workload} in the history, {MINIMUM_RUNS} needed"
    if (windows := int(pace.residuals.size)) < MINIMUM_RESIDUALS:
        return f"{windows} comparable windows of {workload} in the history, {MINIMUM_RESIDUALS} needed"
    return f"not one window of {pace.window_seconds:g} s of the work that {workload} is known for"


def runtime_clause(runtime_seconds: float, band: tuple[float, float, float] | None) -> str:
    """How long the run took beside how long it should; band: lower, expected, upper seconds. Empty if unknown."""
    if not math.isfinite(runtime_seconds):
        return ""
    if band is None:
        return f"ran {runtime_seconds:.2f} s"
    lower, expected, upper = band
    return f"ran {runtime_seconds:.2f} s, expected {expected:.2f} s (95 %: {lower:.2f} to {upper:.2f} s)"
