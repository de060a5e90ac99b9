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
from barograph_modeler.features.estimators.trees import Trees, expansion_order
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
    """A scikit-learn estimator as a learner, in one thread. stopped: whether it reached its limit of iterations.

    Fits and predictions are many small steps: threads that wait for each other after each cost more than they save.
    """

    def __init__(self, make: Callable[[Sample], Any]) -> None:
        self._make = make
        self.stopped = False

    def fit(self, sample: Sample) -> Self:
        """Fit to a sample."""
        self._names = sample.names
        self._least = LEAST_SHARE * float(sample.seconds.min())
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
        with threadpool_limits(1):
            predicted: Floats = np.maximum(self._estimator.predict(values), self._least)
        return predicted


class Maker(NamedTuple):
    """A named factory of learners. make: takes the seed."""

    name: str
    help: str
    make: Callable[[int], RuntimeLearner]


def _polynomial(sample: Sample) -> list[Any]:
    order = expansion_order(len(sample.names), 3)
    return [StandardScaler(), PolynomialFeatures(order, include_bias=False), StandardScaler()]


def _lasso(seed: int) -> LassoCV:
    return LassoCV(cv=3, random_state=seed, max_iter=5_000, tol=1e-3)


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


def _maker(name: str, text: str, steps: Callable[[Sample, int], list[Any]], *, log: bool = False) -> Maker:
    """A pipeline of the steps made for a sample and a seed. log: whether it is fitted to the logarithm of runtimes."""

    def make(sample: Sample, seed: int) -> Any:
        pipeline = make_pipeline(*steps(sample, seed))
        return TransformedTargetRegressor(pipeline, func=np.log, inverse_func=np.exp) if log else pipeline

    return Maker(name, text, lambda seed: Estimator(lambda sample: make(sample, seed)))


LEARNERS: Final = (
    _maker("lasso", "LASSO on standardised features", lambda _, seed: [StandardScaler(), _lasso(seed)]),
    _maker("lasso-poly", "LASSO on their polynomials of order 3", lambda s, seed: [*_polynomial(s), _lasso(seed)]),
    _maker("svr", "support vectors, rbf kernel", lambda _, __: [StandardScaler(), _svr()]),
    _maker("svr-poly", "support vectors on polynomials", lambda s, _: [*_polynomial(s), _svr()]),
    _maker(
        "pmnf",
        "LASSO over the terms of the performance model normal form",
        lambda _, seed: [FunctionTransformer(_pmnf), StandardScaler(), _lasso(seed)],
    ),
    _maker(
        "network",
        "multi-layer perceptron of 128, 64, 32 units, after PerfNet",
        lambda s, seed: [StandardScaler(), _network(seed, len(s))],
    ),
    Maker("forest", "extremely randomized trees on raw features", lambda seed: Trees(1, seed=seed)),
    Maker("trees", "the paper's: extremely randomized trees on polynomials of order 3", lambda seed: Trees(seed=seed)),
    _maker(
        "trees-log",
        "extremely randomized trees, logarithms of features and runtime",
        lambda _, seed: [FunctionTransformer(logarithms), ExtraTreesRegressor(200, random_state=seed)],
        log=True,
    ),
    _maker(
        "boosting-log",
        "gradient boosting on logarithms of products and ratios",
        lambda _, seed: [
            FunctionTransformer(ratios),
            HistGradientBoostingRegressor(max_iter=600, learning_rate=0.05, random_state=seed),
        ],
        log=True,
    ),
    _maker(
        "svr-log",
        "support vectors on logarithms",
        lambda _, __: [FunctionTransformer(logarithms), StandardScaler(), _svr()],
        log=True,
    ),
)
"""All learners but the stack, whose members are the last three."""
