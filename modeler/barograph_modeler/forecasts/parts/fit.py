"""What the runtimes of the problems of an application consist of: shares of the predicted total.

Predictors are fitted again after every run, and questions about parts are rare: a fit of the parts takes longer than
one of the totals, so it waits for the first question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Self

from barograph_modeler.forecasts.history import WorkloadPlace
from barograph_modeler.forecasts.parts.phased_run import PhasedRun, phase_seconds
from barograph_modeler.forecasts.problems import ProblemSpace
from barograph_modeler.parts.measurement import PhaseRun
from barograph_modeler.parts.predictor import MIN_RUNS, PhasesPrediction, PhasesPredictor

MIN_SCALES: Final = 3
MAX_PROBLEMS: Final = 8
"""Newest problems of an application whose parts are fitted."""
MAX_RUNS: Final = 64
"""Newest runs that are fitted."""
MIN_COVERED: Final = 0.5
"""Share of the time of all runs that classes common to all must have."""
MAX_ANSWERS: Final = 256
"""Predictions that are kept: a curve asks for the same ones several times."""
Size = tuple[float, ...]


class _SizedRun(NamedTuple):
    size: Size
    run: PhasedRun


class ProblemParts:
    """The parts of the problems whose phases are known at MIN_SCALES scales, fitted when they are first asked for.

    problems: measured runs by problem. Never modified, so that other threads may ask; two
    that ask first at once both fit.
    """

    def __init__(self, problems: Mapping[str, Sequence[_SizedRun]], seed: int = 0) -> None:
        self._problems = problems
        self._seed = seed
        self._predictors: dict[tuple[str, Size | None], PhasesPredictor | None] = {}
        self._answers: dict[tuple[str, int, int | None, Size], PhasesPrediction] = {}

    @classmethod
    def of(cls, space: ProblemSpace, known: Mapping[WorkloadPlace, Sequence[PhasedRun]], seed: int = 0) -> Self:
        """The newest MAX_PROBLEMS problems. known: workloads, those run last at the end."""
        found: dict[str, list[_SizedRun]] = {}
        for place, runs in known.items():
            problem, size = space.of_run(place)
            found.setdefault(problem, []).extend(_SizedRun(size, run) for run in runs)
        chosen = {problem: runs[-MAX_RUNS:] for problem, runs in found.items() if _scales(runs) >= MIN_SCALES}
        return cls(dict(list(chosen.items())[-MAX_PROBLEMS:]), seed)

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

    def _own_size(self, problem: str, size: Size) -> Size | None:
        """The size itself if it was run at MIN_SCALES scales, or is no single number; else None: all sizes count."""
        runs = self._problems[problem]
        same = [one for one in runs if one.size == size]
        return size if len(size) > 1 or _scales(same) >= MIN_SCALES else None


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
