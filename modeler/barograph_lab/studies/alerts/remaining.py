"""How well the remaining time of running jobs is known, beside a prediction that does not look at the run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from barograph_alerts.detection.alarm import ALPHA, MARGIN
from barograph_alerts.job.disturbances import DisturbanceHistory
from barograph_alerts.job.monitor import JobMonitor
from barograph_lab.studies.alerts.pairs import MeasuredRun
from barograph_modeler.maxima.band import Band
from barograph_modeler.maxima.runtime import runtime_limits, runtime_scale
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.pace.length import Length
from barograph_modeler.pace.pace import Pace, fit_pace
from barograph_modeler.pace.progress import fit_progress
from barograph_modeler.pace.remaining import ComingDisturbances, Remaining, remaining_beyond, with_coming
from barograph_modeler.pace.timeline import Timeline
from barograph_modeler.pace.windows import JobBlocks, RunPace, Windower

SHARES: Final = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Of the run's own time, at which it is asked."""
PREDICTION: Final = "prediction - elapsed"
GIVEN: Final = "prediction, given elapsed"
PACE: Final = "pace so far"
OURS: Final = "barograph"
UNDISTURBED: Final = "barograph, none to come"
METHODS: Final = {
    PREDICTION: "the runtime band of earlier runs, less the time so far, at least 0",
    GIVEN: "the same, given that the run is longer than the time so far",
    PACE: "intervals that are left, as many as earlier runs had, at the mean interval so far",
    UNDISTURBED: "from the progress of the run, its own pace, and disturbances that were found",
    OURS: "the same, and disturbances to come as often as the other runs of the workload had them",
}
CLASS_ID: Final = 1
INTERVALS: Final = 2000
"""Of a simulated run."""
BEGAN_AT: Final = 1e9


@dataclass(frozen=True)
class RemainingError:
    """One method asked of one run. error: predicted less actual remaining time; width: of the 95 % limits. Both as a
    share of the run; None without an answer or limits. inside: whether the limits hold the actual time."""

    workload: str
    run: str
    disturbed: bool
    share: float
    method: str
    error: float | None
    width: float | None
    inside: bool | None


def remaining_errors(runs: Sequence[MeasuredRun], window: int, history: int) -> Iterator[RemainingError]:
    """Each run of one workload, by at most `history` of the others that were not disturbed, the ones before it first.

    Only runs of as many intervals count, as in the service.

    window: intervals in a window of one second, to which times are scaled.
    """
    scale = 1 / (window * float(np.median([run.values.mean() for run in runs if not run.disturbed] or [1.0])))
    runs = [run._replace(values=run.values * scale) for run in runs]
    for at, run in enumerate(runs):
        length = Length.of_runs([len(run.values)])
        others = [one for one in (*reversed(runs[:at]), *runs[at + 1 :]) if not one.disturbed]
        if others := [one for one in others if length.has(len(one.values))][:history]:
            yield from _errors(run, others, _coming([*runs[:at], *runs[at + 1 :]]))


def _coming(others: Sequence[MeasuredRun]) -> ComingDisturbances:
    """What the other runs of a workload tell of disturbances, if all that were disturbed have been found."""
    usual = float(np.median([one.values.sum() for one in others if not one.disturbed]))
    history = DisturbanceHistory()
    for one in others:
        history.add("", max(0.0, float(one.values.sum()) / usual - 1) if one.disturbed else 0.0)
    return history.coming("")


def _errors(run: MeasuredRun, others: Sequence[MeasuredRun], coming: ComingDisturbances) -> Iterator[RemainingError]:
    band = runtime_limits([float(one.values.sum()) for one in others])
    pace = _pace(others)
    if band is None:
        return
    ends = BEGAN_AT + np.cumsum(run.values)
    total, length = float(run.values.sum()), float(np.median([len(one.values) for one in others]))
    monitor = JobMonitor(pace, ALPHA, MARGIN, 2 * max(float(one.values.max()) for one in others))
    ids = np.full(len(ends), CLASS_ID, np.uint64)
    done = 0
    for share in SHARES:
        now = BEGAN_AT + share * total
        while done < (stop := int(np.searchsorted(ends, now, side="right"))):
            # As a daemon reads them: a second at a time.
            part = min(stop, max(done + 1, int(np.searchsorted(ends, ends[done] + 1.0))))
            monitor.add(JobBlocks(ids[done:part], run.values[done:part], ends[done:part]), run.values[done:part])
            monitor.step()
            done = part
        elapsed, left = share * total, (1 - share) * total
        found: dict[str, Remaining | float | None] = {
            PREDICTION: Remaining(*(max(0.0, one - elapsed) for one in (band.lower, band.expected, band.upper))),
            GIVEN: _given(band, elapsed),
            PACE: (ends[done - 1] - BEGAN_AT) * max(0.0, length / done - 1) if done else None,
            UNDISTURBED: None,
            OURS: None,
        }
        own = monitor.remaining(now)
        alone = own.left if own is not None else monitor.disturbed(_given(band, elapsed), now)
        found |= {UNDISTURBED: alone, OURS: with_coming(alone, elapsed, coming)}
        for method, answer in found.items():
            yield _scored(run, share, method, answer, left, total)


def _given(band: Band, elapsed: float) -> Remaining:
    scale = runtime_scale(band.expected, band.upper, band.samples)
    return remaining_beyond(elapsed, band.expected, *scale)


def _scored(
    run: MeasuredRun, share: float, method: str, answer: Remaining | float | None, left: float, total: float
) -> RemainingError:
    row = RemainingError(run.workload, run.name, run.disturbed, share, method, None, None, None)
    if answer is None:
        return row
    if not isinstance(answer, Remaining):
        return replace(row, error=(answer - left) / total)
    lower, expected, upper = answer
    return replace(
        row, error=(expected - left) / total, width=(upper - lower) / total, inside=bool(lower <= left <= upper)
    )


def _pace(runs: Sequence[MeasuredRun]) -> Pace:
    paces, timelines = [], []
    for run in runs:
        windower, pace, timeline = Windower(), RunPace(), Timeline()
        ends = BEGAN_AT + np.cumsum(run.values)
        windows = windower.add(np.full(len(ends), CLASS_ID, np.uint64), run.values, ends)
        pace.add(windows)
        timeline.add(windows + ([windower.rest] if windower.rest is not None else []))
        paces.append(pace.packed())
        timelines.append(timeline.packed(float(ends[-1])))
    return replace(fit_pace(paces), progress=fit_progress(timelines))


def summarize(rows: Sequence[RemainingError]) -> list[dict[str, Any]]:
    """A row per kind of runs, share and method. median_error, mean_error: of absolute errors, as shares of the run."""
    summary = []
    keys = dict.fromkeys((row.disturbed, row.share, row.method) for row in rows)
    for disturbed, share, method in sorted(keys, key=lambda key: (key[0], key[1], list(METHODS).index(key[2]))):
        mine = [row for row in rows if (row.disturbed, row.share, row.method) == (disturbed, share, method)]
        errors = [abs(row.error) for row in mine if row.error is not None]
        widths = [row.width for row in mine if row.width is not None]
        inside = [row.inside for row in mine if row.inside is not None]
        summary.append(
            {
                "runs": "disturbed" if disturbed else "healthy",
                "share": share,
                "method": method,
                "answers": len(errors),
                "median_error": float(np.median(errors)) if errors else None,
                "mean_error": float(np.mean(errors)) if errors else None,
                "coverage_95": float(np.mean(inside)) if inside else None,
                "median_width": float(np.median(widths)) if widths else None,
            }
        )
    return summary


def simulated_runs(workload: int, seed: int, healthy: int | None = None) -> list[MeasuredRun]:
    """Runs of a simulated workload, three of them disturbed. Deterministic for a seed.

    healthy: number of the others; 3, 5 or 9 if not given.
    """
    rng = np.random.default_rng([seed, workload])
    between, noise = rng.choice([0.005, 0.02, 0.05]), rng.choice([0.02, 0.1, 0.3])
    # Phases of different pace, as programs have them, and a slow drift of the machine within a run.
    phases = np.repeat(rng.lognormal(0, 0.5, 4), INTERVALS // 4)
    drift = rng.choice([0.0, 0.01, 0.03])

    def run(name: str, factor: Floats | float = 1.0, *, disturbed: bool = False) -> MeasuredRun:
        walk = np.cumsum(rng.normal(0, drift / math.sqrt(INTERVALS), INTERVALS))
        values = phases * rng.lognormal(0, noise, INTERVALS) * np.exp(walk + rng.normal(0, between)) * factor
        return MeasuredRun(f"simulated {workload}", name, values, disturbed)

    at = np.arange(INTERVALS) / INTERVALS
    drawn = int(rng.choice([3, 5, 9]))
    others = [run(f"healthy {number}") for number in range(drawn if healthy is None else healthy)]
    factor, since, lasting = rng.uniform(1.15, 3.0), rng.uniform(0.1, 0.8), rng.uniform(0.05, 0.4)
    return [
        *others,
        run("slow from the begin", factor, disturbed=True),
        run("slow to the end", np.where(at >= since, factor, 1.0), disturbed=True),
        run("slow for a time", np.where((at >= since) & (at < since + lasting), factor, 1.0), disturbed=True),
    ]
