"""What time limits are compared with: the user's request, means of last runtimes, and `barograph predict`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from barograph_agent.job.identity import Job
from barograph_agent.protocol.tables import MAX_RANKS
from barograph_lab.studies.limits.logged_job import UNKNOWN, RuntimeForecast, SubmittedJob
from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.features.library import FeatureLibrary
from barograph_modeler.forecasts.fitting import REST
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.forecasts.library import PredictorLibrary
from barograph_modeler.learning.learner import Learner
from barograph_modeler.processor import ModelerProcessor
from barograph_modeler.recognition.recorded import recorded_evidence, salt_of
from barograph_modeler.recognition.request import RECORDED, SCALED
from barograph_modeler.scaling.answer import Refusal
from barograph_modeler.serving.answer import GRACE_SECONDS, UnknownApplication
from barograph_modeler.serving.page import PredictPage
from barograph_modeler.serving.question import BadQuestion, Question

LAST: Final = 2
"""Runtimes in a mean."""
OURS: Final = "predict"
CLUSTER: Final = "log"
PAUSE_SECONDS: Final = 86_400.0
MAX_EXCEEDED: Final = 0.01
"""Share of ended jobs that ran longer than they had requested, up to which users take requests for limits."""
T = TypeVar("T")


class LimitPredictor(Protocol):
    """Jobs by their position in the log. `submit` gives None for a job that is not predicted."""

    def submit(self, key: int, job: SubmittedJob) -> RuntimeForecast | None:
        """Predict a job. Without limits, the forecast has none."""

    def start(self, key: int, now: float) -> None:
        """A predicted job starts."""

    def end(self, key: int, now: float, seconds: float, failed: bool) -> None:
        """A predicted job has ended."""


class RequestedLimit:
    """The user's request, as runtime and limit."""

    def __init__(self, risks: Sequence[float]) -> None:
        self._risks = len(risks)

    def submit(self, key: int, job: SubmittedJob) -> RuntimeForecast | None:
        """The request; None without one."""
        asked = job.requested
        return RuntimeForecast(asked, (asked,) * self._risks) if asked > 0 else None

    def start(self, key: int, now: float) -> None:
        """Nothing to learn."""

    def end(self, key: int, now: float, seconds: float, failed: bool) -> None:
        """Nothing to learn."""


class MeanOfLast:
    """The mean of the last runtimes in the narrowest context that has some: those of `keys`, then all jobs.

    keys: what a job has in common with earlier ones, from the narrowest. Jobs before the first end have the request.
    """

    def __init__(self, keys: Sequence[Callable[[SubmittedJob], Hashable]]) -> None:
        self._keys = keys
        self._last: dict[Hashable, deque[float]] = {}
        self._contexts: dict[int, list[Hashable]] = {}

    def submit(self, key: int, job: SubmittedJob) -> RuntimeForecast | None:
        """None without ended jobs and request."""
        contexts = self._contexts[key] = [*((at, shared(job)) for at, shared in enumerate(self._keys)), None]
        for context in contexts:
            if last := self._last.get(context):
                return RuntimeForecast(sum(last) / len(last), ())
        return RuntimeForecast(job.requested, ()) if job.requested > 0 else None

    def start(self, key: int, now: float) -> None:
        """Nothing to learn."""

    def end(self, key: int, now: float, seconds: float, failed: bool) -> None:
        """Learn the runtime."""
        for context in self._contexts.pop(key):
            self._last.setdefault(context, deque(maxlen=LAST)).append(seconds)


class ImportedRuns:
    """What `barograph predict --app --user --ranks --requested --job-name` answers after an import of what has ended.

    Fits of an application are PAUSE_SECONDS of the log apart. Runs that failed are not imported. No limit is longer
    than the request on a cluster that ends jobs in time.
    """

    def __init__(self, risks: Sequence[float]) -> None:
        self._risks = tuple(risks)
        self._jobs: dict[int, SubmittedJob] = {}
        self._now = self._worked = 0.0
        self._requests = self._exceeded = 0
        library = PredictorLibrary(_AtOnce(), clock=lambda: self._now, worked=self._work)
        forecaster, features = Forecaster(library), FeatureForecaster(FeatureLibrary(_no_features, _AtOnce()))
        self._processor = ModelerProcessor(Learner(), forecaster, features)
        self._page = PredictPage(forecaster, features, recognizer=self._processor.recognizer)
        self._salt = salt_of(b"", CLUSTER)

    def submit(self, key: int, job: SubmittedJob) -> RuntimeForecast | None:
        """None where the service knows nothing of the application, refuses, or has no limit."""
        self._jobs[key] = job
        is_held = self._exceeded <= MAX_EXCEEDED * self._requests
        requested = job.requested if job.requested > 0 and is_held else math.inf
        question = Question(
            f"exe{job.executable}", _ranks(job), user=f"user{job.user}", requested=requested, asked=self._asked(job)
        )
        try:
            query, tails = self._page.query(question)
        except (UnknownApplication, BadQuestion):
            return None
        if isinstance(found := query.predict(question.ranks), Refusal):
            return None
        limits = [query.time_limit(found, risk, tails) for risk in self._risks]
        seconds = tuple(limit["seconds"] for limit in limits if limit is not None)
        return RuntimeForecast(found.expected_seconds, seconds if len(seconds) == len(limits) else ())

    def start(self, key: int, now: float) -> None:
        """Nothing to learn."""

    def end(self, key: int, now: float, seconds: float, failed: bool) -> None:
        """Import the run."""
        job = self._jobs.pop(key)
        if job.requested > 0:
            self._requests += 1
            self._exceeded += seconds > job.requested + GRACE_SECONDS
        if failed:
            return
        self._now, ranks = now, _ranks(job)
        name = Job(CLUSTER, str(key), 0, "job", f"user{job.user}", "unknown", f"exe{job.executable}", {})
        run = {"job": name.key, "ended_at": now, "runtime_seconds": seconds, "exit_status": 0, "intervals": 0}
        work = {"job": name.key, "ranks": ranks, "nodes": 0, "ranks_per_node": 0} | self._asked(job)
        rows = {"jobs": name.row(ranks, 0, now - seconds), "works": work, "runs": run | {"dropped": 0, "imported": 1}}
        for table, row in rows.items():
            self._processor.observe(table, {column: [value] for column, value in row.items()}, now)
        for _ in range(2):
            self._processor.step(now)

    def _asked(self, job: SubmittedJob) -> dict[str, Any]:
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


def _no_features(runs: object, seed: int) -> str:
    return "a log has none"


def _ranks(job: SubmittedJob) -> int:
    return int(min(max(job.processors, 1.0), MAX_RANKS))


class PredictorSpec(NamedTuple):
    """A predictor by name. missing: why it cannot be computed for a log of these jobs, or empty."""

    name: str
    help: str
    make: Callable[[Sequence[float]], LimitPredictor]
    missing: Callable[[Sequence[SubmittedJob]], str]


def _user(job: SubmittedJob) -> Hashable:
    return job.user


def _program(job: SubmittedJob) -> Hashable:
    return job.user, job.executable


def _lacks(**fields: str) -> Callable[[Sequence[SubmittedJob]], str]:
    """The first of these fields that no job has. fields: what to call it, by attribute."""

    def missing(jobs: Sequence[SubmittedJob]) -> str:
        lacking = (name for field, name in fields.items() if all(getattr(one, field) == UNKNOWN for one in jobs))
        return next((f"no job of the log has {name}" for name in lacking), "")

    return missing


PREDICTORS: Final = (
    PredictorSpec("request", "what the user asked for", RequestedLimit, _lacks(requested="a requested time")),
    PredictorSpec(
        "last 2 of user",
        "mean of the user's last two runtimes",
        lambda risks: MeanOfLast([_user]),
        _lacks(user="a user"),
    ),
    PredictorSpec(
        "last 2 of user and executable",
        "mean of the last two runtimes of user and executable",
        lambda risks: MeanOfLast([_program, _user]),
        _lacks(user="a user", executable="an executable"),
    ),
    PredictorSpec(OURS, "what `barograph predict` answers after an import", ImportedRuns, _lacks(user="a user")),
)
