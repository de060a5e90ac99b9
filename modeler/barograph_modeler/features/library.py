"""Published models of features, by application."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from barograph_agent.system.clock import CLOCK
from barograph_modeler.features.history import FeatureRunHistory
from barograph_modeler.forecasts.fitting import FitQueue
from barograph_modeler.forecasts.history import Application
from barograph_modeler.forecasts.run import FeatureRun

if TYPE_CHECKING:
    from barograph_modeler.features.model import FeatureModel

FEWEST_RUNS: Final = 30
"""Fewest runs of an application that a model is fitted to."""
RENEWED_SHARE: Final = 0.1
"""A model is refitted after this share of further runs."""
MODELS: Final = 32
"""Models kept; one takes up to 30 MB. The least recently fitted are evicted."""
Learn: TypeAlias = "Callable[[Sequence[FeatureRun], int], FeatureModel | str]"

_log = logging.getLogger(__name__)


class FeatureLibrary(FitQueue["FeatureModel | str"]):
    """The models of features of all applications, refitted when there are enough further runs.

    published: replaced, never modified, so that other threads read either the old mapping or the new one.
    learn: fits a model to runs, newest last, with a seed; returns the model, or the reason why there is none.
    """

    most = 1
    failure = "features of %s cannot be learned, the last model stays: %s"

    def __init__(
        self, learn: Learn, executor: Executor, seed: int = 0, clock: Callable[[], float] = CLOCK.monotonic
    ) -> None:
        super().__init__(executor, clock)
        self.published: Mapping[Application, FeatureModel] = {}
        self._seed = seed
        self._learn = learn
        self._fitted: dict[Application, int] = {}

    def mark_changed(self, application: Application, runs: int) -> None:
        """Mark an application for a refit if it has enough further runs. runs: number of its runs so far."""
        before = self._fitted.get(application, 0)
        if runs >= FEWEST_RUNS and runs >= (1 + RENEWED_SHARE) * before:
            self._due[application] = None

    def start_fits(self, history: FeatureRunHistory) -> None:
        """Start the next due fit."""

        def prepare(application: Application) -> Callable[[], FeatureModel | str]:
            self._fitted[application] = history.seen.get(application, 0)
            return partial(self._learn, history.runs(application), self._seed)

        self._start(prepare)

    def publish_fitted(self) -> list[Application]:
        """Publish finished fits; returns the applications that have a new model."""
        fresh = []
        for application, model in self._finished().items():
            others = {name: one for name, one in self.published.items() if name != application}
            if isinstance(model, str):
                _log.info("features of %s say nothing of its runtime: %s", application, model)
                self.published = others
                continue
            while len(others) >= MODELS:
                del others[next(iter(others))]
            self.published = others | {application: model}
            fresh.append(application)
        return fresh
