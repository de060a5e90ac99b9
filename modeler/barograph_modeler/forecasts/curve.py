"""The scaling curve of a problem: predictions at the scales that were run, and a few beyond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from barograph_agent.protocol.tables import MAX_RANKS
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.predictor import Prediction, Predictor

SCALES: Final = 8
"""Largest scales that were run, at most this many."""
DOUBLINGS: Final = 3
"""Scales beyond them, each double the previous one."""


class Point(NamedTuple):
    """The prediction at one scale, in seconds."""

    ranks: int
    lower: float
    expected: float
    upper: float


class ScalingCurve(NamedTuple):
    """points: in order of ranks, without refused predictions. medians: ranks and median seconds of the runs."""

    problem: str
    points: Sequence[Point]
    medians: Sequence[tuple[int, float]]


def scaling_curve(predictor: Predictor, label: str, problem: str, size: tuple[float, ...], runs: Runs) -> ScalingCurve:
    """The curve of a problem that has been run, at one size or, where the size grew with the ranks, along that series.

    label: the problem with its size. runs: of all sizes.
    """
    series = isinstance(predictor.default_size(problem, float(runs.scales[-1])), tuple)
    known = runs if series else runs.of_size(size)
    run = [int(ranks) for ranks in known.scales[-SCALES:]]
    beyond = [run[-1] * 2**step for step in range(1, DOUBLINGS + 1)]
    points = []
    for ranks in [*run, *(ranks for ranks in beyond if ranks <= MAX_RANKS)]:
        prediction = predictor.predict(problem, ranks, size=None if series else size)
        if isinstance(prediction, Prediction):
            points.append(Point(ranks, prediction.lower_seconds, prediction.expected_seconds, prediction.upper_seconds))
    medians = [(ranks, float(np.median(known.seconds[known.ranks == ranks]))) for ranks in run]
    grows = series and len(np.unique(runs.sizes, axis=0)) > 1
    return ScalingCurve(problem if grows else label, points, medians)
