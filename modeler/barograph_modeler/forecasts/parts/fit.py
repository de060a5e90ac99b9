"""Runtimes of the problems of an application from their parts, weighed against predictions of the total.

The largest scales of each problem are held out, one and two at a time: how well parts and total predict these gives the
weight of the parts, and how far runs were from the parts' prediction the factor by which its limits are widened.

Predictors are fitted again after every run, and questions about parts are rare: a fit of the parts takes longer than
one of the totals, so it waits for the first question.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple, Self

import numpy as np

from barograph_modeler.forecasts.history import WorkloadPlace
from barograph_modeler.forecasts.parts.phased_run import PhasedRun, phase_seconds
from barograph_modeler.forecasts.problems import ProblemSpace
from barograph_modeler.parts.measurement import PhaseRun
from barograph_modeler.parts.predictor import MIN_RUNS, PhasesPrediction, PhasesPredictor
from barograph_modeler.scaling.answer import Prediction
from barograph_modeler.scaling.history import Runs
from barograph_modeler.scaling.mixture import Mixture
from barograph_modeler.scaling.predictor import Predictor, fit
from barograph_modeler.scaling.sizes.stacking import stack

MIN_SCALES: Final = 3
MAX_PROBLEMS: Final = 8
"""Newest problems of an application whose parts are fitted."""
MAX_RUNS: Final = 64
"""Newest runs that are fitted."""
MIN_COVERED: Final = 0.5
"""Share of the time of all runs that classes common to all must have."""
PARTS_MODEL: Final = "sum of the parts"
TOTAL_MODEL: Final = "total"
PRIOR: Final = {TOTAL_MODEL: 1.0, PARTS_MODEL: 1.0}
"""Prior weights, in held-out scales."""
MAX_ANSWERS: Final = 256
"""Predictions that are kept: a curve asks for the same ones several times."""
CUTS: Final = (1, 2)
"""Numbers of scales that are held out at once."""
FREEDOM: Final = 5.0
"""Degrees of freedom of the prediction from parts."""
PRIOR_REPEATS: Final = 3.0
PRIOR_SPREAD: Final = 0.02
"""Pseudo-observations of this standard deviation of log seconds between runs of one configuration."""
PRIOR_CASES: Final = 4.0
"""Held-out scales that count for the limits being right."""
MAX_DISTANCE: Final = 8.0
"""Standard deviations: a held-out scale further away counts as this."""

Size = tuple[float, ...]


class _SizedRun(NamedTuple):
    size: Size
    run: PhasedRun


@dataclass(frozen=True)
class PartsWeight:
    """weight: of the parts beside the total, 0 to 1. factor: of their limits. held_out: scales that decided both."""

    weight: float
    factor: float
    held_out: int


class ProblemParts:
    """The parts of the problems whose phases are known at MIN_SCALES scales, fitted when they are first asked for.

    problems: measured runs by problem. totals: all runs by problem. Never modified, so that other threads may ask; two
    that ask first at once both fit.
    """

    def __init__(self, problems: Mapping[str, Sequence[_SizedRun]], totals: Mapping[str, Runs], seed: int = 0) -> None:
        self._problems = problems
        self._totals = totals
        self._seed = seed
        self._predictors: dict[tuple[str, Size | None], PhasesPredictor | None] = {}
        self._answers: dict[tuple[str, int, int | None, Size], PhasesPrediction] = {}

    @classmethod
    def of(
        cls,
        space: ProblemSpace,
        known: Mapping[WorkloadPlace, Sequence[PhasedRun]],
        totals: Mapping[str, Runs],
        seed: int = 0,
    ) -> Self:
        """The newest MAX_PROBLEMS problems. known: workloads, those run last at the end."""
        found: dict[str, list[_SizedRun]] = {}
        for place, runs in known.items():
            problem, size = space.of_run(place)
            found.setdefault(problem, []).extend(_SizedRun(size, run) for run in runs)
        chosen = {problem: runs[-MAX_RUNS:] for problem, runs in found.items() if _scales(runs) >= MIN_SCALES}
        return cls(dict(list(chosen.items())[-MAX_PROBLEMS:]), totals, seed)

    def __contains__(self, problem: str) -> bool:
        return problem in self._problems

    def predict(self, problem: str, ranks: int, nodes: int | None, size: Size) -> PhasesPrediction | None:
        """The runtime of a problem that is contained, from its parts. None where they cannot be fitted."""
        own = self._own_size(problem, size)
        key = problem, own
        if key not in self._predictors:
            self._predictors[key] = _fitted(_phase_runs(self._problems[problem], own), self._seed)
        if (predictor := self._predictors[key]) is None:
            return None
        place = problem, ranks, nodes, size
        if (found := self._answers.get(place)) is None:
            if len(self._answers) >= MAX_ANSWERS:
                self._answers.clear()
            found = self._answers[place] = predictor.predict(ranks, _scalar(size, own), nodes=nodes)
        return found

    def combined(self, problem: str, ranks: int, nodes: int | None, size: Size, total: Prediction) -> Prediction:
        """The prediction of parts and total. total: its prediction, returned as it is where the parts are not known."""
        found = self.predict(problem, ranks, nodes, size) if problem in self else None
        if found is None:
            return total
        weight = self.weight.weight
        mixture = Mixture.joined([(1 - weight, total.logarithms), (weight, self._mixture(problem, found))])
        model = {name: (1 - weight) * share for name, share in total.model.items()} | {PARTS_MODEL: weight}
        return replace(total.distributed(mixture), model=dict(sorted(model.items(), key=lambda item: -item[1])))

    @cached_property
    def weight(self) -> PartsWeight:
        """How well parts and total have predicted held-out scales."""
        every = [case for cut in CUTS for case in self._held_out(cut)]
        weights = stack([{TOTAL_MODEL: case.total, PARTS_MODEL: case.parts} for case in every], PRIOR)
        squares = sum(min(abs(case.distance), MAX_DISTANCE) ** 2 for case in every)
        factor = math.sqrt((PRIOR_CASES + squares) / (PRIOR_CASES + len(every)))
        return PartsWeight(weights[PARTS_MODEL], max(factor, 1.0), len(every))

    def _held_out(self, cut: int) -> Iterator[_HeldOut]:
        """Predictions of the largest scale of each problem from all but the `cut` largest."""
        below, tested = dict(self._totals), []
        for problem, runs in self._problems.items():
            scales = sorted({one.run.ranks for one in runs})
            if len(scales) - cut < MIN_SCALES or problem not in self._totals:
                continue
            kept = [one for one in runs if one.run.ranks < scales[-cut]]
            size = next(one.size for one in reversed(runs) if one.run.ranks == scales[-1])
            held = [one.run for one in runs if one.run.ranks == scales[-1] and one.size == size]
            total = self._totals[problem]
            below[problem] = total.select(total.ranks < scales[-cut])
            tested.append((problem, kept, size, held))
        if not tested:
            return
        predictor: Predictor | None = None
        for problem, kept, size, held in tested:
            if not len(below[problem]):
                continue
            parts = ProblemParts({problem: kept}, {}, self._seed).predict(problem, held[0].ranks, held[0].nodes, size)
            predictor = predictor or fit({name: runs for name, runs in below.items() if len(runs)}, seed=self._seed)
            total_prediction = predictor.predict(problem, held[0].ranks, size=size)
            if parts is None or not isinstance(total_prediction, Prediction):
                continue
            seconds = float(np.median([run.seconds for run in held]))
            mixture = self._mixture(problem, parts, factor=1.0)
            at = math.log(seconds)
            distance = (at - float(mixture.means[0])) / float(mixture.spreads[0])
            yield _HeldOut(total_prediction.logarithms.log_density(at), mixture.log_density(at), distance)

    def _mixture(self, problem: str, found: PhasesPrediction, factor: float | None = None) -> Mixture:
        """The distribution of log seconds. factor: of the spread, that of `weight` if not given."""
        reach = (math.log(found.upper_seconds) - math.log(found.lower_seconds)) / (2 * 1.96)
        spread = math.hypot(reach, self._repeats(problem)) * (self.weight.factor if factor is None else factor)
        return Mixture.single(math.log(found.expected_seconds), spread, FREEDOM)

    def _repeats(self, problem: str) -> float:
        """Standard deviation of log seconds between runs of one configuration of a problem."""
        by_configuration: dict[tuple[int, int, Size], list[float]] = {}
        for size, run in self._problems.get(problem, ()):
            by_configuration.setdefault((run.ranks, run.nodes, size), []).append(math.log(run.seconds))
        squares = sum(float(np.var(logs)) * len(logs) for logs in by_configuration.values())
        freedom = sum(len(logs) - 1 for logs in by_configuration.values())
        return math.sqrt((PRIOR_REPEATS * PRIOR_SPREAD**2 + squares) / (PRIOR_REPEATS + freedom))

    def _own_size(self, problem: str, size: Size) -> Size | None:
        """The size itself if it was run at MIN_SCALES scales, or is no single number; else None: all sizes count."""
        runs = self._problems[problem]
        same = [one for one in runs if one.size == size]
        return size if len(size) > 1 or _scales(same) >= MIN_SCALES else None


class _HeldOut(NamedTuple):
    """Log densities of a held-out scale, and its distance from the prediction of the parts in standard deviations."""

    total: float
    parts: float
    distance: float


def _scales(runs: Sequence[_SizedRun]) -> int:
    return len({one.run.ranks for one in runs})


def _scalar(size: Size, own: Size | None) -> float:
    """The size as one number: 1 where all runs have the same."""
    return size[0] if own is None else 1.0


def _phase_runs(runs: Sequence[_SizedRun], own: Size | None) -> list[PhaseRun]:
    """Runs of one size, or of all, with the classes that all of them have; empty if these are a small part."""
    chosen = [(one, one.run.phases()) for one in runs if own is None or one.size == own]
    if not chosen:
        return []
    common = set.intersection(*(set(phases) for _, phases in chosen))
    found, covered = [], 0.0
    for one, phases in chosen:
        some = {f"{class_id:016x}": phases[class_id] for class_id in sorted(common)}
        measured = sum(map(phase_seconds, some.values()))
        covered += measured / one.run.seconds
        other = max(one.run.seconds - measured, 0.0)
        found.append(PhaseRun(one.run.ranks, one.run.nodes, _scalar(one.size, own), one.run.seconds, other, some))
    return found if covered >= MIN_COVERED * len(found) else []


def _fitted(runs: Sequence[PhaseRun], seed: int) -> PhasesPredictor | None:
    enough = len(runs) >= MIN_RUNS and len({run.ranks for run in runs}) >= MIN_SCALES
    return PhasesPredictor(runs, seed=seed) if enough else None
