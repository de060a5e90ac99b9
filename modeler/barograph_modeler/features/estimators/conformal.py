"""Conformal prediction intervals: they hold their nominal share of new runs, for any learner."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from barograph_modeler.features.estimators.expansion import logarithms
from barograph_modeler.features.sample import Sample
from barograph_modeler.maxima.band import LEVEL, check_level
from barograph_modeler.maxima.sample import Floats

RUNS_PER_LEAF: Final = 10
FEWEST_FOR_DIFFICULTY: Final = 100
"""Fewest runs for which the width depends on the features; with fewer runs it is constant."""
LEAST_DIFFICULTY: Final = 0.1
"""Lower bound of the difficulty, as a share of its median."""


class RuntimeLimits(NamedTuple):
    """n lower and n upper limits, in seconds."""

    lower: Floats
    upper: Floats


class Conformal:
    """Limits around predictions, from the errors on held-out runs.

    The score of a run is |log(predicted / observed)| over its difficulty, the error that a forest predicts for its
    features out of bag. An exchangeable new run falls inside with probability `level`, up to the difference between
    learners fitted to all runs and to four fifths of them.

    held_out: predicted seconds of each run of the sample, by learners not fitted to it.
    """

    def __init__(self, sample: Sample, held_out: Floats, *, seed: int = 0) -> None:
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

    def limits(self, values: Floats, predicted: Floats, level: float = LEVEL) -> RuntimeLimits:
        """Limits for rows of features and their predicted seconds.

        Infinite for fewer than level / (1 - level) runs, 19 at 95 %.
        """
        check_level(level)
        rank = math.ceil((len(self._scores) + 1) * level)
        score = self._scores[rank - 1] if rank <= len(self._scores) else math.inf
        difficulty = np.ones(len(values))
        if self._forest is not None:
            difficulty = np.maximum(self._forest.predict(logarithms(values)), self._least)
        reach = np.exp(score * difficulty)
        return RuntimeLimits(predicted / reach, predicted * reach)
