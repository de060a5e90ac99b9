"""Predicts the runtimes of running jobs from runs at other scales, and learns from healthy jobs."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from barograph_agent.protocol.wire import Column
from barograph_collector.daemon.runner import Output
from barograph_modeler.forecasts.history import Application, WorkloadHistory, WorkloadPlace, parse_params
from barograph_modeler.forecasts.library import PredictorLibrary
from barograph_modeler.forecasts.parts.history import PartsHistory
from barograph_modeler.forecasts.predictions import JOBS, Predictions
from barograph_modeler.forecasts.works import WORK, WorkIndex, with_work, without_work
from barograph_modeler.learning.pending import EndedJob
from barograph_modeler.maxima.tails import AlikeTails
from barograph_modeler.recognition.recognizer import Assigned
from barograph_modeler.scaling.answer import Prediction, Refusal
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.state import lru
from barograph_modeler.state.stateful import Stateful

METHOD: Final = "scaling"
WORKLOADS: Final = 50_000
CLUSTERS: Final = 100


class Forecaster(Stateful):
    """Reads rows of `jobs`, `runs`, `predictions` and `outcomes`; no I/O. Call `end` for each ended job, and `step`
    whenever everything up to some offset has been read.

    A job is predicted once the whole log has been read without its end. Rows that are in the log are not written again.
    """

    STATE = (
        *("history", "works", "parts", "predictions", "refused"),
        *("_tails", "_waiting", "_places", "_jobs", "_over", "_open", "_expected", "_users"),
    )

    def __init__(self, library: PredictorLibrary) -> None:
        self.history = WorkloadHistory()
        self.works = WorkIndex()
        self.parts = PartsHistory()
        self.library = library
        self.predictions = Predictions(METHOD)
        self.refused = 0
        self._tails: OrderedDict[str, AlikeTails] = OrderedDict()
        """By cluster: probabilities that jobs had of a longer runtime, by the runs of their scale when they began."""
        self._waiting: OrderedDict[str, WorkloadPlace] = OrderedDict()
        """Jobs without a group, their places with the parameters only."""
        self._places: OrderedDict[str, WorkloadPlace] = OrderedDict()
        """By group."""
        self._jobs: OrderedDict[str, str] = OrderedDict()
        """The groups of jobs."""
        self._users: OrderedDict[str, str] = OrderedDict()
        """The users of jobs."""
        self._over: OrderedDict[str, None] = OrderedDict()
        """Jobs that have ended."""
        self._open: OrderedDict[str, str] = OrderedDict()
        self._expected: OrderedDict[str, tuple[float, float, float, int]] = OrderedDict()
        """By job: mean, spread, freedom of log seconds, and number of runs, where a time limit would be proposed."""
        self._more = False

    def is_learning(self, cluster: str, app: str) -> bool:
        """Whether an application, on this cluster or any if empty, has runs and no predictor yet."""
        return any(
            one.app == app and one.cluster == (cluster or one.cluster) and one not in self.library.published
            for one in self.history.applications()
        )

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the state by what `state` returned. Predictors are refitted from the history."""
        super().restore(state)
        self.library.mark_changed(self.history.applications())

    def read(self, table: str, columns: Mapping[str, Column]) -> None:
        """Read rows of one table as the log gives them."""
        self._more = True
        match table:
            case "jobs":
                self._read_jobs(columns)
            case "phases":
                self.library.mark_changed(place.application for place in self.parts.read(columns))
            case "runs":
                for job in columns["job"]:
                    lru.store(self._over, job, None, JOBS)
                    self._open.pop(job, None)
            case "predictions" | "outcomes":
                for job in self.predictions.read(table, columns):
                    self._open.pop(job, None)

    def end(self, ended: EndedJob, now: float) -> None:
        """Score the prediction of an ended job, then learn from the job if it was healthy. now: Unix seconds."""
        self.predictions.score(ended, now)
        place = self._places.get(ended.workload)
        healthy = ended.verdict == "healthy"
        self.parts.end(ended.job, place if healthy else None, ended.runtime_seconds)
        expected = self._expected.pop(ended.job, None)
        is_timed = ended.verdict != "failed" and 0 < ended.runtime_seconds < math.inf
        if expected is not None and place is not None and is_timed:
            *distribution, runs = expected
            tail = Mixture.single(*distribution).tail(math.log(ended.runtime_seconds))
            self._tails_of(place.application.cluster).add(expected[1], tail, ended.runtime_seconds, runs)
        if place is not None and healthy:
            self.history.learn(place, ended.runtime_seconds)
            self.library.learn(place, self.history.seconds(place))
            self.library.mark_changed([place.application])

    def tails(self, cluster: str) -> AlikeTails:
        """A copy of the tail probabilities that jobs of a cluster had, by the runs of their scale when they began."""
        return self._tails_of(cluster).copy()

    def _tails_of(self, cluster: str) -> AlikeTails:
        return lru.get(self._tails, cluster, AlikeTails, CLUSTERS)

    def accept(self, workload: str, runtimes: list[float]) -> None:
        """Replace the history of a workload by its withheld runs. runtimes: seconds."""
        if (place := self._places.get(workload)) is not None:
            self.history.replace(place, runtimes)
            self.library.mark_changed([place.application])

    def step(self, now: float) -> list[Output]:
        """Publish finished fits; at the end of the log start fits, predict and report. now: Unix seconds."""
        self.library.publish_fitted(self.history)
        if self._more:
            self._more = False
            return []
        self.library.start_fits(self.history, self.parts)
        self.library.publish_fitted(self.history)
        outputs = self.predictions.take_outcomes()
        for job, workload in list(self._open.items()):
            place = self._places.get(workload)
            if place is not None and self.library.is_behind(place.application):
                continue
            del self._open[job]
            if place is not None and (known := self.library.published.get(place.application)) is not None:
                outputs += self._predict(job, place, known.of_run(place), now)
        return outputs

    def assign(self, assigned: Assigned) -> None:
        """Take a job's group: its first one, or the one that it was moved to."""
        job, group = assigned.job, assigned.group
        place = self._waiting.pop(job, None) or self.place_of(job)
        if place is None:
            return
        plain = label = self.works.label(place.application, assigned.asked)
        if assigned.by_traffic:
            label = f"{label}.{group.rpartition('+')[2]}".lstrip(".")
        params = with_work(without_work(place.params, plain, assigned.asked), label, assigned.asked)
        known = self._places.get(group)
        if known is not None:
            self.works.vary(place.application, label, known.params, params)
        if known is None or (label and WORK not in dict(known.params)):
            # A later run of the group may differ in numbers that do not matter; of the first its work may come late.
            found = place._replace(workload=group, params=params)
            lru.store(self._places, group, found, WORKLOADS)
            if known is not None:
                self.history.merge(known, found)
                self.library.mark_changed([found.application])
        lru.store(self._jobs, job, group, JOBS)
        self._expect(job, self._places[group])
        if job not in self.predictions and job not in self._over:
            lru.store(self._open, job, group, JOBS)

    def _expect(self, job: str, place: WorkloadPlace) -> None:
        """Remember what is predicted of a job that begins, if its scale has run."""
        self._expected.pop(job, None)
        published = self.library.published.get(place.application)
        found = published and published.of_run(place)
        if isinstance(found, Prediction) and (runs := found.own_runs) is not None and found.has_time_limit:
            logs = found.logarithms
            if logs.means.size == 1:
                lru.store(
                    self._expected, job, (logs.means.item(), logs.spreads.item(), float(logs.freedom), runs), JOBS
                )

    def merge(self, gone: str, into: str) -> None:
        """Take two groups for one."""
        old, new = self._places.get(gone), self._places.get(into)
        if old is not None and new is not None:
            self.history.merge(old, new)
            self._places[gone] = new
            label = dict(new.params).get(WORK, "")
            self.works.join(new.application, dict(old.params).get(WORK, ""), label)
            self.works.vary(new.application, label, new.params, old.params)
            self.library.mark_changed([new.application])

    def place_of(self, job: str) -> WorkloadPlace | None:
        """The place of a job that is running or has ended; None if it is unknown."""
        return self._places.get(self._jobs.get(job, ""))

    def user_of(self, job: str) -> str:
        """The user of a job; empty if it is unknown."""
        return self._users.get(job, "")

    def _read_jobs(self, columns: Mapping[str, Column]) -> None:
        names = ("job", "workload", "cluster", "app", "user", "params", "ranks", "nodes")
        for job, workload, cluster, app, user, params, ranks, nodes in zip(*(columns[n] for n in names), strict=True):
            if ranks < 1:
                continue  # not an MPI job
            ordered = tuple(sorted(parse_params(params).items()))
            place = WorkloadPlace(workload, Application(cluster, app), ordered, int(ranks), int(nodes))
            lru.store(self._waiting, job, place, JOBS)
            lru.store(self._users, job, user, JOBS)

    def _predict(self, job: str, place: WorkloadPlace, answer: Prediction | Refusal, now: float) -> list[Output]:
        if not isinstance(answer, Prediction):
            self.refused += 1
            return []
        row = {
            "application": str(place.application),
            "problem": place.problem,
            "ranks": place.ranks,
            "nodes": place.nodes,
            "model": model_text(answer),
            "runs": answer.runs,
            "scales": answer.scales,
        }
        limits = (answer.lower_seconds, answer.expected_seconds, answer.upper_seconds)
        return [self.predictions.predict(job, limits, row, now)]


def model_text(prediction: Prediction) -> str:
    """The kinds of shapes of a prediction and their weights."""
    shares = ((law, weight) for law, weight in prediction.model.items() if weight >= 0.005)
    return ", ".join(f"{weight:.0%} {law}" for law, weight in shares)
