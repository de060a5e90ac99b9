"""The detector of slow jobs on series of log ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_alerts.detection.alarm import ALPHA, MARGIN
from barograph_alerts.detection.evidence import Evidence
from barograph_modeler.pace.pace import Pace, fit_pace
from barograph_modeler.pace.progress import fit_progress
from barograph_modeler.pace.timeline import Timeline
from barograph_modeler.pace.windows import RunPace, Window

Floats = npt.NDArray[np.float64]
CLASS: Final = 1


@dataclass(frozen=True)
class JobCase:
    """One job: log ratios of its windows to the usual duration, and those of earlier runs.

    history: may be empty. onset: index of the first slow window, None for a healthy job.
    """

    history: Sequence[Floats]
    windows: Floats
    onset: int | None = None


Detect = Callable[[JobCase], list[int]]
"""The number of windows after which each alarm was raised: at least 1."""


def windows_of(series: Iterable[float]) -> Iterator[Window]:
    """Log ratios as windows of one class and nominally one second each."""
    now = 0.0
    for seconds in np.exp(np.asarray(series, np.float64)).tolist():
        yield Window({CLASS: 100}, {CLASS: seconds}, now, now + seconds)
        now += seconds


def pace_of(history: Sequence[Floats]) -> Pace | None:
    """The pace that the modeler would fit to earlier runs; None for none."""
    runs, timelines = [RunPace() for _ in history], [Timeline() for _ in history]
    for series, run, timeline in zip(history, runs, timelines, strict=True):
        windows = list(windows_of(series))
        run.add(windows)
        timeline.add(windows)
    return replace(fit_pace(runs), progress=fit_progress(timelines)) if runs else None


def detector(alpha: float = ALPHA, margin: float = MARGIN) -> Detect:
    """The detector. alpha, margin: as in the settings of the alerts daemon."""

    def detect(job: JobCase) -> list[int]:
        evidence = Evidence(pace_of(job.history), alpha, margin)
        after: list[int] = []
        for i, window in enumerate(windows_of(job.windows)):
            evidence.add(window)
            slow = sum(alarm.kind == "slow" for alarm in evidence.alarms)
            after += [i + 1] * (slow - len(after))
        return after

    return detect
