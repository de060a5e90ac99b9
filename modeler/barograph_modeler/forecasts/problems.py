"""Which parameters of an application make up the size of a problem, and which name it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from barograph_modeler.forecasts.history import Application, WorkloadPlace, problem_name
from barograph_modeler.maxima.sample import Floats

MAX_NUMBERS: Final = 8
"""Parameters that make up a size; further ones name problems."""
MAX_EXPONENT: Final = 4.0
"""Work that grows with a higher power of a parameter grows exponentially with it."""
MAX_LOGARITHM: Final = 64.0
"""Largest value of a parameter that may be the logarithm of a size."""
CLEARLY: Final = 0.5
"""Share of the squared error by which a logarithm must be the better description."""
LOGARITHM_SLOPES: Final = (0.25, 4.0)
"""Powers of 2**value that a runtime may grow with."""
ON_LINE: Final = 0.05
RIDGE: Final = 1e-3
NO_SIZE: Final = (1.0,)


class ProblemSize(NamedTuple):
    """The name of a problem, which has no sizes in it, and its size: one number for each parameter of the size.

    size: NO_SIZE if the problem has none; None if the question leaves it out.
    """

    name: str
    size: tuple[float, ...] | None


@dataclass(frozen=True)
class ProblemSpace:
    """names: the parameters that make up sizes, in order. logarithms: those of them that are logarithms of a size to
    base 2, such as the scale of Graph500."""

    application: Application
    names: tuple[str, ...] = ()
    logarithms: frozenset[str] = frozenset()

    @classmethod
    def of(cls, application: Application, known: Sequence[tuple[WorkloadPlace, float]]) -> ProblemSpace:
        """The space of workloads and their median seconds.

        A parameter belongs to the size if it is a number above 0 in all workloads that have it and has two values.
        """
        found: dict[str, list[float]] = {}
        for place, _ in known:
            for name, text in place.params:
                found.setdefault(name, []).append(_number(text))
        sizes = [name for name, values in found.items() if all(values) and len(set(values)) > 1]
        names = tuple(sorted(sizes)[:MAX_NUMBERS])
        return cls(application, names, _logarithms(names, known))

    def locate(self, params: Mapping[str, str]) -> ProblemSize:
        """The problem and size of a run or a question.

        One without any parameter of the size asks for no size. One that has a part of them, or has no numbers there,
        is a problem of its own.
        """
        if not self.names:
            return ProblemSize(problem_name(self.application, params), NO_SIZE)
        rest = {name: text for name, text in params.items() if name not in self.names}
        if len(rest) == len(params):
            return ProblemSize(problem_name(self.application, rest), None)
        numbers = {name: self._size(name, params.get(name, "")) for name in self.names}
        if not all(numbers.values()):
            return ProblemSize(problem_name(self.application, params), NO_SIZE)
        return ProblemSize(problem_name(self.application, rest), tuple(numbers.values()))

    def place(self, place: WorkloadPlace) -> tuple[str, tuple[float, ...]]:
        """The problem and size of a run, which has no size if it has none of the parameters."""
        problem = self.locate(dict(place.params))
        return problem.name, NO_SIZE if problem.size is None else problem.size

    def text(self, size: Iterable[float]) -> str:
        """A size as parameters.

        >>> ProblemSpace(Application("lab", "bfs"), ("EF", "SC"), frozenset({"SC"})).text((16.0, 1048576.0))
        'EF=16 SC=20'
        """
        values = (
            math.log2(one) if name in self.logarithms else one for name, one in zip(self.names, size, strict=True)
        )
        return " ".join(f"{name}={value:.6g}" for name, value in zip(self.names, values, strict=True))

    def _size(self, name: str, text: str) -> float:
        number = _number(text)
        if name in self.logarithms:
            return 2**number if 0 < number <= MAX_LOGARITHM else 0.0
        return number


def _number(text: str) -> float:
    """The number that a text is; 0 if it is none, or not finite and above 0."""
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if 0 < number < math.inf else 0.0


def _logarithms(names: Sequence[str], known: Sequence[tuple[WorkloadPlace, float]]) -> frozenset[str]:
    """Those of the numbers that are logarithms: one grows by 1 with each doubling of the ranks, as in a weak series, or
    a line of log seconds over log ranks and log numbers has it so."""
    rows = [(dict(place.params), place.ranks, seconds) for place, seconds in known]
    rows = [row for row in rows if all(name in row[0] for name in names)]
    if not names or not rows:
        return frozenset()
    values = {name: np.array([_number(params[name]) for params, _, _ in rows]) for name in names}
    y = np.log([seconds for _, _, seconds in rows])
    columns = {"": np.log([ranks for _, ranks, _ in rows]), **{name: np.log(one) for name, one in values.items()}}
    found = set()
    for name in names:
        whole = (values[name] == np.floor(values[name])) & (values[name] <= MAX_LOGARITHM)
        if not whole.all():
            continue
        slopes, squares = _line(columns, y)
        doubled = values[name] * math.log(2)
        as_logarithm = columns | {name: doubled}
        slopes_so, squares_so = _line(as_logarithm, y)
        many = np.unique(values[name]).size > 2
        low, high = LOGARITHM_SLOPES
        fits = low < slopes_so[name] < high and (
            slopes[name] > MAX_EXPONENT or (many and squares_so < CLEARLY * squares)
        )
        if fits or (many and np.ptp(doubled - columns[""]) < ON_LINE):
            found.add(name)
            columns = as_logarithm
    return frozenset(found)


def _line(columns: Mapping[str, Floats], y: Floats) -> tuple[dict[str, float], float]:
    """Slopes and squared error of a line with a little ridge, so that columns may be linearly dependent."""
    x = np.column_stack(list(columns.values()))
    x, centred = x - x.mean(axis=0), y - y.mean()
    slopes = np.linalg.solve(x.T @ x + RIDGE * np.eye(len(columns)), x.T @ centred)
    return dict(zip(columns, slopes.tolist(), strict=True)), float(((centred - x @ slopes) ** 2).sum())
