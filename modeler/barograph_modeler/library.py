"""The predictors as they are at the moment, for whoever asks: published whole, never changed after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from barograph_modeler.history import Application, Place
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.predictor import Prediction, Predictor, fit

SEEN: Final = 32
"""Workloads of an application, the latest, whose predictions are kept ready for the metrics."""


class Seen(NamedTuple):
    """A workload that has been run, as its application's predictor sees it; seconds. speedup: over the smallest scale
    of its problem that has been run."""

    workload: str
    lower: float
    expected: float
    upper: float
    speedup: float


class Published(NamedTuple):
    """What is known of one application: its predictor, the runs behind it by problem, and its latest workloads."""

    application: Application
    predictor: Predictor
    problems: Mapping[str, Runs]
    seen: Sequence[Seen]


def publish(application: Application, problems: Mapping[str, Runs], places: Sequence[Place], seed: int) -> Published:
    """Learn an application from its runs. places: its workloads, the latest last. seed: of all chance in it."""
    predictor = fit(problems, seed=seed)
    seen = []
    for place in places[-SEEN:]:
        there = predictor.predict(place.problem, place.ranks, place.known_nodes)
        if isinstance(there, Prediction):
            speedup = base(problems[place.problem])[1] / there.expected_seconds
            limits = (there.lower_seconds, there.expected_seconds, there.upper_seconds)
            seen.append(Seen(place.workload, *limits, speedup))
    return Published(application, predictor, problems, seen)


def base(runs: Runs) -> tuple[int, float]:
    """The smallest scale that was run: its ranks, and the median of its runtimes in seconds."""
    ranks = runs.scales[0]
    return int(ranks), float(np.median(runs.seconds[runs.ranks == ranks]))
