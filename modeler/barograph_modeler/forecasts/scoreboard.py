"""The scoreboard of predictions: how far off they were, and whether their limits held."""

from __future__ import annotations

import math
import statistics
from collections import Counter, OrderedDict, deque
from typing import Final, Literal, NamedTuple, TypeAlias

from barograph_collector.daemon.runner import Output
from barograph_modeler.learning.pending import EndedJob

APPLICATIONS: Final = 1_000
"""Applications kept; the least recently scored go first."""
ERRORS: Final = 200
"""Latest errors of an application that its median is of."""

Result: TypeAlias = Literal["inside", "outside", "withheld", "failed"]
RESULTS: Final[tuple[Result, ...]] = ("inside", "outside", "withheld", "failed")


class Forecast(NamedTuple):
    """What was said of a job while it ran; seconds, the limits hold 95 %."""

    application: str
    lower: float
    expected: float
    upper: float

    def relative_error(self, actual_seconds: float) -> float:
        """expected / actual - 1: above 0 where the job was faster than expected."""
        return self.expected / actual_seconds - 1


class ForecastScore:
    """What came of the predictions of one application."""

    def __init__(self) -> None:
        self.results: Counter[str] = Counter()
        self.errors: deque[float] = deque(maxlen=ERRORS)

    @property
    def median_error(self) -> float:
        """Median of the latest absolute relative errors; NaN before the first."""
        return statistics.median(self.errors) if self.errors else math.nan

    @property
    def coverage(self) -> float:
        """Share of the runs that ended well within the limits; NaN before the first."""
        judged = self.results["inside"] + self.results["outside"]
        return self.results["inside"] / judged if judged else math.nan


class Scoreboard:
    """Scores of all applications, by name."""

    def __init__(self) -> None:
        self.scores: OrderedDict[str, ForecastScore] = OrderedDict()

    def outcome(self, ended: EndedJob, forecast: Forecast, method: str, now: float) -> Output:
        """Score a prediction on the end of its job, and the row of `outcomes` that says so. now: Unix seconds."""
        columns = {
            "job": ended.job,
            "application": forecast.application,
            "result": self.judge(forecast, ended.runtime_seconds, ended.verdict),
            "expected_seconds": forecast.expected,
            "actual_seconds": ended.runtime_seconds,
            "relative_error": forecast.relative_error(ended.runtime_seconds),
            "at": now,
            "method": method,
        }
        return Output("outcomes", 1, columns)

    def judge(
        self, forecast: Forecast, actual_seconds: float, verdict: Literal["healthy", "withheld", "failed"]
    ) -> Result:
        """Score a prediction on the end of its job; says what came of it."""
        result: Result = verdict if verdict != "healthy" else "outside"
        if verdict == "healthy" and forecast.lower <= actual_seconds <= forecast.upper:
            result = "inside"
        score = self.scores.setdefault(forecast.application, ForecastScore())
        self.scores.move_to_end(forecast.application)
        if len(self.scores) > APPLICATIONS:
            self.scores.popitem(last=False)
        score.results[result] += 1
        if verdict == "healthy":
            score.errors.append(abs(forecast.relative_error(actual_seconds)))
        return result
