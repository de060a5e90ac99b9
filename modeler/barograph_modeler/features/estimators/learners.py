"""Learners of runtimes from features: the rivals in the paper, and the members of Barograph's stack.

A learner is made with a seed, fitted to a `Sample`, and predicts seconds. Those named `-log` are fitted to the
logarithm of the runtime: their errors are relative, and no prediction is negative.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LassoCV
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler
from sklearn.svm import SVR
from threadpoolctl import threadpool_limits

from barograph_modeler.features.estimators.expansion import logarithms, ratios
from barograph_modeler.features.estimators.trees import WIDEST_EXPANSION, Trees, expanded_columns
from barograph_modeler.features.sample import Sample, check_features
from barograph_modeler.maxima.sample import Floats

LEAST_SHARE: Final = 0.1
"""Lower bound of predictions, as a share of the fastest training run: some learners predict negative values."""
SVR_ITERATIONS: Final = 1_000_000
"""An iteration costs one operation per run: some ten seconds in total for thousands of runs."""
PMNF_POWERS: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
PMNF_LOGS: Final = (0, 1, 2)


class RuntimeLearner(Protocol):
    """A regressor of runtimes."""

    def fit(self, sample: Sample) -> Self:
        """Fit to a sample."""

    def predict(self, values: Floats) -> Floats:
        """Predicted seconds for each row of features. Raises ValueError for values not finite."""


class Estimator:
    """A scikit-learn estimator as a learner. stopped: whether it reached its limit of iterations."""

    def __init__(self, make: Callable[[Sample], Any]) -> None:
        self._make = make
        self.stopped = False

    def fit(self, sample: Sample) -> Self:
        """Fit to a sample."""
        self._names = sample.names
        self._least = LEAST_SHARE * float(sample.seconds.min())
        # A fit is many small steps: synchronising threads after each costs more than it saves, tenfold under load.
        with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            self._estimator = self._make(sample).fit(sample.values, sample.seconds)
        # An estimator that has not converged is still used.
        self.stopped = any(issubclass(one.category, ConvergenceWarning) for one in caught)
        for one in caught:
            if not issubclass(one.category, ConvergenceWarning):
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        return self

    def __getstate__(self) -> dict[str, Any]:
        # The factory cannot be pickled.
        return {name: value for name, value in self.__dict__.items() if name != "_make"}

    def predict(self, values: Floats) -> Floats:
        """Predicted seconds for each row of features."""
        check_features(self._names, values)
        predicted: Floats = np.maximum(self._estimator.predict(values), self._least)
        return predicted


class Maker(NamedTuple):
    """A named factory of learners. make: takes the seed."""

    name: str
    help: str
    make: Callable[[int], RuntimeLearner]


def _polynomial(sample: Sample) -> PolynomialFeatures:
    order = 3
    while order > 1 and expanded_columns(len(sample.names), order) > WIDEST_EXPANSION:
        order -= 1
    return PolynomialFeatures(order, include_bias=False)


def _lasso(seed: int) -> LassoCV:
    return LassoCV(cv=3, random_state=seed, max_iter=5_000, tol=1e-3)


def _log(estimator: Any) -> TransformedTargetRegressor:
    return TransformedTargetRegressor(estimator, func=np.log, inverse_func=np.exp)


def _scaled(estimator: Any) -> TransformedTargetRegressor:
    return TransformedTargetRegressor(estimator, transformer=StandardScaler())


def _svr() -> TransformedTargetRegressor:
    return _scaled(SVR(C=10.0, epsilon=0.01, max_iter=SVR_ITERATIONS))


def _network(seed: int, runs: int) -> TransformedTargetRegressor:
    # Early stopping validates on a tenth of the runs, which must be at least two.
    early = runs > 10
    return _scaled(
        MLPRegressor(hidden_layer_sizes=(128, 64, 32), early_stopping=early, max_iter=500, random_state=seed)
    )


def _pmnf(values: Floats) -> Floats:
    """x^i log2(x)^j of each feature, the terms of the performance model normal form; x below 1 is replaced by 1."""
    x = np.maximum(values, 1.0)
    return np.hstack([x**i * np.log2(x) ** j for i in PMNF_POWERS for j in PMNF_LOGS if i or j])


LEARNERS: Final = (
    Maker(
        "lasso",
        "LASSO on standardised features",
        lambda seed: Estimator(lambda _: make_pipeline(StandardScaler(), _lasso(seed))),
    ),
    Maker(
        "lasso-poly",
        "LASSO on their polynomials of order 3",
        lambda seed: Estimator(
            lambda s: make_pipeline(StandardScaler(), _polynomial(s), StandardScaler(), _lasso(seed))
        ),
    ),
    Maker("svr", "support vectors, rbf kernel", lambda _: Estimator(lambda _: make_pipeline(StandardScaler(), _svr()))),
    Maker(
        "svr-poly",
        "support vectors on polynomials",
        lambda _: Estimator(lambda s: make_pipeline(StandardScaler(), _polynomial(s), StandardScaler(), _svr())),
    ),
    Maker(
        "pmnf",
        "LASSO over the terms of the performance model normal form",
        lambda seed: Estimator(lambda _: make_pipeline(FunctionTransformer(_pmnf), StandardScaler(), _lasso(seed))),
    ),
    Maker(
        "network",
        "multi-layer perceptron of 128, 64, 32 units, after PerfNet",
        lambda seed: Estimator(lambda sample: make_pipeline(StandardScaler(), _network(seed, len(sample)))),
    ),
    Maker("forest", "extremely randomized trees on raw features", lambda seed: Trees(1, seed=seed)),
    Maker("trees", "the paper's: extremely randomized trees on polynomials of order 3", lambda seed: Trees(seed=seed)),
    Maker(
        "trees-log",
        "extremely randomized trees, logarithms of features and runtime",
        lambda seed: Estimator(
            lambda _: _log(make_pipeline(FunctionTransformer(logarithms), ExtraTreesRegressor(200, random_state=seed)))
        ),
    ),
    Maker(
        "boosting-log",
        "gradient boosting on logarithms of products and ratios",
        lambda seed: Estimator(
            lambda _: _log(
                make_pipeline(
                    FunctionTransformer(ratios),
                    HistGradientBoostingRegressor(max_iter=600, learning_rate=0.05, random_state=seed),
                )
            )
        ),
    ),
    Maker(
        "svr-log",
        "support vectors on logarithms",
        lambda _: Estimator(lambda _: _log(make_pipeline(FunctionTransformer(logarithms), StandardScaler(), _svr()))),
    ),
)
"""All learners but the stack, whose members are the last three."""
