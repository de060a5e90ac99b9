"""What time limits are compared with: the user's request, means of last runtimes, and `barograph predict`."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np

from barograph_modeler.forecasts.history import RUNS
from barograph_modeler.limits.forecaster import LimitForecaster, RuntimeForecast
from barograph_modeler.limits.job import UNKNOWN, SubmittedJob
from barograph_modeler.maxima.runtime import MINIMUM_RUNS
from barograph_modeler.maxima.tails import AlikeTails
from barograph_modeler.scaling.answer import Prediction, from_runs

LAST: Final = 2
"""Runtimes in a mean."""
OURS: Final = "barograph"


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


class KnownScale:
    """What `barograph predict` answers at a scale that has run MINIMUM_RUNS times: a distribution from these runs.

    Those are the newest that agree in user, executable, processors and request; failed ones too, since they are scored.
    Limits are set at recent tail probabilities, as in `forecasts/forecaster.py` and `serving/answer.py`.
    """

    def __init__(self, risks: Sequence[float]) -> None:
        self._risks = tuple(risks)
        self._runs: dict[Hashable, deque[float]] = {}
        self._contexts: dict[int, Hashable] = {}
        self._predicted: dict[int, Prediction] = {}
        self._tails = AlikeTails()

    def submit(self, key: int, job: SubmittedJob) -> RuntimeForecast | None:
        """None with fewer runs than MINIMUM_RUNS, and where runs differ too much for a limit."""
        context = self._contexts[key] = (job.user, job.executable, job.processors, job.requested)
        if len(runs := self._runs.get(context, ())) < MINIMUM_RUNS:
            return None
        found = from_runs(np.array(runs), 1)
        if not found.has_time_limit:
            return None
        self._predicted[key] = found
        limits = (found.time_limit(min(self._tails.quantile(risk, found.spread), risk)) for risk in self._risks)
        return RuntimeForecast(found.expected_seconds, tuple(limits))

    def start(self, key: int, now: float) -> None:
        """Nothing to learn."""

    def end(self, key: int, now: float, seconds: float, failed: bool) -> None:
        """Learn the runtime, and the tail probability that it had."""
        context = self._contexts.pop(key)
        runs = self._runs.setdefault(context, deque(maxlen=RUNS))
        if (found := self._predicted.pop(key, None)) is not None:
            self._tails.add(found.spread, found.logarithms.tail(math.log(seconds)))
        runs.append(seconds)


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
    PredictorSpec(
        "predict",
        "as `barograph predict` of jobs with three similar runs or more",
        KnownScale,
        _lacks(user="a user"),
    ),
    PredictorSpec(OURS, "similar ended jobs, weighted as learned", LimitForecaster, lambda jobs: ""),
)
