"""The modeler as one processor: the recogniser of work, the learner, and the forecasters of whole runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph_agent.protocol.first_rows import FirstRows
from barograph_agent.protocol.wire import Column
from barograph_collector.daemon.quarantine import Quarantine
from barograph_collector.daemon.runner import Output
from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.learning.learner import Learner
from barograph_modeler.learning.pending import EndedJob
from barograph_modeler.recognition.changes import ChangeWatch
from barograph_modeler.recognition.edits import WorkEdit, apply, edits
from barograph_modeler.recognition.family import Merge, RunTime
from barograph_modeler.recognition.recognizer import Histories, Recognizer
from barograph_modeler.recognition.request import family_of
from barograph_modeler.state.stateful import Stateful


class ModelerProcessor(Stateful):
    """Passes rows to all parts, jobs to the learner once they are recognised, and ended runs to the forecasters.

    The learner compares within groups of like work; the forecasters learn across the problems of an application.
    """

    STATE = ("recognizer", "changes", "learner", "forecaster", "features")

    def __init__(
        self, learner: Learner, forecaster: Forecaster, features: FeatureForecaster, histories: Histories = "user"
    ) -> None:
        self.recognizer = Recognizer(histories)
        self.changes = ChangeWatch()
        self.learner = learner
        self.forecaster = forecaster
        self.features = features
        self.quarantine = learner.quarantine = self.recognizer.quarantine = Quarantine(self._forget)
        self._first_rows = FirstRows()
        self._edits: list[WorkEdit] = []
        """To be made in the next step, when the jobs read with them are recognised."""
        self._ended: list[tuple[str, int, float]] = []
        """Jobs that have ended since the last step, their sync points (0 of failed ones), and runtimes in seconds."""

    def observe(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Read rows of one table as the log gives them. now: Unix seconds."""
        columns = self._first_rows.of(table, columns)
        self.recognizer.read(table, columns, now)
        self.changes.read(table, columns)
        if table == "work_edits":
            self._edits += edits(columns)
        if table == "runs":
            names = ("job", "exit_status", "intervals", "runtime_seconds")
            for job, status, points, seconds in zip(*(columns[name] for name in names), strict=True):
                self._ended.append((str(job), 0 if status else int(points), float(seconds)))
        if table == "jobs":
            # Their workloads follow; what is read of them meanwhile is kept.
            self.learner.expect(columns["job"], columns["user"])
        else:
            self.learner.observe(table, columns, now)
        self.forecaster.read(table, columns)
        self.features.read(table, columns)

    @property
    def idle(self) -> bool:
        """Whether nothing is due later, and no model waits to be fitted."""
        return (
            self.recognizer.idle
            and self.learner.idle
            and not (self.forecaster.library.waiting or self.features.library.waiting)
        )

    def step(self, now: float) -> list[Output]:
        """Learn from jobs whose health is known, and return the rows to write. now: Unix seconds."""
        for assigned in self.recognizer.step(now):
            self.learner.begin(assigned.job, assigned.group)
            self.forecaster.assign(assigned)
        guard = self.quarantine.guard
        for job, points, seconds in self._ended:
            with guard("recognise", job):
                is_doubtful = bool(points) and self.learner.is_doubtful(job, points)
                time = RunTime.of(seconds, points)
                if is_doubtful and (own := self.recognizer.separate(job, points, time, now)):
                    self.learner.begin(job, own.group)
                    self.forecaster.assign(own)
                else:
                    self.recognizer.confirm(job, now, is_doubtful=is_doubtful)
        self._ended.clear()
        outputs = []
        for edit in self._edits:
            with guard("work_edits"):
                merge, answers = apply(edit, self.recognizer, now)
                outputs += [*answers, *self._merge(merge, now)]
        self._edits.clear()
        outputs += self.learner.step(now)
        for ended in self.learner.ended:
            with guard("end", ended.job):
                outputs += self._end(ended, now)
        for workload, runtimes in self.learner.accepted:
            self.forecaster.accept(workload, runtimes)
        self.learner.ended.clear()
        self.learner.accepted.clear()
        for forecast in (self.forecaster.step, self.features.step):
            with guard("predict"):
                outputs += forecast(now)
        assignments, self.recognizer.outputs = self.recognizer.outputs, []
        return [*assignments, *outputs]

    def _end(self, ended: EndedJob, now: float) -> list[Output]:
        """Learn from a job that has ended."""
        outputs: list[Output] = []
        if ended.verdict != "failed":
            healthy = ended.verdict == "healthy"
            other_length = 0 if self.learner.is_as_long(ended.workload, ended.points) else ended.points
            merge = self.recognizer.end(
                ended.job,
                healthy=healthy,
                other_length=other_length,
                is_like=self.learner.are_alike,
                now=now,
                time=RunTime.of(ended.runtime_seconds, ended.points),
            )
            outputs += self.changes.end(ended.job, ended.workload, ended.runtime_seconds, now)
            outputs += self._merge(merge, now)
        self.forecaster.end(ended, now)
        self.features.end(ended._replace(workload=family_of(ended.workload)), now)
        return outputs

    def _forget(self, job: str) -> None:
        """Forget a job in quarantine. Its prediction and its setting are left: they expire with age."""
        self.recognizer.forget(job)
        self.learner.forget(job)

    def _merge(self, merge: Merge | None, now: float) -> list[Output]:
        if merge is None:
            return []
        self.changes.merge(merge.gone, merge.into)
        self.forecaster.merge(merge.gone, merge.into)
        return self.learner.merge(merge.gone, merge.into, now)

    def state(self) -> dict[str, Any]:
        """The states of all parts."""
        return {name: getattr(self, name).state() for name in self.STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the states of all parts."""
        for name in self.STATE:
            getattr(self, name).restore(state[name])
