"""Models of runtime from regions in the back-test: Barograph's, and the rivals' laws summed over the same parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs
from barograph_modeler.studies.regions.disjoint import with_rest
from barograph_modeler.studies.regions.predictor import PartsPrediction, PartsPredictor
from barograph_modeler.studies.regions.runs import RegionRuns
from barograph_modeler.studies.rivals import extrap, laws, pmnf
from barograph_modeler.studies.rivals.laws import Model, RuntimeCurve
from barograph_modeler.studies.scaling.models import PredictorCurve

OURS: Final = "parts"


class PartsCurve(PredictorCurve):
    """The runtime of one problem from its parts, with prediction intervals."""

    def __init__(self, predictor: PartsPredictor, problem: str) -> None:
        self._parts = predictor
        self._name = problem

    def _row(self, ranks: float, nodes: float, size: float) -> tuple[float, float, float]:
        answer = self.at(ranks, size)
        if answer is None:
            return np.nan, np.nan, np.nan
        return answer.lower_seconds, answer.expected_seconds, answer.upper_seconds

    def at(self, ranks: float, size: float) -> PartsPrediction | None:
        """The prediction; None if it is refused."""
        answer = self._parts.predict(self._name, ranks, size)
        return answer if isinstance(answer, PartsPrediction) else None


def rivals() -> dict[str, Model]:
    """Laws that are also summed over parts, by name."""
    chosen = (*(one for one in laws.MODELS if one.name in ("amdahl-log", "log-linear")), *pmnf.MODELS, *extrap.models())
    return {f"{one.name} of parts": one for one in chosen}


def curves(problems: Mapping[str, RegionRuns], seed: int) -> dict[str, dict[str, RuntimeCurve | str]]:
    """Curves by model and problem: OURS, and each of `rivals`. problems: learned runs."""
    predictor = PartsPredictor(problems)
    found: dict[str, dict[str, RuntimeCurve | str]] = {OURS: {name: PartsCurve(predictor, name) for name in problems}}
    parts = {name: _parts(one, predictor.parts[name]) for name, one in problems.items()}
    for title, model in rivals().items():
        found[title] = {name: _summed(model, some, seed) for name, some in parts.items()}
    return found


def _parts(problem: RegionRuns, names: tuple[str, ...]) -> dict[str, Runs]:
    return {name: problem.part(seconds) for name, seconds in with_rest(problem, names).items()}


def _summed(model: Model, parts: Mapping[str, Runs], seed: int) -> RuntimeCurve | str:
    fitted = model.fit(parts, seed)
    if reasons := [f"{name}: {one}" for name, one in fitted.items() if isinstance(one, str)]:
        return reasons[0]
    known: list[Callable[[Floats, Floats, Floats], Floats]] = [
        one for one in fitted.values() if not isinstance(one, str)
    ]

    def seconds(ranks: Floats, nodes: Floats, size: Floats) -> Floats:
        return np.asarray(np.sum([one(ranks, nodes, size) for one in known], axis=0))

    return seconds
