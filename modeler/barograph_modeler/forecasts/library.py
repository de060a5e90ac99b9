"""Published predictors of runtimes, by application."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from barograph_agent.system.clock import CLOCK
from barograph_modeler.forecasts.curve import ScalingCurve, scaling_curve
from barograph_modeler.forecasts.fitting import FitQueue
from barograph_modeler.forecasts.history import Application, WorkloadHistory, WorkloadPlace
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.predictor import Prediction, Predictor, fit
from barograph_modeler.state.gate import Gate

FITS: Final = 16
"""Fits submitted at once; each uses the runs known when it was submitted."""
SEEN: Final = 32
"""Newest workloads of an application whose predictions are exposed as metrics."""


class WorkloadPrediction(NamedTuple):
    """The prediction for a workload that has run, in seconds. speedup: over the smallest scale of its problem."""

    workload: str
    lower: float
    expected: float
    upper: float
    speedup: float


class Published(NamedTuple):
    """The predictor of one application, the runs it was fitted to by problem, predictions for its newest workloads, and
    the scaling curve of its newest problem."""

    application: Application
    predictor: Predictor
    problems: Mapping[str, Runs]
    seen: Sequence[WorkloadPrediction]
    curve: ScalingCurve | None = None


def publish(
    application: Application, problems: Mapping[str, Runs], places: Sequence[WorkloadPlace], seed: int
) -> Published:
    """Fit a predictor to the runs of an application. places: its workloads, newest last."""
    predictor = fit(problems, seed=seed)
    seen = []
    for place in places[-SEEN:]:
        prediction = predictor.predict(place.problem, place.ranks, place.known_nodes)
        if isinstance(prediction, Prediction):
            speedup = smallest_scale(problems[place.problem])[1] / prediction.expected_seconds
            limits = (prediction.lower_seconds, prediction.expected_seconds, prediction.upper_seconds)
            seen.append(WorkloadPrediction(place.workload, *limits, speedup))
    problem = places[-1].problem
    return Published(application, predictor, problems, seen, scaling_curve(predictor, problem, problems[problem]))


def smallest_scale(runs: Runs) -> tuple[int, float]:
    """Ranks of the smallest scale, and the median of its runtimes in seconds."""
    ranks = runs.scales[0]
    return int(ranks), float(np.median(runs.seconds[runs.ranks == ranks]))


class PredictorLibrary(FitQueue[Published]):
    """The predictors of all applications, refitted when there are further runs.

    published: replaced, never modified, so that other threads read either the old mapping or the new one.
    worked: CPU seconds of the calling thread, so that the pause after a fit does not depend on the load of the machine.
    """

    most = FITS
    failure = "%s cannot be fitted, its last predictor stays: %r"

    def __init__(
        self,
        executor: Executor,
        seed: int = 0,
        clock: Callable[[], float] = CLOCK.monotonic,
        worked: Callable[[], float] = CLOCK.thread_seconds,
    ) -> None:
        super().__init__(executor, clock, worked)
        self.published: Mapping[Application, Published] = {}
        self.gate = Gate()
        """Held by all threads but the main thread while they compute."""
        self._seed = seed

    def __len__(self) -> int:
        return len(self.published)

    def mark_changed(self, applications: Iterable[Application]) -> None:
        """Mark applications that have further runs."""
        self._due.update(dict.fromkeys(applications))

    def start_fits(self, history: WorkloadHistory) -> None:
        """Start fits of changed applications."""

        def prepare(application: Application) -> Callable[[], Published] | None:
            if application not in history:
                return None
            places = [place for place, _ in history.scales(application)]
            return partial(self._fit, application, history.runs(application), places)

        self._start(prepare)

    def publish_fitted(self, history: WorkloadHistory) -> None:
        """Publish finished fits, and drop applications that are no longer in the history."""
        if fresh := self._finished():
            old = self.published.items()
            self.published = {name: one for name, one in old if name in history and name not in fresh} | fresh

    def _fit(self, application: Application, runs: Mapping[str, Runs], places: Sequence[WorkloadPlace]) -> Published:
        with self.gate.passing():
            return publish(application, runs, places, self._seed)
