"""Runs that ended well, by application, problem and scale: the training data of predictors."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from barograph_modeler.scaling.history import MOST_RANKS, Runs

RUNS: Final = 32
"""Runs kept at one scale: enough for a spread, few enough to follow a machine that changes."""
SCALES: Final = 64
"""Scales kept of one problem, and problems of one application; the least recently run go first."""
PROBLEMS: Final = 5_000
"""Problems kept in all: their predictors take a few hundred kB each."""
FIT_RUNS: Final = 2_000
"""Runs that one fit sees; of more, the newest at each scale."""


class Application(NamedTuple):
    """A code on a machine: what runs are pooled over."""

    cluster: str
    app: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.app}"


class WorkloadPlace(NamedTuple):
    """Where a workload stands: application, problem (application and parameters), ranks, nodes or 0."""

    workload: str
    application: Application
    problem: str
    ranks: int
    nodes: int

    @property
    def known_nodes(self) -> float | None:
        """The nodes, where they are known and go with the ranks."""
        return float(self.nodes) if 1 <= self.nodes <= self.ranks else None


def problem_name(application: Application, params: Mapping[str, str]) -> str:
    """An application with its parameters.

    >>> problem_name(Application("lab", "fft"), {"n": "64", "grid": "a"})
    'lab/fft grid=a n=64'
    """
    return " ".join([str(application), *(f"{name}={value}" for name, value in sorted(params.items()))])


def parse_params(params: str) -> dict[str, str]:
    """Parameters as the log has them, a JSON object of strings; anything else is one parameter."""
    try:
        return msgspec.json.decode(params, type=dict[str, str])
    except msgspec.MsgspecError:
        return {"params": params}


class ScaleRuns:
    """The runs of one workload, in seconds, the newest last."""

    def __init__(self, place: WorkloadPlace) -> None:
        self.place = place
        self.seconds: deque[float] = deque(maxlen=RUNS)


class WorkloadHistory:
    """All runs; the number of scales, problems and runs is bounded."""

    def __init__(self) -> None:
        self._problems: OrderedDict[tuple[Application, str], OrderedDict[str, ScaleRuns]] = OrderedDict()
        self._applications: dict[Application, OrderedDict[str, None]] = {}

    def __contains__(self, application: Application) -> bool:
        return application in self._applications

    def __len__(self) -> int:
        return len(self._problems)

    def learn(self, place: WorkloadPlace, seconds: float) -> None:
        """Add a run that ended well. seconds: finite, above 0; others and scales that are none are left out."""
        if math.isfinite(seconds) and seconds > 0 and 1 <= place.ranks <= MOST_RANKS:
            self._scale(place).seconds.append(seconds)

    def replace(self, place: WorkloadPlace, seconds: Sequence[float]) -> None:
        """The machine has changed: these runs of a workload are its history now, and no others."""
        if 1 <= place.ranks <= MOST_RANKS:
            self._scale(place).seconds.clear()
        for one in seconds:
            self.learn(place, one)

    def applications(self) -> list[Application]:
        """All of them, as they are at this instant: safe to ask for from another thread."""
        return list(self._applications)

    def scales(self, application: Application) -> list[ScaleRuns]:
        """Its workloads, problem by problem; both the least recently run first."""
        problems = (self._problems[application, name] for name in self._applications.get(application, ()))
        return [scale for problem in problems for scale in problem.values() if scale.seconds]

    def runs(self, application: Application) -> dict[str, Runs]:
        """Its runs by problem, FIT_RUNS at most unless it has more scales than that."""
        scales, newest = self.scales(application), RUNS
        while newest > 1 and sum(min(len(scale.seconds), newest) for scale in scales) > FIT_RUNS:
            newest //= 2
        columns: dict[str, list[tuple[float, float, float]]] = {}
        for scale in scales:
            place, seconds = scale.place, list(scale.seconds)[-newest:]
            nodes = math.nan if place.known_nodes is None else place.known_nodes
            columns.setdefault(place.problem, []).extend((place.ranks, nodes, one) for one in seconds)
        return {
            problem: Runs.of([row[0] for row in rows], [row[2] for row in rows], nodes=[row[1] for row in rows])
            for problem, rows in columns.items()
        }

    def _scale(self, place: WorkloadPlace) -> ScaleRuns:
        key = (place.application, place.problem)
        problem = self._problems.setdefault(key, OrderedDict())
        self._problems.move_to_end(key)
        named = self._applications.setdefault(place.application, OrderedDict())
        named[place.problem] = None
        named.move_to_end(place.problem)
        scale = problem.setdefault(place.workload, ScaleRuns(place))
        problem.move_to_end(place.workload)
        if len(problem) > SCALES:
            problem.popitem(last=False)
        if len(named) > SCALES:
            self._forget((place.application, next(iter(named))))
        if len(self._problems) > PROBLEMS:
            self._forget(next(iter(self._problems)))
        return scale

    def _forget(self, key: tuple[Application, str]) -> None:
        application, problem = key
        del self._problems[key]
        del self._applications[application][problem]
        if not self._applications[application]:
            del self._applications[application]
