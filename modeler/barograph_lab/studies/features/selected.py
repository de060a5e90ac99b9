"""The paper's trees for many features: the most important ones are selected, then expanded to order 3.

Sun et al. (2020) reduce the features to fewer than 20 by importance (algorithm 1), so that the expansion to order 3
stays small (section 3.3). `Trees` lowers the order instead where the expansion of all features is too wide.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from barograph_modeler.features.estimators.learners import Maker
from barograph_modeler.features.estimators.trees import EnsembleMoments, Trees, expansion_order, importances
from barograph_modeler.features.sample import Sample, check_features
from barograph_modeler.maxima.sample import Floats

ORDER: Final = 3
MAX_SELECTED: Final = max(count for count in range(1, 64) if expansion_order(count, ORDER) == ORDER)
"""Most features whose expansion to ORDER is not too wide."""


class SelectedTrees(Trees):
    """`Trees` of order 3 on the MAX_SELECTED most important features; on all if there are no more."""

    def __init__(self, *, seed: int = 0) -> None:
        super().__init__(ORDER, seed=seed)
        self._seed = seed
        self._given: tuple[str, ...] = ()

    def fit(self, sample: Sample) -> SelectedTrees:
        """Fit to a sample."""
        self._given = sample.names
        weights = importances(sample, seed=self._seed)
        self._chosen = np.sort(np.argsort(-weights, kind="stable")[:MAX_SELECTED])
        names = tuple(sample.names[at] for at in self._chosen)
        super().fit(Sample(names, sample.values[:, self._chosen], sample.seconds))
        return self

    def moments(self, values: Floats) -> EnsembleMoments:
        """Mean and deviation of each prediction. values: all features of the sample."""
        check_features(self._given, values)
        return super().moments(values[:, self._chosen])


SELECTED: Final = Maker(
    "trees-selected",
    f"the paper's on the {MAX_SELECTED} most important features, polynomials of order {ORDER}",
    lambda seed: SelectedTrees(seed=seed),
)
