"""What the runtimes of the problems of an application consist of: shares of it, as measured at the nearest scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self

import numpy as np

from barograph_modeler.forecasts.history import WorkloadPlace
from barograph_modeler.forecasts.parts.phased_run import PhasedRun
from barograph_modeler.forecasts.problems import ProblemSpace

PARTS: Final = (
    "own work",
    "waiting for the slowest rank",
    "point-to-point",
    "collectives",
    "start-up, end and what was not measured",
)
MIN_COVERED: Final = 0.5
"""Share of a run's time that its classes must have."""
MAX_RUNS: Final = 64
"""Newest runs of a problem whose parts are kept."""
Size = tuple[float, ...]


class _SizedRun(NamedTuple):
    size: Size
    ranks: int
    shares: tuple[float, ...]
    """By PARTS."""


class ProblemParts:
    """The parts of the problems of an application. problems: measured runs by problem, the newest last. Never modified,
    so that other threads may ask."""

    def __init__(self, problems: Mapping[str, Sequence[_SizedRun]]) -> None:
        self._problems = problems

    @classmethod
    def of(cls, space: ProblemSpace, known: Mapping[WorkloadPlace, Sequence[PhasedRun]]) -> Self:
        """The parts of the measured runs of workloads, of which those run last are at the end."""
        found: dict[str, list[_SizedRun]] = {}
        for place, runs in known.items():
            problem, size = space.of_run(place)
            sized = (_SizedRun(size, run.ranks, shares) for run in runs if (shares := _shares(run)))
            found.setdefault(problem, []).extend(sized)
        return cls({problem: runs[-MAX_RUNS:] for problem, runs in found.items() if runs})

    def shares(self, problem: str, ranks: int, size: Size | None) -> dict[str, float]:
        """The mean shares at the measured scale nearest to `ranks`, largest first; empty where nothing was measured.

        size: runs of it count where there are some, else those of all sizes.
        """
        runs = self._problems.get(problem, ())
        runs = [run for run in runs if run.size == size] or runs
        if not runs:
            return {}
        nearest = min(runs, key=lambda run: abs(math.log(run.ranks / ranks))).ranks
        means = np.mean([run.shares for run in runs if run.ranks == nearest], axis=0).tolist()
        return dict(sorted(zip(PARTS, means, strict=True), key=lambda part: -part[1]))


def _shares(run: PhasedRun) -> tuple[float, ...] | None:
    """The shares of a run by PARTS; None where its classes have little of its time."""
    phases = [
        phase.count * np.array([phase.own, max(phase.slowest - phase.own, 0.0), phase.exchange, phase.collective])
        for phase in run.phases().values()
    ]
    seconds = np.sum(phases, axis=0)
    if seconds.sum() < MIN_COVERED * run.seconds:
        return None
    every = np.append(seconds, max(run.seconds - float(seconds.sum()), 0.0))
    return tuple((every / every.sum()).tolist())
