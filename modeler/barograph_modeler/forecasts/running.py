"""Running jobs and their features."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

from barograph_agent.protocol.wire import Column
from barograph_modeler.forecasts.history import Application, parse_params, problem_name
from barograph_modeler.forecasts.predictions import JOBS
from barograph_modeler.forecasts.run import RunFeatures, feature_values

JOB_VALUES: Final = 4_000
NAME_LENGTH: Final = 300
VALUES: Final = 250_000
"""Values held over all jobs: about 50 MB. The oldest jobs are evicted."""


class RunningJob:
    """One running job. attempted: version of the last model asked, and the number of values it was given."""

    def __init__(self) -> None:
        self.application: Application | None = None
        self.problem = ""
        self.ranks = self.nodes = self.size = 0
        self.attempted: tuple[str, int] = ("", 0)
        self._params: dict[str, str] = {}
        self._features: dict[str, dict[str, tuple[float, float]]] = {}

    @property
    def has_features(self) -> bool:
        """Whether it has features or parameters, in which runs of one scale may differ."""
        return bool(self._features or self._params)

    @property
    def features(self) -> RunFeatures:
        """All features: the largest value of each over hosts, as over processes, and the latest time."""
        largest = {name: max(value for value, _ in hosts.values()) for name, hosts in self._features.items()}
        seconds = {name: max(at for _, at in hosts.values()) for name, hosts in self._features.items()}
        values = feature_values(self.ranks, self.nodes, self._params, largest)
        return RunFeatures(values, seconds, self.ranks, self.nodes)

    def begin(self, application: Application, params: Mapping[str, str], ranks: int, nodes: int) -> None:
        """Add the job's row of `jobs`."""
        self.application, self._params = application, dict(params)
        self.problem = problem_name(application, params)
        self.ranks, self.nodes = ranks, nodes

    def add_feature(self, name: str, host: str, value: float, seconds: float) -> int:
        """Store a feature of one host; returns the number of values added."""
        # Names are printed to terminals.
        if not math.isfinite(value) or len(name) > NAME_LENGTH or not name.isprintable():
            return 0
        if name not in self._features and self.size >= JOB_VALUES:
            return 0
        hosts = self._features.setdefault(name, {})
        added = int(host not in hosts)
        hosts[host] = (value, seconds)
        self.size += added
        return added


class RunningJobs:
    """Jobs that have not ended. Iterates over pairs of name and job."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, RunningJob] = OrderedDict()
        self._values = 0

    def __iter__(self) -> Iterator[tuple[str, RunningJob]]:
        return iter(list(self._jobs.items()))

    def read_jobs(self, columns: Mapping[str, Column]) -> None:
        """Read rows of `jobs`."""
        names = ("job", "cluster", "app", "params", "ranks", "nodes")
        for job, cluster, app, params, ranks, nodes in zip(*(columns[n] for n in names), strict=True):
            self._job(job).begin(Application(cluster, app), parse_params(params), int(ranks), int(nodes))

    def read_features(self, columns: Mapping[str, Column]) -> None:
        """Read rows of `features`."""
        names = ("job", "name", "host", "value", "known_seconds")
        for job, name, host, value, seconds in zip(*(columns[n] for n in names), strict=True):
            self._values += self._job(job).add_feature(name, host, float(value), float(seconds))
        while self._values > VALUES and len(self._jobs) > 1:
            self.pop(next(iter(self._jobs)))

    def pop(self, job: str) -> RunningJob | None:
        """Remove and return a job; None if it is unknown."""
        removed = self._jobs.pop(job, None)
        self._values -= removed.size if removed is not None else 0
        return removed

    def _job(self, job: str) -> RunningJob:
        if job not in self._jobs:
            self._jobs[job] = RunningJob()
            if len(self._jobs) > JOBS:
                self.pop(next(iter(self._jobs)))
        return self._jobs[job]
