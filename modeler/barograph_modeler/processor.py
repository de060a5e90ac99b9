"""The modeler as one processor: the learner of intervals and paces, and the forecasters of whole runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barograph_agent.protocol.wire import Column
from barograph_collector.daemon.runner import Output
from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.forecasts.forecaster import Forecaster
from barograph_modeler.learning.learner import Learner
from barograph_modeler.state.stateful import Stateful


class ModelerProcessor(Stateful):
    """Passes rows to the learner and to both forecasters, and ended runs from the learner to the forecasters."""

    STATE = ("learner", "forecaster", "features")

    def __init__(self, learner: Learner, forecaster: Forecaster, features: FeatureForecaster) -> None:
        self.learner = learner
        self.forecaster = forecaster
        self.features = features

    def observe(self, table: str, columns: Mapping[str, Column], now: float) -> None:
        """Read rows of one table as the log gives them. now: Unix seconds."""
        self.learner.observe(table, columns, now)
        self.forecaster.read(table, columns)
        self.features.read(table, columns)

    @property
    def idle(self) -> bool:
        """Whether nothing is due later, and no model waits to be fitted."""
        return self.learner.idle and not (self.forecaster.library.waiting or self.features.library.waiting)

    def step(self, now: float) -> list[Output]:
        """Learn from jobs whose health is known, and return the rows to write. now: Unix seconds."""
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
        """The states of all parts."""
        return {name: getattr(self, name).state() for name in self.STATE}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Replace the states of all parts."""
        for name in self.STATE:
            getattr(self, name).restore(state[name])
