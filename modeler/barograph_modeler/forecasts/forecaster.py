"""The forecaster: predicts jobs while they run, scores what it said at their end, learns from those that ended well."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from barograph_agent.protocol.wire import Column
from barograph_collector.daemon.runner import Output
from barograph_modeler.features.running import parsed
from barograph_modeler.forecasts.bounded import remember
from barograph_modeler.forecasts.history import Application, Place, WorkloadHistory, problem_name
from barograph_modeler.forecasts.library import Library
from barograph_modeler.forecasts.scoreboard import Forecast, Scoreboard
from barograph_modeler.learning.pending import Ended
from barograph_modeler.scaling.predictor import Prediction

METHOD: Final = "scaling"
JOBS: Final = 20_000
WORKLOADS: Final = 50_000
_OWN: Final = (METHOD, "")
"""Rows of earlier versions do not say how they were made."""


class Forecaster:
    """No I/O. `take` rows of `jobs`, `runs`, `predictions` and `outcomes` as the log has them, `end` each job that is
    over, `step` whenever everything up to some offset has been taken.

    A job is predicted only while all that the log holds has been taken and its end is not in it; what stands in the
    log already is not said again. library: where its predictors come from.
    """

    def __init__(self, library: Library) -> None:
        self.history = WorkloadHistory()
        self.library = library
        self.scoreboard = Scoreboard()
        self.refused = 0
        self._places: OrderedDict[str, Place] = OrderedDict()
        self._open: OrderedDict[str, str] = OrderedDict()
        self._forecasts: OrderedDict[str, Forecast] = OrderedDict()
        self._unsaid: OrderedDict[str, Output] = OrderedDict()
        self._taken = False

    def is_learning(self, cluster: str, app: str) -> bool:
        """Whether runs of an application are known, on this cluster or any, and its first predictor is to come."""
        return any(
            one.app == app and one.cluster == (cluster or one.cluster) and one not in self.library.published
            for one in self.history.applications()
        )

    def state(self) -> dict[str, Any]:
        """Everything learned and held, as it is now: not a copy. For `restore`."""
        return {name: getattr(self, name) for name in _STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave. Predictors are fitted again: they follow from the history."""
        for name in _STATE:
            setattr(self, name, state[name])
        self.library.changed(self.history.applications())

    def take(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Take rows of one table as the log gives them. now: Unix seconds."""
        self._taken = True
        match table:
            case "jobs":
                self._take_jobs(columns)
            case "runs":
                for job in columns["job"]:
                    self._open.pop(job, None)
            case "predictions":
                names = ("job", "method", "application", "lower_seconds", "expected_seconds", "upper_seconds")
                for job, method, application, *limits in zip(*(columns[name] for name in names), strict=True):
                    if method in _OWN:
                        remember(self._forecasts, job, Forecast(application, *map(float, limits)), JOBS)
                        self._open.pop(job, None)
            case "outcomes":
                for job, method in zip(columns["job"], columns["method"], strict=True):
                    if method in _OWN:
                        self._unsaid.pop(job, None)

    def end(self, ended: Ended, now: float) -> None:
        """Score what was said of a job, then learn from it if it was healthy. now: Unix seconds."""
        forecast = self._forecasts.pop(ended.job, None)
        if forecast is not None and 0 < ended.runtime_seconds < math.inf:
            remember(self._unsaid, ended.job, self.scoreboard.outcome(ended, forecast, METHOD, now), JOBS)
        place = self._places.get(ended.workload)
        if place is not None and ended.fate == "healthy":
            self.history.learn(place, ended.runtime_seconds)
            self.library.changed([place.application])

    def accept(self, workload: str, runtimes: list[float]) -> None:
        """A workload's withheld runs have become its history; seconds."""
        if (place := self._places.get(workload)) is not None:
            self.history.replace(place, runtimes)
            self.library.changed([place.application])

    def step(self, now: float) -> list[Output]:
        """Collect fits; where the log has nothing more to say, order fits, predict and report. now: Unix seconds."""
        self.library.collect(self.history)
        if self._taken:
            self._taken = False
            return []
        self.library.order(self.history)
        self.library.collect(self.history)
        outputs = list(self._unsaid.values())
        self._unsaid.clear()
        for job, workload in list(self._open.items()):
            place = self._places.get(workload)
            if place is None or not self.library.is_behind(place.application):
                del self._open[job]
                outputs += self._predict(job, place, now)
        return outputs

    def _take_jobs(self, columns: Mapping[str, Column]) -> None:
        names = ("job", "workload", "cluster", "app", "params", "ranks", "nodes")
        for job, workload, cluster, app, params, ranks, nodes in zip(*(columns[n] for n in names), strict=True):
            if ranks < 1:
                continue  # no MPI process was seen
            if workload not in self._places:
                application = Application(cluster, app)
                place = Place(workload, application, problem_name(application, parsed(params)), int(ranks), int(nodes))
                remember(self._places, workload, place, WORKLOADS)
            self._places.move_to_end(workload)
            if job not in self._forecasts:
                remember(self._open, job, workload, JOBS)

    def _predict(self, job: str, place: Place | None, now: float) -> list[Output]:
        known = None if place is None else self.library.published.get(place.application)
        if place is None or known is None:
            return []
        answer = known.predictor.predict(place.problem, place.ranks, place.known_nodes)
        if not isinstance(answer, Prediction):
            self.refused += 1
            return []
        limits = (answer.lower_seconds, answer.expected_seconds, answer.upper_seconds)
        remember(self._forecasts, job, Forecast(str(place.application), *limits), JOBS)
        columns = {
            "job": job,
            "application": str(place.application),
            "problem": place.problem,
            "ranks": place.ranks,
            "nodes": place.nodes,
            "model": model_text(answer),
            "runs": answer.runs,
            "lower_seconds": limits[0],
            "expected_seconds": limits[1],
            "upper_seconds": limits[2],
            "made_at": now,
            "scales": answer.scales,
            "method": METHOD,
        }
        return [Output("predictions", 1, columns)]


def model_text(prediction: Prediction) -> str:
    """The laws a prediction came from, with their shares."""
    shares = ((law, weight) for law, weight in prediction.model.items() if weight >= 0.005)
    return ", ".join(f"{weight:.0%} {law}" for law, weight in shares)


_STATE: Final = (
    "history",
    "scoreboard",
    "refused",
    "_places",
    "_open",
    "_forecasts",
    "_unsaid",
)
