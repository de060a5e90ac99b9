"""Runs that ended well with their features, by application: the training data of models of features."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from barograph_modeler.forecasts.history import Application
from barograph_modeler.forecasts.run import FeatureRun

APPLICATIONS: Final = 200
"""The least recently run go first."""
RUNS: Final = 400
"""Runs of an application, the newest."""
VALUES: Final = 250_000
"""Values held in all, but those of the newest run's application: some fifty million bytes."""


class FeatureRunHistory:
    """seen: how many runs of an application there have been, also those that are held no longer."""

    def __init__(self) -> None:
        self.seen: dict[Application, int] = {}
        self._runs: OrderedDict[Application, deque[FeatureRun]] = OrderedDict()
        self._values = 0

    def runs(self, application: Application) -> list[FeatureRun]:
        """Its runs, the newest last."""
        return list(self._runs.get(application, ()))

    def learn(self, application: Application, run: FeatureRun) -> None:
        """Add a run that ended well."""
        runs = self._runs.setdefault(application, deque())
        self._runs.move_to_end(application)
        runs.append(run)
        self.seen[application] = self.seen.get(application, 0) + 1
        self._values += len(run.known.values)
        if len(runs) > RUNS:
            self._values -= len(runs.popleft().known.values)
        while len(self._runs) > 1 and (len(self._runs) > APPLICATIONS or self._values > VALUES):
            oldest, gone = self._runs.popitem(last=False)
            del self.seen[oldest]
            self._values -= sum(len(run.known.values) for run in gone)
