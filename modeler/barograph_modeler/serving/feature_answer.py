"""Answers of models of features: the fields of `answer.py` that apply."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barograph_modeler.features.forecaster import FeatureForecaster
from barograph_modeler.features.library import FEWEST_RUNS
from barograph_modeler.forecasts.run import feature_values
from barograph_modeler.scaling.answer import Refusal
from barograph_modeler.serving.answer import LEVEL, UnknownApplication, find_application, round_up_limit
from barograph_modeler.serving.question import Question

if TYPE_CHECKING:
    from barograph_modeler.features.model import FeatureModel
    from barograph_modeler.forecasts.history import Application


def find_model(features: FeatureForecaster, question: Question) -> tuple[Application, FeatureModel]:
    """The model of the application in question. Raises UnknownApplication and BadQuestion."""
    try:
        return find_application(features.library.published, question)
    except UnknownApplication:
        runs = max((seen for name, seen in features.history.seen.items() if name.app == question.app), default=0)
        raise UnknownApplication(
            f"there is no model of features of {question.app!r}: {runs} finished runs with features are known,"
            f" expected {FEWEST_RUNS}, and features that differ between them and are known early"
        ) from None


def answer_of_features(application: Application, model: FeatureModel, question: Question) -> dict[str, Any]:
    """The prediction, with missing and unused features."""
    values = feature_values(question.ranks, question.nodes or 0, question.params, question.features)
    if question.nodes is None:
        del values["nodes"]
    reply: dict[str, Any] = {
        "cluster": application.cluster,
        "app": application.app,
        "params": dict(question.params),
        "ranks": question.ranks,
        "nodes": question.nodes,
        "features": dict(question.features),
        "missing": model.columns.missing(values),
        "unused": sorted(question.features.keys() - set(model.columns.names)),
        "basis": _basis(model),
        "others": [],
    }
    expected = model.predict(values, question.risk)
    if isinstance(expected, Refusal):
        return reply | {"refusal": expected.reason}
    limit: Mapping[str, Any] | None = None
    if math.isfinite(expected.limit):
        limit = {"risk": question.risk, "seconds": expected.limit, "request_seconds": round_up_limit(expected.limit)}
    return reply | {
        "refusal": None,
        "expected_seconds": expected.expected,
        "lower_seconds": expected.lower,
        "upper_seconds": expected.upper,
        "level": LEVEL,
        "limit": limit,
        "speedup": None,
    }


def _basis(model: FeatureModel) -> dict[str, Any]:
    test = model.backtest
    return {
        "version": model.version,
        "runs": model.runs,
        "features": dict(model.importance),
        "scored": test.scored,
        "error": None if math.isnan(test.error) else test.error,
        "scaling_error": None if math.isnan(test.scaling_error) else test.scaling_error,
        "chosen": test.chosen,
    }
