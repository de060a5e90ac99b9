"""A fitted and back-tested model of one application's features, with prediction limits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np

from barograph_modeler.features.columns import MINIMUM_RUNS, FeatureColumns, UninformativeFeatures, select_features
from barograph_modeler.features.estimators.conformal import Conformal
from barograph_modeler.features.estimators.stack import Stack
from barograph_modeler.features.estimators.trees import importances
from barograph_modeler.forecasts.history import Application, WorkloadPlace
from barograph_modeler.forecasts.library import problem_runs
from barograph_modeler.forecasts.problems import ProblemSpace
from barograph_modeler.forecasts.run import PARAM, FeatureRun, RunFeatures, Value
from barograph_modeler.scaling.answer import Prediction, Refusal
from barograph_modeler.scaling.predictor import fit

SCORED_SHARE: Final = 1 / 3
"""Share of the runs, the newest, on which models of the older runs are back-tested."""
MINIMUM_SCORED: Final = 10
TRAINING_RUNS: Final = MINIMUM_RUNS + MINIMUM_SCORED
APPLICATION: Final = Application("", "")
"""The name that scaling has of the application here."""
LEAST_ANSWERED: Final = 0.5
"""Share of the scored runs that a model must predict."""


class FeaturePrediction(NamedTuple):
    """Seconds; the limits hold 95 %. limit: exceeded with the requested risk; infinite if there are too few runs."""

    lower: float
    expected: float
    upper: float
    limit: float


class Backtest(NamedTuple):
    """Errors are means of abs(log(predicted / actual)) over later runs that were not in the training data.

    scored: runs that both models predicted; if scaling predicted fewer than half, those predicted from features.
    scaling_error: NaN in that case.
    """

    scored: int
    error: float
    scaling_error: float

    @property
    def chosen(self) -> Literal["features", "scaling"]:
        """The model with the smaller error."""
        return "scaling" if math.isnan(self.error) or self.error >= self.scaling_error else "features"


@dataclass(frozen=True)
class FeatureModel:
    """version: digest of the training data. importance: by feature, with sum 1. runs: number of training runs."""

    version: str
    columns: FeatureColumns
    importance: Mapping[str, float]
    runs: int
    backtest: Backtest
    stack: Stack = field(repr=False)
    conformal: Conformal = field(repr=False)

    def predict(self, values: Mapping[str, Value], risk: float = 0.01) -> FeaturePrediction | Refusal:
        """Predict the runtime. Refuses if features are missing or outside of the training data."""
        if missing := self.columns.missing(values):
            return Refusal(f"{len(missing)} of {len(self.columns.names)} features are missing: {', '.join(missing)}")
        if outside := self.columns.outside(values):
            return Refusal(f"no run has been there: {'; '.join(outside)}")
        return self._expected(values, risk)

    def _expected(self, values: Mapping[str, Value], risk: float) -> FeaturePrediction:
        row = self.columns.row(values)
        predicted = self.stack.predict(row)
        limits = self.conformal.limits(row, predicted)
        # Half of the runs outside of central limits lie above them.
        limit = self.conformal.limits(row, predicted, 1 - 2 * risk).upper
        return FeaturePrediction(*(float(one[0]) for one in (limits.lower, predicted, limits.upper, limit)))


def learn(runs: Sequence[FeatureRun], *, seed: int = 0) -> FeatureModel:
    """Fit a model to runs, newest last, and back-test it on the newest. Raises UninformativeFeatures."""
    if len(runs) < TRAINING_RUNS:
        raise UninformativeFeatures(f"{len(runs)} runs, expected at least {TRAINING_RUNS}")
    scored = max(round(SCORED_SHARE * len(runs)), MINIMUM_SCORED)
    return _learned(runs, back_test(runs[:-scored], runs[-scored:], seed=seed), seed)


def back_test(older: Sequence[FeatureRun], newer: Sequence[FeatureRun], *, seed: int = 0) -> Backtest:
    """Errors of models of features and of scaling, fitted to the older runs, on the newer ones."""
    model, predictor = _learned(older, Backtest(0, math.nan, math.nan), seed), _Scaling(older)
    errors = np.array([(_error_of(model, run), predictor.error(run)) for run in newer])
    answered, scaled = ~np.isnan(errors[:, 0]), ~np.isnan(errors[:, 1])
    if answered.mean() < LEAST_ANSWERED:
        return Backtest(0, math.nan, math.nan)
    both = answered & scaled
    if scaled.mean() < LEAST_ANSWERED or not both.any():
        return Backtest(int(answered.sum()), float(errors[answered, 0].mean()), math.nan)
    return Backtest(int(both.sum()), *(float(error) for error in errors[both].mean(axis=0)))


def _learned(runs: Sequence[FeatureRun], backtest: Backtest, seed: int) -> FeatureModel:
    columns, sample = select_features(runs, seed=seed)
    stack = Stack(seed=seed).fit(sample)
    weights = importances(sample, seed=seed)
    return FeatureModel(
        version=hashlib.blake2b(repr((columns.names, sample.seconds.tolist())).encode(), digest_size=4).hexdigest(),
        columns=columns,
        importance={name: float(weight) for name, weight in zip(sample.names, weights, strict=True)},
        runs=len(sample),
        backtest=backtest,
        stack=stack,
        conformal=Conformal(sample, stack.held_out, seed=seed, refit=stack.refitted),
    )


class _Scaling:
    """The prediction by scales and sizes that the service makes, fitted to some runs."""

    def __init__(self, runs: Sequence[FeatureRun]) -> None:
        known = [(_place(run.features), [run.runtime_seconds]) for run in runs if run.features.ranks >= 1]
        self._space = ProblemSpace.of(APPLICATION, [(place, seconds) for place, (seconds,) in known])
        self._predictor = fit(problem_runs(self._space, known))

    def error(self, run: FeatureRun) -> float:
        """Of the logarithm; NaN without a prediction."""
        if run.features.ranks < 1:
            return math.nan
        problem = self._space.place(place := _place(run.features))
        answer = self._predictor.predict(problem.name, place.ranks, place.known_nodes, problem.size)
        if not isinstance(answer, Prediction):
            return math.nan
        return abs(math.log(answer.expected_seconds / run.runtime_seconds))


def _place(features: RunFeatures) -> WorkloadPlace:
    params = {name.removeprefix(PARAM): str(one) for name, one in features.values.items() if name.startswith(PARAM)}
    return WorkloadPlace("", APPLICATION, tuple(sorted(params.items())), features.ranks, features.nodes)


def _error_of(model: FeatureModel, run: FeatureRun) -> float:
    answer = model.predict(run.features.values)
    return math.nan if isinstance(answer, Refusal) else abs(math.log(answer.expected / run.runtime_seconds))
