"""Barograph's model of features: learners of the logarithm, weighted by their errors on held-out runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls
from sklearn.model_selection import KFold

from barograph_modeler.features.estimators.learners import LEARNERS, Maker, RuntimeLearner
from barograph_modeler.features.sample import FEWEST, Sample
from barograph_modeler.maxima.sample import Floats

FOLDS: Final = 5
MEMBERS: Final = tuple(maker for maker in LEARNERS if maker.name in ("trees-log", "boosting-log", "svr-log"))
_SUM_TO_ONE: Final = 1e3
"""Weight of the equation for the sum of the weights, relative to the equation of one run."""


class Stack:
    """Weighted geometric mean of its members' predictions; the weights are at least 0, with sum 1.

    Trees are robust against irrelevant features, boosting resolves many runs, support vectors give smooth surfaces.
    Their errors differ by a factor of two between programs, so weights are fitted to held-out predictions.
    weights: by member, once fitted. held_out: predicted seconds of each training run, by members not fitted to it.
    """

    def __init__(self, members: Sequence[Maker] = MEMBERS, seed: int = 0) -> None:
        self._makers = members
        self._seed = seed
        self._members: list[tuple[float, RuntimeLearner]] = []
        self.weights: dict[str, float] = {}
        self.held_out: Floats = np.empty(0)

    def fit(self, sample: Sample) -> Self:
        """Fit to at least FEWEST runs."""
        logs = np.log(np.column_stack([held_out(maker, sample, self._seed) for maker in self._makers]))
        equations = np.vstack([logs, np.full(logs.shape[1], _SUM_TO_ONE)])
        weights = nnls(equations, np.append(np.log(sample.seconds), _SUM_TO_ONE))[0]
        weights /= weights.sum()
        self.held_out = np.exp(logs @ weights)
        self.weights = {maker.name: float(weight) for maker, weight in zip(self._makers, weights, strict=True)}
        self._members = self._fitted(sample)
        return self

    def refitted(self, sample: Sample) -> Callable[[Floats], Floats]:
        """Predicted seconds by the members fitted to other runs, with the weights that they have here."""
        members = self._fitted(sample)
        return lambda values: _mean(members, values)

    def _fitted(self, sample: Sample) -> list[tuple[float, RuntimeLearner]]:
        weights = ((maker, self.weights[maker.name]) for maker in self._makers)
        return [(weight, maker.make(self._seed).fit(sample)) for maker, weight in weights if weight > 0]

    def __getstate__(self) -> dict[str, Any]:
        # The factories cannot be pickled.
        return {name: value for name, value in self.__dict__.items() if name != "_makers"}

    def predict(self, values: Floats) -> Floats:
        """Predicted seconds for each row of features."""
        return _mean(self._members, values)


def _mean(members: Sequence[tuple[float, RuntimeLearner]], values: Floats) -> Floats:
    """The weighted geometric mean of predictions."""
    logs = np.column_stack([np.log(member.predict(values)) for _, member in members])
    return np.asarray(np.exp(logs @ np.array([weight for weight, _ in members])))


def folds(n: int, seed: int) -> list[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Training rows and test rows of FOLDS folds: each of n runs is tested once. Raises ValueError for n < FEWEST."""
    if n < FEWEST:
        raise ValueError(f"{n} runs, expected at least {FEWEST}")
    return list(KFold(FOLDS, shuffle=True, random_state=seed).split(np.empty(n)))


def held_out(maker: Maker, sample: Sample, seed: int) -> Floats:
    """Predicted seconds of each run, by a learner not fitted to it."""
    seconds = np.empty(len(sample))
    for learned, rest in folds(len(sample), seed):
        seconds[rest] = maker.make(seed).fit(sample.select(learned)).predict(sample.values[rest])
    return seconds


STACK: Final = Maker(
    "barograph", "ours: trees-log, boosting-log and svr-log, weighted by held-out error", lambda seed: Stack(seed=seed)
)
