"""Intervals that hold the share of new runs that they promise, whatever the learner."""

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
"""Runs from which on errors are taken to differ from place to place; before that there is one width for all."""
LEAST_DIFFICULTY: Final = 0.1
"""Of the median one."""


class RuntimeLimits(NamedTuple):
    """n lower and n upper limits, in seconds."""

    lower: Floats
    upper: Floats


class Conformal:
    """Limits around predictions, from the errors on held-out runs.

    The score of a run is |log(predicted / observed)| over its difficulty: the size of error that a forest expects
    there, learned on the other runs' errors (out of bag). A new run from where the learned ones came falls inside with
    probability `level`, up to what separates learners that have seen all runs from those that have seen four fifths.

    sample: the runs. held_out: seconds for each, by learners that had not learned it.
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
            # No place is so easy that a run there counts as arbitrarily strange.
            self._least = LEAST_DIFFICULTY * float(np.median(self._forest.oob_prediction_))
            difficulty = np.maximum(self._forest.oob_prediction_, self._least)
        self._scores = np.sort(errors / difficulty)

    def limits(self, values: Floats, predicted: Floats, level: float = LEVEL) -> RuntimeLimits:
        """Limits for rows of features and the seconds predicted for them.

        Infinite where `level` asks for more runs than there are: below level / (1 - level), 19 at 95 %.
        """
        check_level(level)
        rank = math.ceil((len(self._scores) + 1) * level)
        score = self._scores[rank - 1] if rank <= len(self._scores) else math.inf
        difficulty = np.ones(len(values))
        if self._forest is not None:
            difficulty = np.maximum(self._forest.predict(logarithms(values)), self._least)
        reach = np.exp(score * difficulty)
        return RuntimeLimits(predicted / reach, predicted * reach)
