"""Runtimes and time limits of the jobs of a log, each predicted at its submission from the jobs that have ended."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from barograph_agent.job.identity import Job
from barograph_agent.protocol.tables import MAX_RANKS
from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.features.library import FeatureLibrary
from barograph_modeler.forecasts.fitting import REST
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.library import PredictorLibrary
from barograph_modeler.learning.learner import Learner
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.processor import ModelerProcessor
from barograph_modeler.recognition.recorded import recorded_evidence, salt_of
from barograph_modeler.recognition.request import RECORDED, SCALED
from barograph_modeler.scaling.answer import Refusal
from barograph_modeler.serving.answer import GRACE_SECONDS, UnknownApplication
from barograph_modeler.serving.page import PredictPage
from barograph_modeler.serving.question import BadQuestion, Question

RISKS: Final = (0.01, 0.05, 0.1)
UNKNOWN: Final = -1
"""A name or number that the scheduler does not have."""
LAST: Final = 2
"""Runtimes in a mean."""
OURS: Final = "predict"
CLUSTER: Final = "log"
PAUSE_SECONDS: Final = 86_400.0
MAX_EXCEEDED: Final = 0.01
"""Share of ended jobs that ran longer than they had requested, up to which users take requests for limits."""
T = TypeVar("T")


class LoggedJob(NamedTuple):
    """A job of a scheduler's log. Times in seconds since any fixed time; numbers stand for names, UNKNOWN for none.

    A predictor may use what is there at the submission: all but `started`, `runtime` and `failed`. requested: the time
    limit that the user asked for, in seconds. memory: in any unit. failed: it did not end well, its runtime is not
    learned.
    """

    submitted: float
    started: float
    runtime: float
    failed: bool = False
    processors: float = UNKNOWN
    requested: float = UNKNOWN
    user: int = UNKNOWN
    executable: int = UNKNOWN
    memory: float = UNKNOWN

    @property
    def ranks(self) -> int:
        """Processors, from 1."""
        return int(min(max(self.processors, 1.0), MAX_RANKS))


class RuntimeForecast(NamedTuple):
    """The expected runtime in seconds, and limits by risk, of which there may be none."""

    seconds: float
    limits: tuple[float, ...] = ()


class LimitPredictor(Protocol):
    """A predictor of jobs, which are named by their position in the log."""

    def submit(self, key: int, job: LoggedJob) -> RuntimeForecast | None:
        """The forecast of a job; None for a job that is not predicted."""

    def end(self, key: int, now: float, job: LoggedJob) -> None:
        """Learn from a job that has ended at `now`."""


class RequestedLimit:
    """The user's request, as runtime and limit."""

    def __init__(self, risks: Sequence[float]) -> None:
        self._risks = len(risks)

    def submit(self, key: int, job: LoggedJob) -> RuntimeForecast | None:
        """The request; None without one."""
        return RuntimeForecast(job.requested, (job.requested,) * self._risks) if job.requested > 0 else None

    def end(self, key: int, now: float, job: LoggedJob) -> None:
        """Nothing to learn."""


class MeanOfLast:
    """The mean of the last runtimes in the narrowest context that has some: those of `keys`, then all jobs.

    keys: what a job has in common with earlier ones, from the narrowest. Jobs before the first end have the request.
    """

    def __init__(self, *keys: Callable[[LoggedJob], Hashable]) -> None:
        self._keys = keys
        self._last: dict[Hashable, deque[float]] = {}

    def submit(self, key: int, job: LoggedJob) -> RuntimeForecast | None:
        """None without ended jobs and request."""
        for context in self._contexts(job):
            if last := self._last.get(context):
                return RuntimeForecast(sum(last) / len(last))
        return RuntimeForecast(job.requested) if job.requested > 0 else None

    def end(self, key: int, now: float, job: LoggedJob) -> None:
        """Learn the runtime."""
        for context in self._contexts(job):
            self._last.setdefault(context, deque(maxlen=LAST)).append(job.runtime)

    def _contexts(self, job: LoggedJob) -> list[Hashable]:
        return [*((at, shared(job)) for at, shared in enumerate(self._keys)), None]


class ImportedRuns:
    """What `barograph predict --app --user --ranks --requested --job-name` answers after an import of what has ended.

    Fits of an application are PAUSE_SECONDS of the log apart. Runs that failed are not imported. No limit is longer
    than the request on a cluster that ends jobs in time.
    """

    def __init__(self, risks: Sequence[float]) -> None:
        self._risks = tuple(risks)
        self._now = self._worked = 0.0
        self._requests = self._exceeded = 0
        library = PredictorLibrary(_AtOnce(), clock=lambda: self._now, worked=self._work)
        forecaster = Forecaster(library)
        features = FeatureForecaster(FeatureLibrary(lambda runs, seed: "a log has none", _AtOnce()))
        self._processor = ModelerProcessor(Learner(), forecaster, features)
        self._page = PredictPage(forecaster, features, recognizer=self._processor.recognizer)
        self._salt = salt_of(b"", CLUSTER)

    def submit(self, key: int, job: LoggedJob) -> RuntimeForecast | None:
        """None where the service knows nothing of the application, or refuses."""
        is_held = self._exceeded <= MAX_EXCEEDED * self._requests
        requested = job.requested if job.requested > 0 and is_held else math.inf
        asked, user = self._asked(job), f"user{job.user}"
        question = Question(f"exe{job.executable}", job.ranks, user=user, requested=requested, asked=asked)
        try:
            query, tails = self._page.query(question)
        except (UnknownApplication, BadQuestion):
            return None
        if isinstance(found := query.predict(question.ranks), Refusal):
            return None
        limits = [query.time_limit(found, risk, tails) for risk in self._risks]
        seconds = tuple(limit["seconds"] for limit in limits if limit is not None)
        return RuntimeForecast(found.expected_seconds, seconds if len(seconds) == len(limits) else ())

    def end(self, key: int, now: float, job: LoggedJob) -> None:
        """Import the run."""
        self._requests += job.requested > 0
        self._exceeded += 0 < job.requested < job.runtime - GRACE_SECONDS
        if job.failed:
            return
        self._now = now
        name = Job(CLUSTER, str(key), 0, "job", f"user{job.user}", "unknown", f"exe{job.executable}", {})
        run = {"job": name.key, "ended_at": now, "runtime_seconds": job.runtime, "exit_status": 0, "intervals": 0}
        work = {"job": name.key, "ranks": job.ranks, "nodes": 0, "ranks_per_node": 0} | self._asked(job)
        rows = {"jobs": name.row(job.ranks, 0, now - job.runtime), "works": work}
        for table, row in (rows | {"runs": run | {"dropped": 0, "imported": 1}}).items():
            self._processor.observe(table, {column: [value] for column, value in row.items()}, now)
        for _ in range(2):
            self._processor.step(now)

    def _asked(self, job: LoggedJob) -> dict[str, Any]:
        texts = (str(job.executable), f"{job.requested:g}", f"{job.memory:g}")
        asked = {name: text for name, text in zip((RECORDED[0], *SCALED), texts, strict=True) if text != "-1"}
        return recorded_evidence(self._salt, f"exe{job.executable}", asked).columns()

    def _work(self) -> float:
        self._worked += PAUSE_SECONDS / REST
        return self._worked


class _AtOnce(Executor):
    """In the thread of the caller."""

    def submit(self, work: Callable[..., T], /, *arguments: Any, **keywords: Any) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(work(*arguments, **keywords))
        return future


class PredictorSpec(NamedTuple):
    """A predictor by name. needs: fields that some job of a log must have, with their names in errors."""

    name: str
    help: str
    make: Callable[[Sequence[float]], LimitPredictor]
    needs: dict[str, str]

    def missing(self, jobs: Sequence[LoggedJob]) -> str:
        """Why it cannot be computed for a log of these jobs, or empty."""
        lacking = (text for field, text in self.needs.items() if all(getattr(job, field) == UNKNOWN for job in jobs))
        return next((f"no job of the log has {text}" for text in lacking), "")


_USER: Final = {"user": "a user"}
PREDICTORS: Final = (
    PredictorSpec("request", "what the user asked for", RequestedLimit, {"requested": "a requested time"}),
    PredictorSpec(
        "last 2 of user", "mean of the user's last two runtimes", lambda risks: MeanOfLast(lambda job: job.user), _USER
    ),
    PredictorSpec(
        "last 2 of user and executable",
        "mean of the last two runtimes of user and executable",
        lambda risks: MeanOfLast(lambda job: (job.user, job.executable), lambda job: job.user),
        _USER | {"executable": "an executable"},
    ),
    PredictorSpec(OURS, "what `barograph predict` answers after an import", ImportedRuns, _USER),
)


class Forecasts(NamedTuple):
    """Forecasts of one predictor. seconds: by job, NaN where there is none. limits: by job and risk, likewise."""

    seconds: Floats
    limits: Floats


def in_order(jobs: Iterable[LoggedJob]) -> list[LoggedJob]:
    """The jobs in order of submission; those of one second stay as in the log."""
    return sorted(jobs, key=lambda job: job.submitted)


def walk(jobs: Sequence[LoggedJob], predictor: LimitPredictor, risks: int, positions: Iterable[int]) -> Forecasts:
    """The forecasts for jobs in order of submission. positions: of all jobs in order; as they are used up, time passes.

    Ends up to the second of a submission come before it.
    """
    seconds, limits = np.full(len(jobs), np.nan), np.full((len(jobs), risks), np.nan)
    ends: list[tuple[float, int]] = []
    for at in positions:
        job = jobs[at]
        while ends and ends[0][0] <= job.submitted:
            now, number = heapq.heappop(ends)
            predictor.end(number, now, jobs[number])
        if (forecast := predictor.submit(at, job)) is not None:
            seconds[at] = forecast.seconds
            limits[at, : len(forecast.limits)] = forecast.limits
        heapq.heappush(ends, (job.started + job.runtime, at))
    return Forecasts(seconds, limits)


class LimitScore(NamedTuple):
    """The limits at one risk. jobs: those that have one. killed: share of them that ran longer. over_request: limit
    over runtime. unused_hours: processor hours asked for beyond the end of jobs."""

    risk: float
    jobs: int
    killed: float
    median_over_request: float
    mean_over_request: float
    unused_hours: float


class LimitsScore(NamedTuple):
    """The score of one predictor for one part of a log. jobs: those with a forecast. reason: why there is none.

    accuracy: mean of smaller / larger of predicted and true runtime. mae: mean absolute error in seconds.
    """

    predictor: str
    part: str
    jobs: int = 0
    accuracy: float | None = None
    mae: float | None = None
    limits: tuple[LimitScore, ...] = ()
    reason: str = ""

    def json(self) -> dict[str, Any]:
        """All figures."""
        return self._asdict() | {"limits": [limit._asdict() for limit in self.limits]}


def score(predictor: str, forecasts: Forecasts, jobs: Sequence[LoggedJob], risks: Sequence[float]) -> list[LimitsScore]:
    """The scores for all jobs that did not fail, and for each half of the log by number of jobs."""
    half, seconds = len(jobs) // 2, np.array([job.runtime for job in jobs])
    processors, failed = np.array([max(job.processors, 1.0) for job in jobs]), np.array([job.failed for job in jobs])
    found = []
    for part, at in (("all", slice(None)), ("first half", slice(0, half)), ("second half", slice(half, None))):
        rows = np.arange(len(jobs))[at]
        rows = rows[~np.isnan(forecasts.seconds[rows]) & ~failed[rows]]
        if not rows.size:
            found.append(LimitsScore(predictor, part, reason="no job has a forecast"))
            continue
        pair = forecasts.seconds[rows], seconds[rows]
        accuracy = float((np.minimum(*pair) / np.maximum(*pair)).mean())
        scores = (
            _limits(risk, limits[rows], seconds[rows], processors[rows])
            for risk, limits in zip(risks, forecasts.limits.T, strict=True)
        )
        mae = float(np.abs(pair[0] - pair[1]).mean())
        found.append(LimitsScore(predictor, part, rows.size, accuracy, mae, tuple(one for one in scores if one)))
    return found


def _limits(risk: float, limits: Floats, seconds: Floats, processors: Floats) -> LimitScore | None:
    known: npt.NDArray[np.bool_] = ~np.isnan(limits)
    if not known.any():
        return None
    over = limits[known] / seconds[known]
    unused = float((processors * np.maximum(limits - seconds, 0) / 3600)[known].sum())
    return LimitScore(
        risk, int(known.sum()), float((over < 1).mean()), float(np.median(over)), float(over.mean()), unused
    )
