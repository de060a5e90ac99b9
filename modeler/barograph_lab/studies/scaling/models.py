"""Every model of scaling in the back-test: Barograph's predictor, the papers' models, the rivals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from barograph_lab.studies.rivals import extrap, laws, papers
from barograph_lab.studies.rivals.laws import Model, RuntimeCurve
from barograph_modeler.maxima.predictive import SeriesLimits
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.predictor import Prediction, Predictor, fit


class PredictorCurve:
    """The predictor's curve of one problem, with prediction intervals."""

    def __init__(self, predictor: Predictor, problem: str) -> None:
        self._predictor = predictor
        self._problem = problem

    def __call__(self, ranks: Floats, nodes: Floats, size: Floats) -> Floats:
        """Expected seconds; NaN if the predictor refuses."""
        return self._columns(ranks, nodes, size)[:, 1]

    def limits(self, ranks: Floats, nodes: Floats, size: Floats) -> SeriesLimits:
        """The central 95 % of the predicted seconds, one per row; NaN if the predictor refuses."""
        columns = self._columns(ranks, nodes, size)
        return SeriesLimits(columns[:, 0], columns[:, 2])

    def _columns(self, ranks: Floats, nodes: Floats, size: Floats) -> Floats:
        wanted = np.stack([ranks, nodes, size], axis=1)
        # Repeats share a prediction.
        rows, inverse = np.unique(wanted, axis=0, return_inverse=True)
        return np.array([self._row(*row) for row in rows.tolist()])[inverse.ravel()]

    def _row(self, ranks: float, nodes: float, size: float) -> tuple[float, float, float]:
        answer = self._predictor.predict(self._problem, ranks, None if np.isnan(nodes) else nodes, size)
        if isinstance(answer, Prediction):
            return answer.lower_seconds, answer.expected_seconds, answer.upper_seconds
        return np.nan, np.nan, np.nan


def _forecasts(problems: Mapping[str, Runs], seed: int) -> dict[str, RuntimeCurve | str]:
    predictor = fit(problems, seed=seed)
    return {name: PredictorCurve(predictor, name) for name in problems}


def models() -> dict[str, Model]:
    """All models by name, ours first; with Extra-P if it is installed."""
    ours = Model("barograph", "ours: curves averaged by how well they predicted the larger scales, pooled", _forecasts)
    every = (ours, *laws.MODELS, *extrap.models(), *papers.MODELS)
    return {model.name: model for model in every}
