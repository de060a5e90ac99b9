"""The smallest lasting slowdown that is found, against the number of healthy runs and the length of the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from scipy.special import ndtri

from barograph_alerts.studies.detectors import Detect, Floats, JobCase
from barograph_alerts.studies.pairs import MeasuredRun, windows
from barograph_alerts.studies.tally import DetectorTally

FACTORS: Final = (1.02, 1.03, 1.05, 1.07, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0, 3.0)
HISTORIES: Final = (1, 2, 3, 5, 10)
LENGTHS: Final = (15, 30, 60, 120, 240, 480)
FOUND: Final = 0.9
FEWEST_JOBS: Final = 5


class Power(NamedTuple):
    """Of jobs of `length` windows after `history` healthy runs.

    healthy: their number, and of false alarms. smallest: the least of FACTORS that is found within the run in FOUND of
    the jobs that are slower from their middle on, None if none is. delay: median windows until then. possible: the
    least that could be found by a test which knows the onset, and by how much healthy jobs differ between their halves.
    """

    history: int
    length: int
    healthy: int
    false: int
    smallest: float | None
    delay: float | None
    possible: float


def powers(
    runs: Sequence[MeasuredRun],
    size: int,
    detect: Detect,
    alpha: float,
    said: Callable[[str], None] = lambda text: None,
) -> Iterator[Power]:
    """All Powers with FEWEST_JOBS jobs.

    runs: disturbed ones are left out. size: values per window. alpha: share of healthy jobs that may alarm. said:
    progress.
    """
    workloads: dict[str, list[Floats]] = {}
    for run in runs:
        if not run.disturbed:
            workloads.setdefault(run.workload, []).append(windows(run.values, size))
    for history in HISTORIES:
        for length in LENGTHS:
            jobs = [job for one in workloads.values() for job in _jobs(one, history, length)]
            if len(jobs) >= FEWEST_JOBS:
                said(f"{len(jobs)} jobs of {length} windows after {history} runs")
                yield _power(history, length, jobs, detect, alpha)


def least_possible(jobs: Sequence[JobCase], alpha: float) -> float:
    """The least factor of a lasting slowdown from the middle on that is found in FOUND of jobs like these healthy ones.

    By a one-sided test of the difference of the mean log windows of both halves, whose standard deviation s is taken
    from the jobs: exp((z(1 - alpha) + z(FOUND)) s). Halves differ by drift, so longer jobs need not allow smaller ones.
    """
    halves = [np.array_split(job.windows, 2) for job in jobs]
    spread = float(np.sqrt(np.mean([(second.mean() - first.mean()) ** 2 for first, second in halves])))
    return math.exp(float(ndtri(1 - alpha) + ndtri(FOUND)) * spread)


def _power(history: int, length: int, jobs: Sequence[JobCase], detect: Detect, alpha: float) -> Power:
    possible = least_possible(jobs, alpha)
    healthy = DetectorTally()
    for job in jobs:
        healthy.count(detect, job)
    for factor in FACTORS:
        slow = DetectorTally()
        for job in jobs:
            onset = length // 2
            series = job.windows + math.log(factor) * (np.arange(length) >= onset)
            slow.count(detect, JobCase(job.history, series, onset))
        if slow.found >= FOUND * slow.disturbed:
            return Power(history, length, len(jobs), healthy.false, factor, slow.delay, possible)
    return Power(history, length, len(jobs), healthy.false, None, None, possible)


def _jobs(runs: Sequence[Floats], history: int, length: int) -> Iterator[JobCase]:
    """Each run that is long enough, cut to `length`, after the `history` runs that follow it in a circle."""
    long = [run[:length] for run in runs if len(run) >= length]
    if len(long) <= history:
        return
    for i, run in enumerate(long):
        others = [long[(i + 1 + j) % len(long)] for j in range(history)]
        usual = math.log(float(np.concatenate(others).mean()))
        yield JobCase([np.log(one) - usual for one in others], np.log(run) - usual)
