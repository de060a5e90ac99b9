"""Detectors of slow jobs on series of log ratios: Barograph's score and its rivals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barograph_alerts.detection.alarm import ALPHA, MARGIN
from barograph_alerts.detection.evidence import Evidence
from barograph_modeler.pace.pace import Pace, fit_pace
from barograph_modeler.pace.progress import fit_progress
from barograph_modeler.pace.timeline import Timeline
from barograph_modeler.pace.windows import RunPace, Window

Floats = npt.NDArray[np.float64]
BANDS: Final = 3.0
RUN: Final = 5
"""The rule of `bands`: BANDS deviations above the median for RUN consecutive windows, as with `for: 5s`."""
OWN: Final = 30
"""First windows of the job that the rivals learn from without a history."""
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


class Detector(NamedTuple):
    """A detector of slow jobs. help: a description."""

    name: str
    help: str
    detect: Detect


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


def score(alpha: float = ALPHA, margin: float = MARGIN) -> Detector:
    """Barograph's detector. alpha, margin: as in the settings of the alerts daemon."""

    def detect(job: JobCase) -> list[int]:
        evidence = Evidence(pace_of(job.history), alpha, margin)
        after: list[int] = []
        for i, window in enumerate(windows_of(job.windows)):
            evidence.add(window)
            slow = sum(alarm.kind == "slow" for alarm in evidence.alarms)
            after += [i + 1] * (slow - len(after))
        return after

    return Detector("score", "Barograph's: history, own past, margin, bounded false alarms", detect)


def bands(job: JobCase) -> list[int]:
    """Median + 3 * 1.4826 MAD of the history, RUN windows in a row."""
    known = _known(job)
    limit = np.median(known) + BANDS * 1.4826 * np.median(np.abs(known - np.median(known)))
    over = np.convolve(job.windows > limit, np.ones(RUN), "valid") == RUN
    # One alarm each time the rule begins to hold.
    begins = np.flatnonzero(over & ~np.concatenate(([False], over[:-1])))
    return (begins + RUN).tolist()


def half_space_trees(job: JobCase) -> list[int]:
    """river's HalfSpaceTrees above the 99.9 % quantile of its scores, slower than the median, RUN windows in a row."""
    from river import anomaly

    trees = anomaly.HalfSpaceTrees(n_trees=10, height=6, window_size=30, limits={"x": (-1, 1)}, seed=1)
    guard = anomaly.QuantileFilter(trees, q=0.999)
    known = _known(job)
    for x in known.tolist():
        guard.learn_one({"x": x})
    middle, run, alarms = float(np.median(known)), 0, []
    for i, x in enumerate(job.windows.tolist()):
        run = run + 1 if x > middle and guard.classify(guard.score_one({"x": x})) else 0
        guard.learn_one({"x": x})
        if run == RUN:
            alarms.append(i + 1)
    return alarms


def adwin(job: JobCase) -> list[int]:
    """river's ADWIN on history and job: changes to slower."""
    from river import drift

    detector = drift.ADWIN(delta=0.002)
    for x in np.concatenate(job.history).tolist() if job.history else ():
        detector.update(x)
    alarms = []
    for i, x in enumerate(job.windows.tolist()):
        before = detector.estimation
        detector.update(x)
        if detector.drift_detected and detector.estimation > before:
            alarms.append(i + 1)
    return alarms


def _known(job: JobCase) -> Floats:
    return np.concatenate(job.history) if job.history else job.windows[:OWN]


RIVALS: Final = (
    Detector("median + 3 MAD", f"median and 3 deviations (MAD) of the history, {RUN} windows in a row", bands),
    Detector("HalfSpaceTrees", f"river's, above the 99.9 % quantile of their scores, {RUN} in a row", half_space_trees),
    Detector("ADWIN", "river's test for a change of the mean, to slower", adwin),
)
