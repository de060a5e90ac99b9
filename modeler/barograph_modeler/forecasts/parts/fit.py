"""What the time of the problems of an application consists of at a scale.

Predictors are fitted again after every run, and questions about parts are rare: a fit of the parts takes ten times as
long as one of the totals, so it waits for the first question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from barograph_modeler.forecasts.history import WorkloadPlace
from barograph_modeler.forecasts.parts.history import PARTS, RunParts
from barograph_modeler.forecasts.problems import ProblemSpace
from barograph_modeler.parts.predictor import PartsPrediction, PartsPredictor
from barograph_modeler.parts.runs import RegionRuns
from barograph_modeler.scaling.answer import Refusal
from barograph_modeler.scaling.history import Runs

MIN_SCALES: Final = 3
MAX_PROBLEMS: Final = 8
"""Newest problems of an application whose parts are fitted."""


class ProblemParts:
    """The parts of the problems whose parts are known at MIN_SCALES scales, fitted when they are first asked for.

    problems: runs by problem. Never modified, so that other threads may ask; two that ask first at once both fit.
    """

    def __init__(self, problems: Mapping[str, RegionRuns]) -> None:
        self._problems = problems

    @classmethod
    def of(cls, space: ProblemSpace, known: Mapping[WorkloadPlace, Sequence[RunParts]]) -> Self:
        """The newest MAX_PROBLEMS problems. known: workloads, those run last at the end."""
        rows: dict[str, list[tuple[WorkloadPlace, tuple[float, ...], RunParts]]] = {}
        for place, newest in known.items():
            problem, size = space.of_run(place)
            rows.setdefault(problem, []).extend((place, size, run) for run in newest)
        problems = {}
        for problem, some in rows.items():
            ranks = [place.ranks for place, _, _ in some]
            runs = Runs.of(ranks, [run.seconds for _, _, run in some], size=[size for _, size, _ in some])
            if runs.scales.size >= MIN_SCALES:
                parts = np.array([run.parts for _, _, run in some])
                problems[problem] = RegionRuns(runs, {name: parts[:, i] for i, name in enumerate(PARTS.values())})
        return cls(dict(list(problems.items())[-MAX_PROBLEMS:]))

    def __contains__(self, problem: str) -> bool:
        return problem in self._problems

    def predict(self, problem: str, ranks: float, size: npt.ArrayLike) -> PartsPrediction | Refusal:
        """As PartsPredictor.predict, for a problem that is contained."""
        return self._predictor.predict(problem, ranks, size)

    @cached_property
    def _predictor(self) -> PartsPredictor:
        return PartsPredictor(self._problems)
