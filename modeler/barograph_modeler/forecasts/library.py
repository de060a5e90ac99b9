"""The predictors as they are at the moment, for whoever asks: published whole, never changed after."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Final, NamedTuple

import numpy as np

from barograph_modeler.forecasts.curve import ScalingCurve, draw
from barograph_modeler.forecasts.history import Application, Place, WorkloadHistory
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.predictor import Prediction, Predictor, fit
from barograph_modeler.state.gate import Gate

FITS: Final = 16
"""Fits under way at once. They wait for each other, and take what was known when they were ordered."""
REST: Final = 20.0
"""An application rests this many times as long as its last fit worked: a flood of ends costs 5 % of a core."""
SEEN: Final = 32
"""Workloads of an application, the latest, whose predictions are kept ready for the metrics."""


_log = logging.getLogger(__name__)


class Seen(NamedTuple):
    """A workload that has been run, as its application's predictor sees it; seconds. speedup: over the smallest scale
    of its problem that has been run."""

    workload: str
    lower: float
    expected: float
    upper: float
    speedup: float


class Published(NamedTuple):
    """What is known of one application: its predictor, the runs behind it by problem, its latest workloads, and the
    curve of its latest problem."""

    application: Application
    predictor: Predictor
    problems: Mapping[str, Runs]
    seen: Sequence[Seen]
    curve: ScalingCurve | None = None


def publish(application: Application, problems: Mapping[str, Runs], places: Sequence[Place], seed: int) -> Published:
    """Learn an application from its runs. places: its workloads, the latest last. seed: of all chance in it."""
    predictor = fit(problems, seed=seed)
    seen = []
    for place in places[-SEEN:]:
        there = predictor.predict(place.problem, place.ranks, place.known_nodes)
        if isinstance(there, Prediction):
            speedup = base(problems[place.problem])[1] / there.expected_seconds
            limits = (there.lower_seconds, there.expected_seconds, there.upper_seconds)
            seen.append(Seen(place.workload, *limits, speedup))
    problem = places[-1].problem
    return Published(application, predictor, problems, seen, draw(predictor, problem, problems[problem]))


def base(runs: Runs) -> tuple[int, float]:
    """The smallest scale that was run: its ranks, and the median of its runtimes in seconds."""
    ranks = runs.scales[0]
    return int(ranks), float(np.median(runs.seconds[runs.ranks == ranks]))


class Library:
    """Renews predictors when their applications have changed. published: replaced, never changed, so readers in other
    threads have the old mapping or the new one. failed: fits that broke.

    executor: where fits run. seed: of all chance in them. clock: seconds. worked: seconds that the calling thread has
    had a processor, for on a busy machine a fit takes longer and costs no more.
    """

    def __init__(
        self,
        executor: Executor,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        self.published: Mapping[Application, Published] = {}
        self.failed = 0
        self.gate = Gate()
        """Passed by everybody who reckons outside of the main thread."""
        self._executor = executor
        self._seed = seed
        self._clock = clock
        self._worked = worked
        self._due: OrderedDict[Application, None] = OrderedDict()
        self._fitting: dict[Application, Future[tuple[Published, float]]] = {}
        self._rests: dict[Application, float] = {}

    def __len__(self) -> int:
        return len(self.published)

    @property
    def waiting(self) -> int:
        """Applications whose latest runs are in no predictor yet."""
        return len(self._due.keys() | self._fitting.keys())

    def is_behind(self, application: Application) -> bool:
        """Whether an application is one of those."""
        return application in self._due or application in self._fitting

    def changed(self, applications: Iterable[Application]) -> None:
        """There are further runs of these."""
        self._due.update(dict.fromkeys(applications))

    def order(self, history: WorkloadHistory) -> None:
        """Have fitted what has changed, as far as there is room."""
        now = self._clock()
        for application in list(self._due):
            if len(self._fitting) >= FITS:
                return
            if application in self._fitting or now < self._rests.get(application, now):
                continue
            del self._due[application]
            if application in history:
                places = [scale.place for scale in history.scales(application)]
                self._fitting[application] = self._executor.submit(
                    self._fit, application, history.runs(application), places
                )

    def collect(self, history: WorkloadHistory) -> None:
        """Publish what has been fitted by now; what is in the history no more is given up."""
        fresh = {}
        for application, future in list(self._fitting.items()):
            if not future.done():
                continue
            del self._fitting[application]
            if (error := future.exception()) is not None:
                self.failed += 1
                _log.error("%s cannot be fitted, its last predictor stays: %r", application, error)
                continue
            fresh[application], seconds = future.result()
            self._rests[application] = self._clock() + REST * seconds
        if fresh:
            self._rests = {name: until for name, until in self._rests.items() if until > self._clock()}
            old = self.published.items()
            self.published = {name: one for name, one in old if name in history and name not in fresh} | fresh

    def _fit(
        self, application: Application, runs: Mapping[str, Runs], places: Sequence[Place]
    ) -> tuple[Published, float]:
        with self.gate.passing():
            began = self._worked()
            return publish(application, runs, places, self._seed), self._worked() - began
