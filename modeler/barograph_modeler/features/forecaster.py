"""Predicts the runtimes of running jobs from their features, and learns from healthy jobs."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from barograph_agent.protocol.wire import Column
from barograph_collector.daemon.runner import Output
from barograph_modeler.features.history import FeatureRunHistory
from barograph_modeler.features.library import FeatureLibrary
from barograph_modeler.forecasts.history import Application
from barograph_modeler.forecasts.predictions import JOBS, Predictions
from barograph_modeler.forecasts.run import FeatureRun
from barograph_modeler.forecasts.running import RunningJob, RunningJobs
from barograph_modeler.learning.pending import EndedJob
from barograph_modeler.scaling.answer import Refusal
from barograph_modeler.state import lru
from barograph_modeler.state.stateful import Stateful

METHOD: Final = "features"
PREDICTIONS: Final = 10
"""Predictions per step at most: one takes some hundredths of a second."""
VERSIONS: Final = 1_000


class FeatureForecaster(Stateful):
    """Reads rows of `jobs`, `features`, `runs`, `predictions`, `outcomes` and `models`; no I/O. Call `end` for each
    ended job, and `step` whenever everything up to some offset has been read.

    A job is predicted once its features are known and before its end is in the log, if the application's model of
    features has predicted its newest runs better than scaling. Rows that are in the log are not written again.
    """

    STATE = ("history", "predictions", "_running", "_ended", "_versions")

    def __init__(self, library: FeatureLibrary) -> None:
        self.library = library
        self.history = FeatureRunHistory()
        self.predictions = Predictions(METHOD)
        self._running = RunningJobs()
        self._ended: OrderedDict[str, RunningJob] = OrderedDict()
        self._versions: OrderedDict[str, str] = OrderedDict()
        self._more = False

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the state by what `state` returned. Models are refitted from the history."""
        super().restore(state)
        for application, seen in self.history.seen.items():
            self.library.mark_changed(application, seen)

    def read(self, table: str, columns: Mapping[str, Column]) -> None:
        """Read rows of one table as the log gives them."""
        self._more = True
        match table:
            case "jobs":
                self._running.read_jobs(columns)
            case "features":
                self._running.read_features(columns)
            case "runs":
                for job in columns["job"]:
                    if (running := self._running.pop(job)) is not None:
                        lru.store(self._ended, job, running, JOBS)
            case "predictions" | "outcomes":
                self.predictions.read(table, columns)
            case "models":
                for application, version in zip(columns["application"], columns["version"], strict=True):
                    lru.store(self._versions, application, version, VERSIONS)

    def end(self, ended: EndedJob, now: float) -> None:
        """Score the prediction of an ended job, then learn from the job if it was healthy. now: Unix seconds."""
        self.predictions.score(ended, now)
        job = self._ended.pop(ended.job, None)
        if job is None or job.application is None or not job.has_features or ended.verdict != "healthy":
            return
        if 0 < ended.runtime_seconds < math.inf:
            self.history.learn(job.application, FeatureRun(job.features, ended.runtime_seconds))
            self.library.mark_changed(job.application, self.history.seen[job.application])

    def step(self, now: float) -> list[Output]:
        """Publish finished fits; at the end of the log start fits, predict and report. now: Unix seconds."""
        outputs = list(self._report_models(self.library.publish_fitted(), now))
        if self._more:
            self._more = False
            return outputs
        self.library.start_fits(self.history)
        outputs += self._report_models(self.library.publish_fitted(), now)
        return [*outputs, *self.predictions.take_outcomes(), *self._predict(now)]

    def _predict(self, now: float) -> Iterator[Output]:
        made = 0
        for job, running in self._running:
            model = None if running.application is None else self.library.published.get(running.application)
            if model is None or model.backtest.chosen != METHOD or job in self.predictions:
                continue
            if running.attempted == (model.version, running.size):
                continue
            running.attempted = (model.version, running.size)
            answer = model.predict(running.features.values)
            if isinstance(answer, Refusal):
                continue
            row = {
                "application": str(running.application),
                "problem": running.problem,
                "ranks": running.ranks,
                "nodes": running.nodes,
                "model": f"{model.version}: {', '.join(model.columns.names)}",
                "runs": model.runs,
                "scales": 0,
            }
            yield self.predictions.predict(job, (answer.lower, answer.expected, answer.upper), row, now)
            made += 1
            if made == PREDICTIONS:
                return

    def _report_models(self, applications: Iterable[Application], now: float) -> Iterator[Output]:
        """A row per new model, unless it is in the log: after a restart the same models are fitted again."""
        for application in applications:
            model, name = self.library.published[application], str(application)
            if self._versions.get(name) == model.version:
                continue
            lru.store(self._versions, name, model.version, VERSIONS)
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
