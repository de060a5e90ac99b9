"""Jobs made from measurements: healthy, disturbed, and slow from an onset on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from barograph_lab.studies.alerts.detectors import Floats, JobCase

FEWEST: Final = 30
"""Fewest windows of a run; shorter runs are left out."""


class MeasuredRun(NamedTuple):
    """One run of a workload: its values in order of time, each above 0, and whether it is known to be disturbed."""

    workload: str
    name: str
    values: Floats
    disturbed: bool


class Case(NamedTuple):
    """A job to judge. task: healthy-run, healthy-half, disturbed-run or onset."""

    task: str
    workload: str
    run: str
    job: JobCase


def windows(values: Floats, size: int) -> Floats:
    """Means of `size` consecutive values; an incomplete window at the end is dropped."""
    count = len(values) // size
    means: Floats = values[: count * size].reshape(count, size).mean(axis=1)
    return means


def cases(runs: Sequence[MeasuredRun], size: int) -> Iterator[Case]:
    """All jobs made from runs of one workload. size: values per window.

    healthy-run: a healthy run after the other healthy ones. healthy-half: the second half of a healthy run after its
    first. disturbed-run: a disturbed run after all healthy ones, slow from its first window. onset: the second half of
    a healthy run, which then goes on as a disturbed one, after the first half. Ratios are to the mean of the history.
    """
    cut = {run.name: windows(run.values, size) for run in runs}
    healthy = [run for run in runs if not run.disturbed]
    for run in runs:
        others = [cut[one.name] for one in healthy if one is not run]
        task, onset = ("disturbed-run", 0) if run.disturbed else ("healthy-run", None)
        if others:
            yield Case(task, run.workload, run.name, _job(others, cut[run.name], onset))
    for run in healthy:
        first, second = np.array_split(cut[run.name], 2)
        yield Case("healthy-half", run.workload, run.name, _job([first], second, None))
        for other in (one for one in runs if one.disturbed):
            whole = np.concatenate((second, cut[other.name]))
            yield Case("onset", run.workload, f"{run.name} > {other.name}", _job([first], whole, len(second)))


def _job(history: Sequence[Floats], job: Floats, onset: int | None) -> JobCase:
    usual = float(np.mean(np.concatenate(list(history))))
    return JobCase([np.log(one / usual) for one in history], np.log(job / usual), onset)
