"""Prediction intervals from errors on held-out runs, computed as in split conformal prediction.

Its guarantee does not hold here: features and the weights of learners are chosen on the same runs. On public runs the
limits hold 94 to 97 of 100 (docs/engineer/features.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from barograph_modeler.features.estimators.between import LevelErrors
from barograph_modeler.features.estimators.expansion import logarithms
from barograph_modeler.features.sample import Sample
from barograph_modeler.maxima.band import LEVEL, check_level
from barograph_modeler.maxima.sample import Floats

RUNS_PER_LEAF: Final = 10
FEWEST_FOR_DIFFICULTY: Final = 100
"""Fewest runs for which the width depends on the features; with fewer runs it is constant."""
LEAST_DIFFICULTY: Final = 0.1
"""Lower bound of the difficulty, as a share of its median."""

Refit = Callable[[Sample], Callable[[Floats], Floats]]
"""Fits the learner to some runs; the result predicts seconds of rows of features."""


class RuntimeLimits(NamedTuple):
    """n lower and n upper limits, in seconds."""

    lower: Floats
    upper: Floats


class Conformal:
    """Limits around predictions, from the errors on held-out runs.

    The score of a run is |log(predicted / observed)| over its difficulty, the error that a forest predicts for its
    features out of bag.

    held_out: predicted seconds of each run of the sample, by learners not fitted to it. refit: with it, limits are
    wider for values between those of the sample (`between.py`).
    """

    def __init__(self, sample: Sample, held_out: Floats, *, seed: int = 0, refit: Refit | None = None) -> None:
        errors = np.abs(np.log(held_out) - np.log(sample.seconds))
        self._forest: RandomForestRegressor | None = None
        self._least = 0.0
        difficulty = np.ones(len(sample))
        if len(sample) >= FEWEST_FOR_DIFFICULTY and errors.max() > 0:
            self._forest = RandomForestRegressor(
                200, min_samples_leaf=RUNS_PER_LEAF, oob_score=True, random_state=seed
            ).fit(logarithms(sample.values), errors)
            # The bound keeps the score of a run with tiny predicted difficulty finite.
            self._least = LEAST_DIFFICULTY * float(np.median(self._forest.oob_prediction_))
            difficulty = np.maximum(self._forest.oob_prediction_, self._least)
        self._scores = np.sort(errors / difficulty)
        self._levels: LevelErrors | None = None
        if self._forest is not None and refit is not None:
            self._levels = LevelErrors.of(sample, refit, self._score, self._of_level(LEVEL))

    def limits(self, values: Floats, predicted: Floats, level: float = LEVEL) -> RuntimeLimits:
        """Limits for rows of features and their predicted seconds.

        Infinite for fewer than level / (1 - level) runs, 19 at 95 %.
        """
        check_level(level)
        reach = self._of_level(level) * self._difficulty(values)
        if self._levels is not None:
            reach *= self._levels.factors(values)
        return RuntimeLimits(predicted / np.exp(reach), predicted * np.exp(reach))

    def _of_level(self, level: float) -> float:
        rank = math.ceil((len(self._scores) + 1) * level)
        return float(self._scores[rank - 1]) if rank <= len(self._scores) else math.inf

    def _difficulty(self, values: Floats) -> Floats:
        if self._forest is None:
            return np.ones(len(values))
        return np.asarray(np.maximum(self._forest.predict(logarithms(values)), self._least))

    def _score(self, sample: Sample, predicted: Floats) -> Floats:
        return np.asarray(np.abs(np.log(predicted / sample.seconds)) / self._difficulty(sample.values))
