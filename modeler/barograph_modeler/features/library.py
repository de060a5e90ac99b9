"""The models of features as they are at the moment: renewed when there are enough further runs, published whole."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Final, TypeAlias

from barograph_modeler.features.run import FeatureRun
from barograph_modeler.forecasts.history import Application

if TYPE_CHECKING:
    from barograph_modeler.features.model import FeatureModel

FEWEST_RUNS: Final = 30
"""Runs of an application before which no model is tried."""
RENEWED_SHARE: Final = 0.1
"""Of the runs a model has learned: so many further ones make it due."""
REST: Final = 20.0
"""An application rests this many times as long as its last fit took: a flood of ends costs 5 % of a core."""
MODELS: Final = 32
"""Models kept; one takes up to 30 MB. The least recently fitted go first."""
Learn: TypeAlias = "Callable[[Sequence[FeatureRun], int], FeatureModel | str]"

_log = logging.getLogger(__name__)


class FeatureLibrary:
    """published: replaced, never changed, so readers in other threads have the old mapping or the new one. failed: fits
    that broke.

    learn: from runs, the newest last, and a seed: a model, or why the features say nothing. executor: where that is
    waited for, one at a time. seed: of all chance in it. clock: seconds.
    """

    def __init__(
        self, learn: Learn, executor: Executor, seed: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.published: Mapping[Application, FeatureModel] = {}
        self.failed = 0
        self._executor = executor
        self._seed = seed
        self._learn = learn
        self._clock = clock
        self._due: OrderedDict[Application, None] = OrderedDict()
        self._fitting: tuple[Application, Future[tuple[FeatureModel | str, float]]] | None = None
        self._fitted: dict[Application, int] = {}
        self._rests: dict[Application, float] = {}

    @property
    def waiting(self) -> int:
        """Applications whose latest runs are in no model yet."""
        return len(self._due) + (self._fitting is not None)

    def changed(self, application: Application, runs: int) -> None:
        """There have been so many runs of an application by now."""
        before = self._fitted.get(application, 0)
        if runs >= FEWEST_RUNS and runs >= (1 + RENEWED_SHARE) * before:
            self._due[application] = None

    def order(self, runs: Callable[[Application], tuple[Sequence[FeatureRun], int]]) -> None:
        """Have the next one fitted that is due and has rested. runs: of an application, and how many ever were."""
        if self._fitting is not None:
            return
        now = self._clock()
        for application in self._due:
            if now >= self._rests.get(application, now):
                del self._due[application]
                those, self._fitted[application] = runs(application)
                self._fitting = (application, self._executor.submit(self._fit, those))
                return

    def collect(self) -> Application | None:
        """Publish what has been fitted by now; returns whose model is new."""
        if self._fitting is None or not self._fitting[1].done():
            return None
        (application, future), self._fitting = self._fitting, None
        if (error := future.exception()) is not None:
            self.failed += 1
            _log.error("features of %s cannot be learned, the last model stays: %s", application, error)
            return None
        model, seconds = future.result()
        self._rests[application] = self._clock() + REST * seconds
        others = {name: one for name, one in self.published.items() if name != application}
        if isinstance(model, str):
            _log.info("features of %s say nothing of its runtime: %s", application, model)
            self.published = others
            return None
        while len(others) >= MODELS:
            del others[next(iter(others))]
        self.published = others | {application: model}
        return application

    def _fit(self, runs: Sequence[FeatureRun]) -> tuple[FeatureModel | str, float]:
        began = self._clock()
        return self._learn(runs, self._seed), self._clock() - began
