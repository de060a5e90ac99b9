"""Predictors of runtimes by application, with what is shown of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from barograph_modeler.forecasts.curve import ScalingCurve, scaling_curve
from barograph_modeler.forecasts.fitting import FitQueue
from barograph_modeler.forecasts.history import Application, WorkloadHistory, WorkloadPlace
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.predictor import Prediction, Predictor, fit
from barograph_modeler.state.gate import Gate

FITS: Final = 16
"""Fits under way at once, one after another; each uses the runs that were known when it was started."""
SEEN: Final = 32
"""Number of workloads of an application, the latest, whose predictions are kept for the metrics."""


class WorkloadPrediction(NamedTuple):
    """The prediction for a workload that has been run, in seconds. speedup: over the smallest scale of its problem that
    has been run."""

    workload: str
    lower: float
    expected: float
    upper: float
    speedup: float


class Published(NamedTuple):
    """One application: its predictor, the runs it was fitted to by problem, predictions for its latest workloads, and
    the scaling curve of its latest problem."""

    application: Application
    predictor: Predictor
    problems: Mapping[str, Runs]
    seen: Sequence[WorkloadPrediction]
    curve: ScalingCurve | None = None


def publish(
    application: Application, problems: Mapping[str, Runs], places: Sequence[WorkloadPlace], seed: int
) -> Published:
    """Fit an application to its runs. places: its workloads, the latest last. seed: of all random numbers."""
    predictor = fit(problems, seed=seed)
    seen = []
    for place in places[-SEEN:]:
        there = predictor.predict(place.problem, place.ranks, place.known_nodes)
        if isinstance(there, Prediction):
            speedup = smallest_scale(problems[place.problem])[1] / there.expected_seconds
            limits = (there.lower_seconds, there.expected_seconds, there.upper_seconds)
            seen.append(WorkloadPrediction(place.workload, *limits, speedup))
    problem = places[-1].problem
    return Published(application, predictor, problems, seen, scaling_curve(predictor, problem, problems[problem]))


def smallest_scale(runs: Runs) -> tuple[int, float]:
    """The smallest scale that was run: its ranks, and the median of its runtimes in seconds."""
    ranks = runs.scales[0]
    return int(ranks), float(np.median(runs.seconds[runs.ranks == ranks]))


class PredictorLibrary(FitQueue[Published]):
    """The predictors of all applications, fitted again when there are further runs.

    published: replaced, never modified, so that readers in other threads see the old mapping or the new one.

    seed: of all random numbers. worked: CPU seconds of the calling thread: on a busy machine a fit takes longer and
    costs no more.
    """

    most = FITS
    failure = "%s cannot be fitted, its last predictor stays: %r"

    def __init__(
        self,
        executor: Executor,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        super().__init__(executor, clock, worked)
        self.published: Mapping[Application, Published] = {}
        self.gate = Gate()
        """Entered by every thread that computes, apart from the main thread."""
        self._seed = seed

    def __len__(self) -> int:
        return len(self.published)

    def mark_changed(self, applications: Iterable[Application]) -> None:
        """There are further runs of these."""
        self._due.update(dict.fromkeys(applications))

    def start_fits(self, history: WorkloadHistory) -> None:
        """Start fits of what has changed, as far as there is room."""

        def prepare(application: Application) -> Callable[[], Published] | None:
            if application not in history:
                return None
            places = [scale.place for scale in history.scales(application)]
            return partial(self._fit, application, history.runs(application), places)

        self._start(prepare)

    def publish_fitted(self, history: WorkloadHistory) -> None:
        """Publish what has been fitted by now, and drop applications that the history holds no longer."""
        if fresh := self._finished():
            old = self.published.items()
            self.published = {name: one for name, one in old if name in history and name not in fresh} | fresh

    def _fit(self, application: Application, runs: Mapping[str, Runs], places: Sequence[WorkloadPlace]) -> Published:
        with self.gate.passing():
            return publish(application, runs, places, self._seed)
