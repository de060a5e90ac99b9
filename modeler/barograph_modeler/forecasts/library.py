"""Published predictors of runtimes, by application."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from barograph_agent.system.clock import CLOCK
from barograph_modeler.forecasts.curve import ScalingCurve, scaling_curve
from barograph_modeler.forecasts.fitting import FitQueue
from barograph_modeler.forecasts.history import Application, WorkloadHistory, WorkloadPlace
from barograph_modeler.forecasts.parts.history import PartsHistory
from barograph_modeler.forecasts.parts.phased_run import PhasedRun
from barograph_modeler.forecasts.parts.shares import ProblemParts
from barograph_modeler.forecasts.problems import NO_SIZE, ProblemSize, ProblemSpace
from barograph_modeler.maxima.runtime import NO_REPEATS, Repeats
from barograph_modeler.scaling.amdahl_law import AmdahlFit, fit_amdahl
from barograph_modeler.scaling.answer import Refusal
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.predictor import Prediction, Predictor, fit
from barograph_modeler.state.gate import Gate
from barograph_modeler.workers import Workers

FITS: Final = 16
"""Fits submitted at once; each uses the runs known when it was submitted."""
MIN_WAITING: Final = 16
"""Workers begin when so many applications wait that have no predictor: a first fit takes up to some seconds."""
BESIDE_WORKERS: Final = 1
"""Fits submitted at once to the executor while workers have others."""
SEEN: Final = 32
"""Newest workloads of an application whose predictions are exposed as metrics."""


class WorkloadPrediction(NamedTuple):
    """The prediction for a workload that has run, in seconds. speedup: over the smallest scale of its problem."""

    workload: str
    lower: float
    expected: float
    upper: float
    speedup: float


class KnownParams(NamedTuple):
    """Parameters that have been run, as text and by name, with the number of runs and their ranges of ranks and
    seconds."""

    params: str
    values: Mapping[str, str]
    runs: int
    least_ranks: int
    most_ranks: int
    least_seconds: float
    most_seconds: float


class Published(NamedTuple):
    """The predictor of one application and the space of its problems, the runs it was fitted to by problem, the
    parameters that have been run with the newest last, predictions for its newest workloads, and of its newest problem
    the scaling curve and Amdahl's law. weights: of models of scaling, by case. parts: what the time of its problems
    consists of, where that is known."""

    application: Application
    space: ProblemSpace
    predictor: Predictor
    problems: Mapping[str, Runs]
    params: Sequence[KnownParams]
    seen: Sequence[WorkloadPrediction]
    curve: ScalingCurve | None = None
    amdahl: AmdahlFit | None = None
    weights: Mapping[str, Mapping[str, float]] = {}
    parts: ProblemParts = ProblemParts({})
    groups: Mapping[str, tuple[float, ...]] = {}
    """Seconds of the newest runs of each group of like work, the oldest first."""
    repeats: Repeats = NO_REPEATS
    """Of the runs of each group."""

    def predict(
        self, place: ProblemSize, ranks: int, nodes: int | None, group: str | None = None
    ) -> Prediction | Refusal:
        """The runtime of a problem, from the runs of its scale and from all others. The row of `predictions`,
        `/predict` and the metric have this one.

        group: of like work, which other runs of the scale are not known to be; None where all are. Raises ValueError
        for invalid numbers.
        """
        own = None if group is None else np.array(self.groups.get(group, ()))
        return place.applied(self.predictor.predict(place.name, ranks, nodes, place.size, own, self.repeats), ranks)

    def of_run(self, place: WorkloadPlace) -> Prediction | Refusal:
        """The runtime of a run."""
        return self.predict(self.space.place(place), place.ranks, place.known_nodes, place.workload)


Known = Sequence[tuple[WorkloadPlace, list[float]]]


def publish(
    application: Application,
    known: Known,
    seed: int,
    previous: Predictor | None = None,
    parts: Mapping[WorkloadPlace, Sequence[PhasedRun]] | None = None,
) -> Published:
    """Fit a predictor to the runs of an application. known: its workloads and their seconds, newest last.

    previous: the predictor before the newest runs, of which what they do not concern is kept. parts: of runs, by
    workload.
    """
    space = ProblemSpace.of(application, [(place, statistics.median(seconds)) for place, seconds in known], parts)
    problems = problem_runs(space, known)
    predictor = fit(problems, seed=seed) if previous is None else previous.refitted(problems)
    newest = known[-1][0]
    problem, size = space.of_run(newest)
    curve = scaling_curve(predictor, f"{application} {space.name(newest)}".strip(), problem, size, problems[problem])
    amdahl = fit_amdahl(problems[problem].of_size(size))
    weights = {str(case): one for case, one in predictor.weights.by_case.items()} if predictor.has_sizes else {}
    groups = {place.workload: tuple(seconds) for place, seconds in known}
    params, phases = _known_params(space, known), ProblemParts.of(space, parts or {})
    repeats = _total(_repeats(seconds) for _, seconds in known)
    found = Published(
        application, space, predictor, problems, params, [], curve, amdahl, weights, phases, groups, repeats
    )
    return found._replace(seen=_seen(found, known))


def _repeats(seconds: Sequence[float]) -> Repeats:
    """The spread of the runs of a group about the mean of their logarithms; there may be none."""
    return Repeats(len(seconds) * float(np.var(np.log(seconds))), len(seconds) - 1) if seconds else NO_REPEATS


def _total(groups: Iterable[Repeats]) -> Repeats:
    every = list(groups)
    return Repeats(sum(one.squares for one in every), sum(one.freedom for one in every))


def _seen(found: Published, known: Known) -> list[WorkloadPrediction]:
    """Predictions for the newest workloads."""
    seen: list[WorkloadPrediction] = []
    bases: dict[ProblemSize, Prediction | Refusal] = {}
    for place, _ in known[-SEEN:]:
        problem = found.space.place(place)
        prediction = found.of_run(place)
        runs = found.problems.get(problem.name)
        of_size = runs and runs.of_size(problem.size or NO_SIZE)
        if not of_size:
            continue
        if problem not in bases:
            bases[problem] = found.predict(problem, int(of_size.scales[0]), None)
        base = bases[problem]
        if isinstance(prediction, Prediction) and isinstance(base, Prediction):
            speedup = base.expected_seconds / prediction.expected_seconds
            limits = (prediction.lower_seconds, prediction.expected_seconds, prediction.upper_seconds)
            seen.append(WorkloadPrediction(place.workload, *limits, speedup))
    return seen


def _known_params(space: ProblemSpace, known: Sequence[tuple[WorkloadPlace, list[float]]]) -> list[KnownParams]:
    found: dict[str, KnownParams] = {}
    for place, seconds in known:
        name, values = space.name(place), space.relevant(space.params_of(place))
        one = found.pop(name, KnownParams(name, values, 0, place.ranks, place.ranks, math.inf, 0.0))
        found[name] = KnownParams(
            name,
            values,
            one.runs + len(seconds),
            min(one.least_ranks, place.ranks),
            max(one.most_ranks, place.ranks),
            min(one.least_seconds, *seconds),
            max(one.most_seconds, *seconds),
        )
    return list(found.values())


def problem_runs(space: ProblemSpace, known: Sequence[tuple[WorkloadPlace, list[float]]]) -> dict[str, Runs]:
    """Runs by problem."""
    rows: dict[str, list[tuple[float, float, float]]] = {}
    sizes: dict[str, list[tuple[float, ...]]] = {}
    for place, seconds in known:
        problem, size = space.of_run(place)
        nodes = math.nan if place.known_nodes is None else place.known_nodes
        rows.setdefault(problem, []).extend((place.ranks, one, nodes) for one in seconds)
        sizes.setdefault(problem, []).extend([size] * len(seconds))
    return {problem: Runs.of_rows(some, sizes[problem]) for problem, some in rows.items()}


class PredictorLibrary(FitQueue[Published]):
    """The predictors of all applications, refitted when there are further runs.

    published: replaced, never modified, so that other threads read either the old mapping or the new one.
    worked: CPU seconds of the calling thread, so that the pause after a fit does not depend on the load of the machine.
    workers: other processes for first fits, when many applications wait.
    """

    most = FITS
    failure = "%s cannot be fitted, its last predictor stays: %r"

    def __init__(
        self,
        executor: Executor,
        seed: int = 0,
        clock: Callable[[], float] = CLOCK.monotonic,
        worked: Callable[[], float] = CLOCK.thread_seconds,
        workers: Workers[Application] | None = None,
    ) -> None:
        super().__init__(executor, clock, worked)
        self.workers = workers
        self._left: set[Application] = set()
        """Applications that workers have not fitted, which are left to the executor."""
        self.published: Mapping[Application, Published] = {}
        self.gate = Gate()
        """Held by all threads but the main thread while they compute."""
        self._seed = seed

    def __len__(self) -> int:
        return len(self.published)

    @property
    def waiting(self) -> int:
        """Number of applications whose newest runs are in no predictor yet."""
        sent = self.workers.keys if self.workers is not None else ()
        return len(self._due.keys() | self._fitting.keys() | set(sent))

    def is_behind(self, application: Application) -> bool:
        """Whether the newest runs of an application are in no predictor yet."""
        return super().is_behind(application) or (self.workers is not None and application in self.workers)

    def mark_changed(self, applications: Iterable[Application]) -> None:
        """Mark applications that have further runs."""
        self._due.update(dict.fromkeys(applications))

    def start_fits(self, history: WorkloadHistory, parts: PartsHistory) -> None:
        """Start fits of changed applications."""

        def prepare(application: Application) -> Callable[[], Published] | None:
            if application not in history:
                return None
            known = history.runs(application)
            return partial(self._fit, application, known, parts.of(known))

        if self.workers is not None:
            self._send(self.workers, history, parts)
        self._start(prepare, BESIDE_WORKERS if self.workers else None)

    def _send(self, workers: Workers[Application], history: WorkloadHistory, parts: PartsHistory) -> None:
        """Send applications without a predictor to workers: of a refit most of the predictor would be sent for little.

        The last ones: the executor begins with the first.
        """
        out = self.published.keys() | self._fitting.keys() | self._left
        waiting = [one for one in self._due if one not in out and one not in workers and one in history]
        while waiting and workers.free and (workers or len(waiting) >= MIN_WAITING):
            application = waiting.pop()
            known = history.runs(application)
            workers.send(application, publish, application, known, self._seed, None, parts.of(known))
            del self._due[application]

    def publish_fitted(self, history: WorkloadHistory) -> None:
        """Publish finished fits, and drop applications that are no longer in the history."""
        fresh = self._finished()
        for application, published in self.workers.poll() if self.workers is not None else ():
            if published is None:
                self._left.add(application)
                self._due[application] = None
            elif application in history:
                fresh[application] = published
        if fresh:
            old = self.published.items()
            self.published = {name: one for name, one in old if name in history and name not in fresh} | fresh

    def learn(self, place: WorkloadPlace, seconds: Sequence[float]) -> None:
        """Publish the runs of a group at once: the next fit of its application may be far."""
        if (known := self.published.get(place.application)) is not None:
            before = _repeats(known.groups.get(place.workload, ()))
            repeats = _total([known.repeats, _repeats(seconds), Repeats(-before.squares, -before.freedom)])
            groups = {**known.groups, place.workload: tuple(seconds)}
            known = known._replace(groups=groups, repeats=Repeats(max(repeats.squares, 0.0), repeats.freedom))
            seen = [one for one in known.seen if one.workload != place.workload]
            seen += _seen(known, [(place, list(seconds))])
            self.published = {**self.published, place.application: known._replace(seen=seen[-SEEN:])}

    def _fit(
        self,
        application: Application,
        known: Sequence[tuple[WorkloadPlace, list[float]]],
        parts: Mapping[WorkloadPlace, Sequence[PhasedRun]],
    ) -> Published:
        before = self.published.get(application)
        with self.gate.passing():
            return publish(application, known, self._seed, before and before.predictor, parts)
