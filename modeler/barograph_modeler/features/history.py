"""Healthy runs with features, by application: the training data of models of features."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from barograph_modeler.forecasts.history import Application
from barograph_modeler.forecasts.run import FeatureRun

APPLICATIONS: Final = 200
"""Applications kept; the least recently run are evicted."""
RUNS: Final = 400
"""Newest runs kept per application."""
VALUES: Final = 250_000
"""Values kept in total, about 50 MB; the application of the newest run is never evicted."""


class FeatureRunHistory:
    """seen: number of runs of each application so far, including evicted ones."""

    def __init__(self) -> None:
        self.seen: dict[Application, int] = {}
        self._runs: OrderedDict[Application, deque[FeatureRun]] = OrderedDict()
        self._values = 0

    def runs(self, application: Application) -> list[FeatureRun]:
        """The runs of an application, newest last."""
        return list(self._runs.get(application, ()))

    def learn(self, application: Application, run: FeatureRun) -> None:
        """Add a healthy run."""
        runs = self._runs.setdefault(application, deque())
        self._runs.move_to_end(application)
        runs.append(run)
        self.seen[application] = self.seen.get(application, 0) + 1
        self._values += len(run.features.values)
        if len(runs) > RUNS:
            self._values -= len(runs.popleft().features.values)
        while len(self._runs) > 1 and (len(self._runs) > APPLICATIONS or self._values > VALUES):
            oldest, evicted = self._runs.popitem(last=False)
            del self.seen[oldest]
            self._values -= sum(len(run.features.values) for run in evicted)
