"""A model of one application's features: fitted, back-tested, and with prediction limits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np

from barograph_modeler.features.columns import FEWEST, FeatureColumns, UninformativeFeatures, select_features
from barograph_modeler.features.estimators.conformal import Conformal
from barograph_modeler.features.estimators.stack import Stack
from barograph_modeler.features.estimators.trees import importances
from barograph_modeler.forecasts.run import FeatureRun, Value
from barograph_modeler.scaling.answer import Prediction, Refusal
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.predictor import Predictor, fit

SCORED_SHARE: Final = 1 / 3
"""Of the runs, the newest, that models of the older ones are scored on."""
FEWEST_SCORED: Final = 10
FEWEST_RUNS: Final = FEWEST + FEWEST_SCORED
LEAST_ANSWERED: Final = 0.5
"""Of the scored runs that a model must have an answer for."""


class FeaturePrediction(NamedTuple):
    """Seconds; the limits hold 95 %. limit: what a run exceeds with the probability asked for; infinite where the runs
    are too few to say."""

    lower: float
    expected: float
    upper: float
    limit: float


class Backtest(NamedTuple):
    """Errors are means of abs(log(predicted / actual)) over runs that the models had not learned, which came later.

    scored: runs that both models had an answer for, or the features alone where scales had one for fewer than half.
    scaling_error: NaN then.
    """

    scored: int
    error: float
    scaling_error: float

    @property
    def chosen(self) -> Literal["features", "scaling"]:
        """Which model is asked."""
        return "scaling" if math.isnan(self.error) or self.error >= self.scaling_error else "features"


@dataclass(frozen=True)
class FeatureModel:
    """version: a digest of what was learned. importance: of each feature used, adding up to 1. runs: learned."""

    version: str
    columns: FeatureColumns
    importance: Mapping[str, float]
    runs: int
    backtest: Backtest
    stack: Stack = field(repr=False)
    conformal: Conformal = field(repr=False)

    def predict(self, values: Mapping[str, Value], risk: float = 0.01) -> FeaturePrediction | Refusal:
        """Seconds for a run with these features. Refused where some are missing, or no run has been there."""
        if missing := self.columns.missing(values):
            return Refusal(f"{len(missing)} of {len(self.columns.names)} features are missing: {', '.join(missing)}")
        if outside := self.columns.outside(values):
            return Refusal(f"no run has been there: {'; '.join(outside)}")
        return self._expected(values, risk)

    def _expected(self, values: Mapping[str, Value], risk: float) -> FeaturePrediction:
        row = self.columns.row(values)
        predicted = self.stack.predict(row)
        limits = self.conformal.limits(row, predicted)
        # Half of what falls outside of central limits lies above them.
        limit = self.conformal.limits(row, predicted, 1 - 2 * risk).upper
        return FeaturePrediction(*(float(one[0]) for one in (limits.lower, predicted, limits.upper, limit)))


def learn(runs: Sequence[FeatureRun], *, seed: int = 0) -> FeatureModel:
    """Learn from runs, the newest last, and back-test on the newest. Raises UninformativeFeatures."""
    if len(runs) < FEWEST_RUNS:
        raise UninformativeFeatures(f"{len(runs)} runs, expected at least {FEWEST_RUNS}")
    scored = max(round(SCORED_SHARE * len(runs)), FEWEST_SCORED)
    return _learned(runs, back_test(runs[:-scored], runs[-scored:], seed=seed), seed)


def back_test(older: Sequence[FeatureRun], newer: Sequence[FeatureRun], *, seed: int = 0) -> Backtest:
    """How well models of features and of scales that have learned the older runs foretell the newer ones."""
    model, predictor = _learned(older, Backtest(0, math.nan, math.nan), seed), _scaling(older)
    errors = np.array([(_error_of(model, run), _scaling_error(predictor, run)) for run in newer])
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
        conformal=Conformal(sample, stack.held_out, seed=seed),
    )


def _scaling(runs: Sequence[FeatureRun]) -> Predictor:
    problems: dict[str, list[FeatureRun]] = {}
    for run in runs:
        if run.known.ranks >= 1:
            problems.setdefault(run.known.problem, []).append(run)
    return fit(
        {
            problem: Runs.of(
                [run.known.ranks for run in those],
                [run.runtime_seconds for run in those],
                nodes=[run.known.nodes if 1 <= run.known.nodes <= run.known.ranks else math.nan for run in those],
            )
            for problem, those in problems.items()
        }
    )


def _error_of(model: FeatureModel, run: FeatureRun) -> float:
    answer = model.predict(run.known.values)
    return math.nan if isinstance(answer, Refusal) else abs(math.log(answer.expected / run.runtime_seconds))


def _scaling_error(predictor: Predictor, run: FeatureRun) -> float:
    if run.known.ranks < 1:
        return math.nan
    answer = predictor.predict(run.known.problem, run.known.ranks)
    if not isinstance(answer, Prediction):
        return math.nan
    return abs(math.log(answer.expected_seconds / run.runtime_seconds))
