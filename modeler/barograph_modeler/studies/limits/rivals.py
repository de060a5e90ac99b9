"""What time limits are compared with: the user's request, and means of last runtimes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Final, NamedTuple, Protocol

from barograph_modeler.limits.forecaster import LimitForecaster, RuntimeForecast
from barograph_modeler.limits.job import UNKNOWN, SubmittedJob

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
    PredictorSpec(OURS, "similar ended jobs, weighted as learned", LimitForecaster, lambda jobs: ""),
)
