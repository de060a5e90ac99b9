"""The predictions that one forecaster has made of running jobs, and what became of them."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from barograph_agent.protocol.wire import Column
from barograph_collector.daemon.runner import Output
from barograph_modeler.forecasts.bounded import remember
from barograph_modeler.forecasts.scoreboard import Forecast, Scoreboard
from barograph_modeler.learning.pending import EndedJob

JOBS: Final = 20_000
Limits = tuple[float, float, float]
"""Lower, expected and upper seconds."""


class Predictions:
    """Writes the rows of `predictions` and `outcomes` of one method and reads them after a restart, so that no job
    is predicted or scored twice.

    methods: values of the column `method` that are this method's; the first one is written.
    """

    def __init__(self, *methods: str) -> None:
        self.scoreboard = Scoreboard()
        self._methods = methods
        self._forecasts: OrderedDict[str, Forecast] = OrderedDict()
        self._outcomes: OrderedDict[str, Output] = OrderedDict()

    def __contains__(self, job: str) -> bool:
        return job in self._forecasts

    def read(self, table: str, columns: Mapping[str, Column]) -> list[str]:
        """Read rows of `predictions` or `outcomes`; returns the jobs among them that this method has predicted."""
        rows = [row for row, method in enumerate(columns["method"]) if method in self._methods]
        jobs = [columns["job"][row] for row in rows]
        if table == "outcomes":
            for job in jobs:
                self._outcomes.pop(job, None)
            return []
        for job, row in zip(jobs, rows, strict=True):
            limits = (float(columns[f"{limit}_seconds"][row]) for limit in ("lower", "expected", "upper"))
            remember(self._forecasts, job, Forecast(columns["application"][row], *limits), JOBS)
        return jobs

    def predict(self, job: str, limits: Limits, row: Mapping[str, object], now: float) -> Output:
        """Record a prediction; returns its row of `predictions`. row: the columns that are not the limits'."""
        remember(self._forecasts, job, Forecast(str(row["application"]), *limits), JOBS)
        seconds = dict(zip(("lower_seconds", "expected_seconds", "upper_seconds"), limits, strict=True))
        return Output("predictions", 1, {"job": job, **row, **seconds, "made_at": now, "method": self._methods[0]})

    def score(self, ended: EndedJob, now: float) -> None:
        """Score the prediction of a job that has ended, if there is one and the runtime is known."""
        forecast = self._forecasts.pop(ended.job, None)
        if forecast is not None and 0 < ended.runtime_seconds < math.inf:
            remember(self._outcomes, ended.job, self.scoreboard.outcome(ended, forecast, self._methods[0], now), JOBS)

    def take_outcomes(self) -> list[Output]:
        """Remove and return the rows of `outcomes` that are not in the log yet."""
        outcomes = list(self._outcomes.values())
        self._outcomes.clear()
        return outcomes
