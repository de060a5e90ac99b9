"""Running jobs and their features so far."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

from barograph_agent.protocol.wire import Column
from barograph_modeler.forecasts.history import Application, parse_params, problem_name
from barograph_modeler.forecasts.predictions import JOBS
from barograph_modeler.forecasts.run import RunFeatures, Value, feature_values

JOB_VALUES: Final = 4_000
NAME_LENGTH: Final = 300
VALUES: Final = 250_000
"""Values held of all jobs: some fifty million bytes. The oldest jobs go first."""


class RunningJob:
    """A job as far as it is known. attempted: the model that was asked last, and of how many values."""

    def __init__(self) -> None:
        self.application: Application | None = None
        self.problem = ""
        self.ranks = self.nodes = self.size = 0
        self.attempted: tuple[str, int] = ("", 0)
        self._params: dict[str, str] = {}
        self._noted: dict[str, dict[str, tuple[float, float]]] = {}

    @property
    def has_features(self) -> bool:
        """Whether anything is known of it that another run of its scale may have had otherwise."""
        return bool(self._noted or self._params)

    @property
    def known(self) -> RunFeatures:
        """All of it; of each feature the largest value over the hosts, as it is over processes, and the latest time."""
        noted: dict[str, Value] = {n: max(value for value, _ in hosts.values()) for n, hosts in self._noted.items()}
        seconds = {name: max(at for _, at in hosts.values()) for name, hosts in self._noted.items()}
        values = feature_values(self.ranks, self.nodes, self._params, noted)
        return RunFeatures(values, seconds, self.problem, self.ranks, self.nodes)

    def begin(self, application: Application, params: Mapping[str, str], ranks: int, nodes: int) -> None:
        """Record the job's row."""
        self.application, self._params = application, dict(params)
        self.problem = problem_name(application, params)
        self.ranks, self.nodes = ranks, nodes

    def add_feature(self, name: str, host: str, value: float, seconds: float) -> int:
        """A feature as one host has it now. Returns how many values this adds."""
        # Names are shown to people, in a terminal too.
        if not math.isfinite(value) or len(name) > NAME_LENGTH or not name.isprintable():
            return 0
        if name not in self._noted and self.size >= JOB_VALUES:
            return 0
        hosts = self._noted.setdefault(name, {})
        added = int(host not in hosts)
        hosts[host] = (value, seconds)
        self.size += added
        return added


class RunningJobs:
    """Those that have not ended. Iterates over names and jobs."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, RunningJob] = OrderedDict()
        self._values = 0

    def __iter__(self) -> Iterator[tuple[str, RunningJob]]:
        return iter(list(self._jobs.items()))

    def read_jobs(self, columns: Mapping[str, Column]) -> None:
        """Rows of `jobs`."""
        names = ("job", "cluster", "app", "params", "ranks", "nodes")
        for job, cluster, app, params, ranks, nodes in zip(*(columns[n] for n in names), strict=True):
            self._job(job).begin(Application(cluster, app), parse_params(params), int(ranks), int(nodes))

    def read_features(self, columns: Mapping[str, Column]) -> None:
        """Rows of `features`."""
        names = ("job", "name", "host", "value", "known_seconds")
        for job, name, host, value, seconds in zip(*(columns[n] for n in names), strict=True):
            self._values += self._job(job).add_feature(name, host, float(value), float(seconds))
        while self._values > VALUES and len(self._jobs) > 1:
            self._forget(next(iter(self._jobs)))

    def pop(self, job: str) -> RunningJob | None:
        """A job that has ended; None where nothing is known of it."""
        return self._forget(job) if job in self._jobs else None

    def _job(self, job: str) -> RunningJob:
        if job not in self._jobs:
            self._jobs[job] = RunningJob()
            if len(self._jobs) > JOBS:
                self._forget(next(iter(self._jobs)))
        return self._jobs[job]

    def _forget(self, job: str) -> RunningJob:
        gone = self._jobs.pop(job)
        self._values -= gone.size
        return gone
