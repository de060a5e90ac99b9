"""Predictors of what the time of the problems of an application consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from barograph_modeler.forecasts.history import WorkloadPlace
from barograph_modeler.forecasts.parts.history import PARTS, RunParts
from barograph_modeler.forecasts.problems import ProblemSpace
from barograph_modeler.parts.predictor import PartsPredictor
from barograph_modeler.parts.runs import RegionRuns
from barograph_modeler.scaling.history import Runs

MIN_SCALES: Final = 3
MAX_PROBLEMS: Final = 8
"""Newest problems of an application whose parts are fitted."""


def fit_parts(space: ProblemSpace, known: Mapping[WorkloadPlace, Sequence[RunParts]]) -> PartsPredictor | None:
    """A predictor of the problems whose parts are known at MIN_SCALES scales; None without any.

    known: workloads, those run last at the end.
    """
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
    return PartsPredictor(dict(list(problems.items())[-MAX_PROBLEMS:])) if problems else None
