"""Runs with features whose runtime follows from them, and a forecaster that learns them at once, in this process."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.features.library import FeatureLibrary
from barograph_modeler.forecasts.run import FeatureRun
from helpers.executor import Inline
from helpers.scaling import Columns, RunMaker, finished


def learn_here(runs: Sequence[FeatureRun], seed: int) -> Any:
    """As `TrainWorker` does, without a process of its own. The same runs are learned once: a fit is seconds of work."""
    return _learned(pickle.dumps((list(runs), seed)))


@lru_cache
def _learned(work: bytes) -> Any:
    from barograph_modeler.features.columns import UninformativeFeatures
    from barograph_modeler.features.model import learn

    runs, seed = pickle.loads(work)
    try:
        return learn(runs, seed=seed)
    except UninformativeFeatures as error:
        return str(error)


def inline_features() -> FeatureForecaster:
    """Learns at once, and never rests."""
    return FeatureForecaster(FeatureLibrary(learn_here, Inline(), clock=lambda: 0.0))


class Solves(RunMaker):
    """Makes runs that note how many cells they have and how many steps they will do, and take as long as that says.

    A third feature is known at the end only, a fourth says nothing.
    """

    def run(self, cells: float | None = None, steps: float | None = None) -> dict[str, Columns]:
        """The rows of `jobs`, `features` and `runs` of one job on 4 ranks."""
        self._made += 1
        job = f"{self.cluster}/{self._made}.0.0"
        cells = float(self.rng.uniform(100, 1000)) if cells is None else cells
        steps = float(self.rng.integers(10, 100)) if steps is None else steps
        seconds = self.law(cells, steps) * float(self.rng.lognormal(0, self.noise))
        noted = {
            "cells": (cells, 0.1),
            "steps": (steps, 0.2),
            "work": (cells * steps, seconds),
            "pid": (self._made, 0.1),
        }
        rows = finished(
            job, f"{self.cluster}/{self.app}@4x1", 4, seconds, cluster=self.cluster, app=self.app, params="{}"
        )
        features = {
            "job": [job] * len(noted),
            "host": ["n1"] * len(noted),
            "name": list(noted),
            "value": np.array([value for value, _ in noted.values()]),
            "known_seconds": np.array([at for _, at in noted.values()]),
        }
        # In the order in which they come.
        return {"jobs": rows["jobs"], "features": features, "runs": rows["runs"]}

    @staticmethod
    def law(cells: float, steps: float) -> float:
        """Seconds."""
        return 5.0 + 1e-2 * cells * steps
