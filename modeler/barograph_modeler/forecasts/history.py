"""Healthy runs by application, problem and scale: the training data of predictors."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from barograph_agent.protocol.tables import MAX_NAME, MAX_RANKS
from barograph_modeler.scaling.history import MAX_SECONDS, MIN_SECONDS
from barograph_modeler.state import lru

RUNS: Final = 32
"""Runs kept per scale: enough to estimate a spread, few enough to follow a changing machine."""
SCALES: Final = 64
"""Scales kept per set of parameters; the least recently run are evicted."""
SETS: Final = 256
"""Sets of parameters kept per application, likewise: studies of parameters have hundreds."""
PROBLEMS: Final = 5_000
"""Problems kept in total: their predictors take some 20 kB each."""
PER_NODE: Final = "ranks_per_node"
"""The parameter that holds the ranks per node where runtimes follow them."""
FIT_RUNS: Final = 2_000
"""Runs used in one fit; of more, the newest at each scale."""


class Application(NamedTuple):
    """A code on a cluster, over which runs are pooled."""

    cluster: str
    app: str

    def __str__(self) -> str:
        """A name of the log. Agents have shorter ones; each of the two may have MAX_NAME characters in messages."""
        return f"{self.cluster}/{self.app}"[:MAX_NAME]


class WorkloadPlace(NamedTuple):
    """A workload as application, parameters in order of their names, ranks, and nodes, 0 if unknown."""

    workload: str
    application: Application
    params: tuple[tuple[str, str], ...]
    ranks: int
    nodes: int

    @property
    def problem(self) -> str:
        """Application and all parameters."""
        return problem_name(self.application, dict(self.params))

    def with_layout(self) -> WorkloadPlace:
        """With the ranks per node as a parameter, if the nodes are known and there is no such parameter."""
        if self.known_nodes is None or PER_NODE in dict(self.params):
            return self
        layout = (PER_NODE, ranks_per_node(self.ranks, self.nodes))
        return self._replace(params=tuple(sorted((*self.params, layout))))

    @property
    def known_nodes(self) -> int | None:
        """The nodes; None if unknown or more than the ranks."""
        return self.nodes if 1 <= self.nodes <= self.ranks else None


def ranks_per_node(ranks: int, nodes: int) -> str:
    """Ranks per node as a parameter. nodes: from 1."""
    return str(math.ceil(ranks / nodes))


def problem_name(application: Application, params: Mapping[str, str]) -> str:
    """The name of a problem: application and parameters.

    >>> problem_name(Application("lab", "fft"), {"n": "64", "grid": "a"})
    'lab/fft grid=a n=64'
    """
    return " ".join([str(application), *(f"{name}={value}" for name, value in sorted(params.items()))])


def parse_params(params: str) -> dict[str, str]:
    """Decode the column `params`, a JSON object of strings; any other text becomes one parameter."""
    try:
        return msgspec.json.decode(params, type=dict[str, str])
    except msgspec.MsgspecError:
        return {"params": params}


class WorkloadHistory:
    """The newest runtimes of each workload, within bounds on runs, scales and problems."""

    def __init__(self) -> None:
        self._problems: OrderedDict[tuple[Application, str], OrderedDict[WorkloadPlace, deque[float]]] = OrderedDict()
        self._applications: dict[Application, OrderedDict[str, None]] = {}

    def __contains__(self, application: Application) -> bool:
        return application in self._applications

    def __len__(self) -> int:
        return len(self._problems)

    def learn(self, place: WorkloadPlace, seconds: float) -> None:
        """Add a healthy run. What is no runtime, and invalid numbers of ranks, are ignored."""
        if MIN_SECONDS <= seconds <= MAX_SECONDS and 1 <= place.ranks <= MAX_RANKS:
            self._seconds(place).append(seconds)

    def seconds(self, place: WorkloadPlace) -> list[float]:
        """The newest runtimes of a workload, the oldest first; empty if it is unknown."""
        workloads = self._problems.get((place.application, place.problem))
        return [] if workloads is None else list(workloads.get(place, ()))

    def replace(self, place: WorkloadPlace, seconds: Sequence[float]) -> None:
        """Replace all runs of a workload."""
        if 1 <= place.ranks <= MAX_RANKS:
            self._seconds(place).clear()
        for one in seconds:
            self.learn(place, one)

    def merge(self, gone: WorkloadPlace, into: WorkloadPlace) -> None:
        """Give the runs of one workload to another."""
        workloads = self._problems.get((gone.application, gone.problem))
        if gone == into or workloads is None or gone not in workloads:
            return
        for seconds in workloads.pop(gone):
            self.learn(into, seconds)
        if not workloads:
            self._evict((gone.application, gone.problem))

    def applications(self) -> list[Application]:
        """A copy of the names of all applications. Thread-safe."""
        return list(self._applications)

    def scales(self, application: Application) -> list[tuple[WorkloadPlace, deque[float]]]:
        """Workloads of an application and their runtimes by problem; in both, the least recently run first."""
        problems = (self._problems[application, name] for name in self._applications.get(application, ()))
        return [scale for problem in problems for scale in problem.items() if scale[1]]

    def runs(self, application: Application) -> list[tuple[WorkloadPlace, list[float]]]:
        """As `scales`, with the newest runs only: FIT_RUNS at most, but at least one per workload."""
        scales, newest = self.scales(application), RUNS
        while newest > 1 and sum(min(len(seconds), newest) for _, seconds in scales) > FIT_RUNS:
            newest //= 2
        return [(place, list(seconds)[-newest:]) for place, seconds in scales]

    def _seconds(self, place: WorkloadPlace) -> deque[float]:
        key = (place.application, place.problem)
        problem = self._problems.setdefault(key, OrderedDict())
        self._problems.move_to_end(key)
        names = self._applications.setdefault(place.application, OrderedDict())
        names[place.problem] = None
        names.move_to_end(place.problem)
        seconds = lru.get(problem, place, lambda: deque(maxlen=RUNS), SCALES)
        if len(names) > SETS:
            self._evict((place.application, next(iter(names))))
        if len(self._problems) > PROBLEMS:
            self._evict(next(iter(self._problems)))
        return seconds

    def _evict(self, key: tuple[Application, str]) -> None:
        application, problem = key
        del self._problems[key]
        del self._applications[application][problem]
        if not self._applications[application]:
            del self._applications[application]
