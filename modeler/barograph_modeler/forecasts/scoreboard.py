"""The accuracy of predictions: relative errors, and coverage of their limits."""

from __future__ import annotations

import math
import statistics
from collections import Counter, OrderedDict, deque
from typing import Final, Literal, NamedTuple, TypeAlias

from barograph_collector.daemon.runner import Output
from barograph_modeler.learning.pending import EndedJob
from barograph_modeler.state import lru

APPLICATIONS: Final = 1_000
"""Applications kept; the least recently scored are evicted."""
ERRORS: Final = 200
"""Errors kept per application, the newest."""

Result: TypeAlias = Literal["inside", "outside", "withheld", "failed"]
RESULTS: Final[tuple[Result, ...]] = ("inside", "outside", "withheld", "failed")


class Forecast(NamedTuple):
    """The prediction made for a running job, in seconds; the limits hold 95 %."""

    application: str
    lower: float
    expected: float
    upper: float

    def relative_error(self, actual_seconds: float) -> float:
        """expected / actual - 1: above 0 if the job was faster than expected."""
        return self.expected / actual_seconds - 1


class ForecastScore:
    """Results and errors of the predictions of one application."""

    def __init__(self) -> None:
        self.results: Counter[str] = Counter()
        self.errors: deque[float] = deque(maxlen=ERRORS)

    @property
    def median_error(self) -> float:
        """Median of the newest absolute relative errors; NaN before the first."""
        return statistics.median(self.errors) if self.errors else math.nan

    @property
    def coverage(self) -> float:
        """Share of healthy runs within the limits; NaN before the first."""
        judged = self.results["inside"] + self.results["outside"]
        return self.results["inside"] / judged if judged else math.nan


class Scoreboard:
    """Scores of all applications, by name."""

    def __init__(self) -> None:
        self.scores: OrderedDict[str, ForecastScore] = OrderedDict()

    def outcome(self, ended: EndedJob, forecast: Forecast, method: str, now: float) -> Output:
        """Score a prediction; returns the row of `outcomes`. now: Unix seconds."""
        columns = {
            "job": ended.job,
            "application": forecast.application,
            "result": self.judge(forecast, ended.runtime_seconds, ended.verdict),
            "expected_seconds": forecast.expected,
            "actual_seconds": ended.runtime_seconds,
            "relative_error": forecast.relative_error(ended.runtime_seconds),
            "time": now,
            "method": method,
        }
        return Output("outcomes", 1, columns)

    def judge(
        self, forecast: Forecast, actual_seconds: float, verdict: Literal["healthy", "withheld", "failed"]
    ) -> Result:
        """Score a prediction by the runtime and verdict of its job."""
        result: Result = verdict if verdict != "healthy" else "outside"
        if verdict == "healthy" and forecast.lower <= actual_seconds <= forecast.upper:
            result = "inside"
        score = lru.get(self.scores, forecast.application, ForecastScore, APPLICATIONS)
        score.results[result] += 1
        if verdict == "healthy":
            score.errors.append(abs(forecast.relative_error(actual_seconds)))
        return result
