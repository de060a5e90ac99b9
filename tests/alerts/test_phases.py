"""Programs of phases in any order, whose phases of messages are measured otherwise in each run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from barograph_alerts.detection.stall import SilentSpan
from barograph_alerts.job.monitor import JobMonitor
from barograph_modeler.pace.pace import Pace, fit_pace
from barograph_modeler.pace.progress import fit_progress
from barograph_modeler.pace.timeline import Timeline
from barograph_modeler.pace.windows import JobBlocks, RunPace, Windower

Run = tuple[np.ndarray, np.ndarray]
"""Classes and seconds of intervals."""
KINDS = ("collectives", "messages", "computing")
Phase = tuple[str, float, int]
"""Kind, seconds, and intervals."""


def measured(phases: list[Phase], rng: np.random.Generator) -> Run:
    """What no collective ends is one interval, or many between calls that the run happened to choose."""
    classes, seconds = [], []
    for number, (kind, length, intervals) in enumerate(phases):
        choice = int(rng.integers(3)) if kind == "messages" else 0
        count = intervals + choice if kind == "collectives" or choice else 1
        noise = rng.lognormal(0, 0.1, count)
        classes.append(np.full(count, 10 * number + choice, np.uint64))
        seconds.append(length * rng.lognormal(0, 0.01) * noise / noise.sum())
    return np.concatenate(classes), np.concatenate(seconds)


def learned(runs: list[Run]) -> Pace:
    paces, timelines = [], []
    for classes, seconds in runs:
        windower, pace, timeline = Windower(), RunPace(), Timeline()
        windows = windower.add(classes, seconds, np.cumsum(seconds))
        pace.add(windows)
        timeline.add(windows + ([windower.rest] if windower.rest is not None else []))
        paces.append(pace.packed())
        timelines.append(timeline.packed(float(seconds.sum())))
    return replace(fit_pace(paces), progress=fit_progress(timelines))


def alarms(run: Run, earlier: list[Run]) -> int:
    classes, seconds = run
    ends = np.cumsum(seconds)
    monitor = JobMonitor(
        learned(earlier) if earlier else None, 0.01, 0.05, max([0.0, *(one[1].max() for one in earlier)])
    )
    silent = [(since, end) for since, end in zip(np.append(0, ends), ends, strict=False) if end - since > 5]
    monitor.add_silences(SilentSpan(since, at) for since, end in silent for at in np.arange(since + 5, end, 1.0))
    for part in np.array_split(np.arange(len(ends)), 1 + len(ends) // 200):
        monitor.add(JobBlocks(classes[part], seconds[part], ends[part]), seconds[part])
    return len(monitor.evidence.alarms)


def test_healthy_runs_of_programs_of_phases_do_not_alarm_however_these_are_measured():
    alarmed = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        phases = [(str(rng.choice(KINDS)), float(rng.uniform(1, 12)), int(rng.integers(20, 16_000))) for _ in range(6)]
        runs: list[Run] = []
        for _ in range(4):
            run = measured(phases, rng)
            alarmed += alarms(run, runs) > 0
            runs.append(run)
    assert alarmed <= 1
