"""Everything that learns runtimes from features: the paper's rivals, and the members of our own stack.

A learner is made for a seed, takes a `Sample` and predicts seconds. Those named `-log` learn the logarithm of the
runtime: errors are then relative, as they are scored, and no runtime is negative.
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
"""Of the fastest run that was learned: what is predicted below that is raised to it, for some learners go below 0."""
SVR_ITERATIONS: Final = 1_000_000
"""Each costs as many operations as there are runs: some ten seconds for thousands of runs."""
PMNF_POWERS: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0)
PMNF_LOGS: Final = (0, 1, 2)


class RuntimeLearner(Protocol):
    """Learns from runs, predicts seconds."""

    def fit(self, sample: Sample) -> Self:
        """Learn from runs."""

    def predict(self, values: Floats) -> Floats:
        """Seconds for each row of features; raises ValueError for one that is not finite."""


class Estimator:
    """A scikit-learn estimator as a learner. stopped: whether it had not converged at its limit of iterations."""

    def __init__(self, make: Callable[[Sample], Any]) -> None:
        self._make = make
        self.stopped = False

    def fit(self, sample: Sample) -> Self:
        """Learn from runs."""
        self._names = sample.names
        self._least = LEAST_SHARE * float(sample.seconds.min())
        # A fit is many small steps: threads that meet after each cost more than they bring, on a busy machine tenfold.
        with threadpool_limits(1), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", ConvergenceWarning)
            self._estimator = self._make(sample).fit(sample.values, sample.seconds)
        # One that stops at its limit is scored as it stands.
        self.stopped = any(issubclass(one.category, ConvergenceWarning) for one in said)
        for one in said:
            if not issubclass(one.category, ConvergenceWarning):
                warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        return self

    def __getstate__(self) -> dict[str, Any]:
        # What was learned can be pickled; what makes estimators cannot.
        return {name: value for name, value in self.__dict__.items() if name != "_make"}

    def predict(self, values: Floats) -> Floats:
        """Seconds for each row of features."""
        check_features(self._names, values)
        predicted: Floats = np.maximum(self._estimator.predict(values), self._least)
        return predicted


class Maker(NamedTuple):
    """A learner by name. make: for a seed."""

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
    # Stopping early takes a tenth of the runs to look at, and of them two at least.
    early = runs > 10
    return _scaled(
        MLPRegressor(hidden_layer_sizes=(128, 64, 32), early_stopping=early, max_iter=500, random_state=seed)
    )


def _pmnf(values: Floats) -> Floats:
    """x^i log2(x)^j of each feature, the terms of the performance model normal form; below 1, x counts as 1."""
    x = np.maximum(values, 1.0)
    return np.hstack([x**i * np.log2(x) ** j for i in PMNF_POWERS for j in PMNF_LOGS if i or j])


def _function(expand: Callable[[Floats], Floats]) -> FunctionTransformer:
    return FunctionTransformer(expand)


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
        lambda seed: Estimator(lambda _: make_pipeline(_function(_pmnf), StandardScaler(), _lasso(seed))),
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
            lambda _: _log(make_pipeline(_function(logarithms), ExtraTreesRegressor(200, random_state=seed)))
        ),
    ),
    Maker(
        "boosting-log",
        "gradient boosting on logarithms of products and ratios",
        lambda seed: Estimator(
            lambda _: _log(
                make_pipeline(
                    _function(ratios),
                    HistGradientBoostingRegressor(max_iter=600, learning_rate=0.05, random_state=seed),
                )
            )
        ),
    ),
    Maker(
        "svr-log",
        "support vectors on logarithms",
        lambda _: Estimator(lambda _: _log(make_pipeline(_function(logarithms), StandardScaler(), _svr()))),
    ),
)
"""All but our own stack, which is made of the last three."""
