"""Transfer of a model of one machine to another with few runs there (Sun et al. 2020, section 2.5)."""

from __future__ import annotations

from typing import Final, Self

import numpy as np
from sklearn.linear_model import RidgeCV

from barograph_lab.studies.features.selected import SelectedTrees
from barograph_modeler.features.estimators.expansion import logarithms
from barograph_modeler.features.estimators.learners import LEARNERS, Maker, RuntimeLearner
from barograph_modeler.features.estimators.stack import STACK, Stack
from barograph_modeler.features.estimators.trees import Trees
from barograph_modeler.features.sample import Sample
from barograph_modeler.maxima.sample import Floats

TRANSFERS: Final = {
    "transfer": "the paper's h(f_s(x), x), f_s our stack",
    "transfer-forest": "the paper's h(f_s(x), x), f_s the paper's forest on polynomials",
    "ratio": "target over source time, by ridge regression of its logarithm",
    "barograph-transfer": "ours: transfer, ratio and trees-log, weighted by held-out error",
}
PREDICTED: Final = "seconds predicted on the source"


class Transfer:
    """The paper's h(f_s(Phi(x)), x), equation 5: trees that predict target seconds from source seconds and features."""

    def __init__(self, source: RuntimeLearner, seed: int = 0) -> None:
        self._source = source
        self._trees = Trees(1, seed=seed)

    def fit(self, sample: Sample) -> Self:
        """Learn from runs on the target."""
        self._trees.fit(Sample((PREDICTED, *sample.names), self._extend(sample.values), sample.seconds))
        return self

    def predict(self, values: Floats) -> Floats:
        """Seconds on the target for each row of features."""
        return self._trees.predict(self._extend(values))

    def _extend(self, values: Floats) -> Floats:
        return np.column_stack([self._source.predict(values), values])


class RatioTransfer:
    """Target over source seconds by ridge regression of the logarithm: a constant plus an effect of the features.

    Machines differ mostly by a constant factor, which few runs determine; the penalty limits its dependence on features
    to what the runs support.
    """

    def __init__(self, source: RuntimeLearner) -> None:
        self._source = source

    def fit(self, sample: Sample) -> Self:
        """Learn from runs on the target."""
        x = self._columns(sample.values)
        self._middle, self._scale = x.mean(axis=0), np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
        ratios = np.log(sample.seconds) - np.log(self._source.predict(sample.values))
        self._ridge = RidgeCV(np.logspace(-2, 4, 13)).fit((x - self._middle) / self._scale, ratios)
        return self

    def predict(self, values: Floats) -> Floats:
        """Seconds on the target for each row of features."""
        # Limited to the range of the learned runs: beyond it the ratio is that of the nearest edge.
        x = np.clip((self._columns(values) - self._middle) / self._scale, -3, 3)
        predicted: Floats = np.exp(np.log(self._source.predict(values)) + self._ridge.predict(x))
        return predicted

    def _columns(self, values: Floats) -> Floats:
        return np.column_stack([np.log(self._source.predict(values)), logarithms(values)])


def transfer_makers(source: Sample, seed: int) -> tuple[Maker, ...]:
    """The learners of TRANSFERS, which share models of the source: our stack and the paper's forest."""
    model, forest = STACK.make(seed).fit(source), SelectedTrees(seed=seed).fit(source)
    paper = Maker("transfer", TRANSFERS["transfer"], lambda seed: Transfer(model, seed))
    forests = Maker("transfer-forest", TRANSFERS["transfer-forest"], lambda seed: Transfer(forest, seed))
    ratio = Maker("ratio", TRANSFERS["ratio"], lambda _: RatioTransfer(model))
    alone = next(maker for maker in LEARNERS if maker.name == "trees-log")
    name = "barograph-transfer"
    return paper, forests, ratio, Maker(name, TRANSFERS[name], lambda seed: Stack((paper, ratio, alone), seed))
