"""Predicts running jobs from their features, scores that at their end, learns from those that ended well."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from barograph_agent.protocol.wire import Column
from barograph_collector.daemon.runner import Output
from barograph_modeler.features.history import FeatureRunHistory
from barograph_modeler.features.library import FeatureLibrary
from barograph_modeler.features.run import FeatureRun
from barograph_modeler.features.running import JOBS, RunningJob, RunningJobs
from barograph_modeler.forecasts.bounded import remember
from barograph_modeler.forecasts.history import Application
from barograph_modeler.forecasts.scoreboard import Forecast, Scoreboard
from barograph_modeler.learning.pending import Ended
from barograph_modeler.scaling.answer import Refusal

METHOD: Final = "features"
PREDICTIONS: Final = 10
"""Made in one step at most: one takes some hundredths of a second."""
VERSIONS: Final = 1_000


class FeatureForecaster:
    """No I/O. `take` rows of `jobs`, `features`, `runs`, `predictions`, `outcomes` and `models` as the log has them,
    `end` each job that is over, `step` whenever everything up to some offset has been taken.

    A job is predicted once its features have arrived, while its end is not in the log, and where the application's
    model of features has foretold its newest runs better than scales alone. What stands in the log is not said again.
    """

    def __init__(self, library: FeatureLibrary) -> None:
        self.library = library
        self.history = FeatureRunHistory()
        self.scoreboard = Scoreboard()
        self._running = RunningJobs()
        self._ended: OrderedDict[str, RunningJob] = OrderedDict()
        self._forecasts: OrderedDict[str, Forecast] = OrderedDict()
        self._versions: OrderedDict[str, str] = OrderedDict()
        self._unsaid: OrderedDict[str, Output] = OrderedDict()
        self._taken = False

    def state(self) -> dict[str, Any]:
        """Everything learned and held, as it is now: not a copy. For `restore`."""
        return {name: getattr(self, name) for name in _STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave. Models are fitted again: they follow from the runs."""
        for name in _STATE:
            setattr(self, name, state[name])
        for application, seen in self.history.seen.items():
            self.library.changed(application, seen)

    def take(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Take rows of one table as the log gives them. now: Unix seconds."""
        self._taken = True
        match table:
            case "jobs":
                self._running.take_jobs(columns)
            case "features":
                self._running.take_features(columns)
            case "runs":
                for job in columns["job"]:
                    if (gone := self._running.pop(job)) is not None:
                        remember(self._ended, job, gone, JOBS)
            case "predictions" | "outcomes" | "models":
                self._take_said(table, columns)

    def end(self, ended: Ended, now: float) -> None:
        """Score what was said of a job, then learn from it if it was healthy. now: Unix seconds."""
        gone, forecast = self._ended.pop(ended.job, None), self._forecasts.pop(ended.job, None)
        if not 0 < ended.runtime_seconds < math.inf:
            return
        if forecast is not None:
            remember(self._unsaid, ended.job, self.scoreboard.outcome(ended, forecast, METHOD, now), JOBS)
        if gone is not None and gone.application is not None and gone.told and ended.fate == "healthy":
            self.history.learn(gone.application, FeatureRun(gone.known, ended.runtime_seconds))
            self.library.changed(gone.application, self.history.seen[gone.application])

    def step(self, now: float) -> list[Output]:
        """Collect fits; where the log has nothing more to say, order fits, predict and report. now: Unix seconds."""
        outputs = list(self._tell_model(self.library.collect(), now))
        if self._taken:
            self._taken = False
            return outputs
        self.library.order(lambda name: (self.history.runs(name), self.history.seen.get(name, 0)))
        outputs += self._tell_model(self.library.collect(), now)
        outputs += self._unsaid.values()
        self._unsaid.clear()
        return [*outputs, *self._predictions(now)]

    def _take_said(self, table: str, columns: Mapping[str, Column]) -> None:
        """What this life or a former one has written."""
        if table == "models":
            for application, version in zip(columns["application"], columns["version"], strict=True):
                remember(self._versions, application, version, VERSIONS)
            return
        for row, (job, method) in enumerate(zip(columns["job"], columns["method"], strict=True)):
            if method != METHOD:
                continue
            if table == "outcomes":
                self._unsaid.pop(job, None)
            else:
                limits = (float(columns[f"{limit}_seconds"][row]) for limit in ("lower", "expected", "upper"))
                remember(self._forecasts, job, Forecast(columns["application"][row], *limits), JOBS)

    def _predictions(self, now: float) -> Iterator[Output]:
        made = 0
        for job, running in self._running:
            application = running.application
            model = None if application is None else self.library.published.get(application)
            if model is None or model.backtest.chosen != METHOD or job in self._forecasts:
                continue
            if running.tried == (model.version, running.size):
                continue
            running.tried = (model.version, running.size)
            answer = model.predict(running.known.values)
            if isinstance(answer, Refusal):
                continue
            limits = (answer.lower, answer.expected, answer.upper)
            remember(self._forecasts, job, Forecast(str(application), *limits), JOBS)
            columns = {
                "job": job,
                "application": str(application),
                "problem": running.problem,
                "ranks": running.ranks,
                "nodes": running.nodes,
                "model": f"{model.version}: {', '.join(model.columns.names)}",
                "runs": model.runs,
                "lower_seconds": limits[0],
                "expected_seconds": limits[1],
                "upper_seconds": limits[2],
                "made_at": now,
                "scales": 0,
                "method": METHOD,
            }
            yield Output("predictions", 1, columns)
            made += 1
            if made == PREDICTIONS:
                return

    def _tell_model(self, application: Application | None, now: float) -> Iterator[Output]:
        """A row for a model that is new, unless the log has it: a restart makes the same again."""
        if application is None:
            return
        model, name = self.library.published[application], str(application)
        if self._versions.get(name) == model.version:
            return
        remember(self._versions, name, model.version, VERSIONS)
        columns = {
            "application": name,
            "version": model.version,
            "features": json.dumps(model.importance),
            "runs": model.runs,
            "scored": model.backtest.scored,
            "error": model.backtest.error,
            "scaling_error": model.backtest.scaling_error,
            "chosen": model.backtest.chosen,
            "fitted_at": now,
        }
        yield Output("models", 1, columns)


_STATE: Final = (
    "history",
    "scoreboard",
    "_running",
    "_ended",
    "_forecasts",
    "_versions",
    "_unsaid",
)
