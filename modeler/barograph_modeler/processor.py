"""What the modeler thinks with: the learner of intervals and paces, and the forecasters of whole runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph_agent.protocol.wire import Column
from barograph_collector.daemon.runner import Output
from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.learning.learner import Learner


class ModelerProcessor:
    """All as one mind: what the learner has made of a run that ended goes on to the forecasters, who know runs by their
    scales and by their features."""

    def __init__(self, learner: Learner, forecaster: Forecaster, features: FeatureForecaster) -> None:
        self.learner = learner
        self.forecaster = forecaster
        self.features = features

    def take(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Take rows of one table as the log gives them. now: Unix seconds."""
        self.learner.take(table, columns, now)
        self.forecaster.take(table, columns, now)
        self.features.take(table, columns, now)

    def step(self, now: float) -> list[Output]:
        """Learn what may be learned by now, and return what came of it. now: Unix seconds."""
        outputs = self.learner.step(now)
        for ended in self.learner.ended:
            self.forecaster.end(ended, now)
            self.features.end(ended, now)
        for workload, runtimes in self.learner.accepted:
            self.forecaster.accept(workload, runtimes)
        self.learner.ended.clear()
        self.learner.accepted.clear()
        return [*outputs, *self.forecaster.step(now), *self.features.step(now)]

    def state(self) -> dict[str, Any]:
        """Everything learned and held, as it is now: not a copy. For `restore`."""
        return {
            "learner": self.learner.state(),
            "forecaster": self.forecaster.state(),
            "features": self.features.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave, under the same arguments."""
        self.learner.restore(state["learner"])
        self.forecaster.restore(state["forecaster"])
        self.features.restore(state["features"])
