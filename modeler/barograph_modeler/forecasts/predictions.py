"""Predictions that one forecaster has made for jobs, and their outcomes."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from barograph_agent.protocol.wire import Column
from barograph_collector.daemon.runner import Output
from barograph_modeler.forecasts.scoreboard import Forecast, Scoreboard
from barograph_modeler.learning.pending import EndedJob
from barograph_modeler.state import lru

JOBS: Final = 20_000
Limits = tuple[float, float, float]
"""Lower, expected and upper seconds."""


class Predictions:
    """Rows of `predictions` and `outcomes` of one method. It reads them back after a restart: no job is predicted or
    scored twice."""

    def __init__(self, method: str) -> None:
        self.scoreboard = Scoreboard()
        self._method = method
        self._forecasts: OrderedDict[str, Forecast] = OrderedDict()
        self._outcomes: OrderedDict[str, Output] = OrderedDict()

    def __contains__(self, job: str) -> bool:
        return job in self._forecasts

    def read(self, table: str, columns: Mapping[str, Column]) -> list[str]:
        """Read rows of `predictions` or `outcomes`; returns the jobs among them predicted by this method."""
        rows = [row for row, method in enumerate(columns["method"]) if method == self._method]
        jobs = [columns["job"][row] for row in rows]
        if table == "outcomes":
            for job in jobs:
                self._outcomes.pop(job, None)
            return []
        for job, row in zip(jobs, rows, strict=True):
            limits = (float(columns[f"{limit}_seconds"][row]) for limit in ("lower", "expected", "upper"))
            lru.store(self._forecasts, job, Forecast(columns["application"][row], *limits), JOBS)
        return jobs

    def predict(self, job: str, limits: Limits, row: Mapping[str, object], now: float) -> Output:
        """Record a prediction; returns its row of `predictions`. row: the columns other than the limits."""
        lru.store(self._forecasts, job, Forecast(str(row["application"]), *limits), JOBS)
        seconds = dict(zip(("lower_seconds", "expected_seconds", "upper_seconds"), limits, strict=True))
        return Output("predictions", 1, {"job": job, **row, **seconds, "made_at": now, "method": self._method})

    def score(self, ended: EndedJob, now: float) -> None:
        """Score the prediction of an ended job, if it has one and its runtime is known."""
        forecast = self._forecasts.pop(ended.job, None)
        if forecast is not None and 0 < ended.runtime_seconds < math.inf:
            lru.store(self._outcomes, ended.job, self.scoreboard.outcome(ended, forecast, self._method, now), JOBS)

    def take_outcomes(self) -> list[Output]:
        """Remove and return the rows of `outcomes` to be written."""
        outcomes = list(self._outcomes.values())
        self._outcomes.clear()
        return outcomes
