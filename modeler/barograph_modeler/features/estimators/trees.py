"""The paper's model: extremely randomized trees on standardised features, expanded to polynomials.

Sun, Sun, Zhan, Zhang, Chen: Automated Performance Modeling of HPC Applications Using Machine Learning (2020).
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from barograph_modeler.features.sample import Sample, check_features
from barograph_modeler.maxima.sample import Floats

TREES: Final = 100
LEAST_VARIANCE: Final = 0.01
"""Variance of a leaf with one run, in seconds squared, as in the paper."""
WIDEST_EXPANSION: Final = 1_000
"""Most columns of an expansion; the paper uses fewer than 20 features, so that order 3 has fewer than 1,771."""


class EnsembleMoments(NamedTuple):
    """Mean and standard deviation of each prediction: n values each, in seconds."""

    mean: Floats
    sigma: Floats


class Trees:
    """The model of the paper's section 2.3, in seconds.

    order: of the polynomial expansion, d >= 1, equation 4; lowered until it has at most WIDEST_EXPANSION columns.
    """

    def __init__(self, order: int = 3, *, trees: int = TREES, seed: int = 0) -> None:
        if order < 1:
            raise ValueError(f"order is {order}, expected at least 1")
        self.order = order
        self._forest = ExtraTreesRegressor(trees, random_state=seed)
        self._names: tuple[str, ...] = ()

    def fit(self, sample: Sample) -> Trees:
        """Fit to a sample."""
        self._names = sample.names
        self.order = expansion_order(len(sample.names), self.order)
        self._expand = make_pipeline(StandardScaler(), PolynomialFeatures(self.order, include_bias=False))
        self._forest.fit(self._expand.fit_transform(sample.values), sample.seconds)
        return self

    def predict(self, values: Floats) -> Floats:
        """Predicted seconds for each row of features."""
        return self.moments(values).mean

    def moments(self, values: Floats) -> EnsembleMoments:
        """Mean and deviation over all trees, by the law of total variance (equations 6 and 7).

        sigma^2 = mean(mu_i^2 + sigma_i^2) - mu^2: the paper prints "- mu", which has another unit.
        """
        check_features(self._names, values)
        x = self._expand.transform(values).astype(np.float32)
        means, squares = np.zeros(len(x)), np.zeros(len(x))
        for tree in self._forest.estimators_:
            leaves = tree.tree_.apply(x)
            mu = tree.tree_.value[leaves, 0, 0]
            alone = tree.tree_.n_node_samples[leaves] == 1
            variance = np.where(alone, LEAST_VARIANCE, tree.tree_.impurity[leaves])
            means += mu
            squares += mu**2 + variance
        mean = means / len(self._forest.estimators_)
        return EnsembleMoments(mean, np.sqrt(np.maximum(squares / len(self._forest.estimators_) - mean**2, 0.0)))


def expanded_columns(features: int, order: int) -> int:
    """Columns of a polynomial expansion, without the constant: C(m + d, d) - 1."""
    return math.comb(features + order, order) - 1


def expansion_order(features: int, order: int) -> int:
    """The largest order, at most `order` and at least 1, whose expansion has at most WIDEST_EXPANSION columns."""
    return next((d for d in range(order, 1, -1) if expanded_columns(features, d) <= WIDEST_EXPANSION), 1)


def importances(sample: Sample, *, trees: int = TREES, seed: int = 0) -> Floats:
    """Importance of each feature, with sum 1, in a forest on the raw features (algorithm 1).

    Reductions of squared error are averaged over trees without normalising each tree as scikit-learn does. All 0 if
    all runtimes are equal.
    """
    forest = ExtraTreesRegressor(trees, random_state=seed).fit(sample.values, sample.seconds)
    total: Floats = np.mean([tree.tree_.compute_feature_importances(normalize=False) for tree in forest], axis=0)
    return total / total.sum() if total.sum() > 0 else total
