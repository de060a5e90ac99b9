"""Which numbers of the runs of one work make up its size: found by what varies, and by what the runtime follows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

import numpy as np

from barograph_modeler.forecasts.history import PER_NODE, WorkloadPlace
from barograph_modeler.forecasts.works import FOUND, THREADS
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import MAX_SIZE

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
NOISE: Final = 0.05
"""Differences of runtimes, in logarithms, that need no number to explain them."""
WORSE: Final = 1.5
"""Ratio of squared errors without and with a number from which it matters."""
MAX_FACTORS: Final = 3
"""Numbers whose product may be the ranks: a process grid."""
MAX_SLOPE: Final = 0.05
"""Growth of the runtime with a given number, as a power of it, up to which the number does not matter."""
MIN_COMPARED: Final = 4
"""Runs beyond one of each configuration that show it."""
LEAST_COUNT: Final = 0.5
"""What a 0 counts as beside whole numbers, where logarithms are compared."""
MAX_DIGITS: Final = 18
MAX_CANDIDATES: Final = 16
"""Varying numbers that are looked at, the first by name."""
MAX_VALUES: Final = 64


@dataclass(frozen=True)
class SizeSpace:
    """names: the parameters that make up sizes, in order. logarithms: those of them that are logarithms of a size to
    base 2, such as the scale of Graph500. ignored: numbers that do not matter, such as seeds, and those found in
    command lines and inputs that do not vary, with their values."""

    names: tuple[str, ...] = ()
    logarithms: frozenset[str] = frozenset()
    ignored: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, known: Sequence[tuple[WorkloadPlace, float]]) -> SizeSpace:
        """The space of the workloads of one work and their median seconds.

        A parameter belongs to the size if it is a number above 0 in all workloads that have it and has two values,
        unless runs that differ in nothing else show that it does not matter; one that was found, and not given, only if
        the runtime follows it or if it grows with the ranks.
        """
        values: dict[str, list[str]] = {}
        for place, _ in known:
            for name, text in place.params:
                values.setdefault(name, []).append(text)
        varying = [name for name, texts in values.items() if len(set(texts)) > 1]
        sizes = sorted(name for name in varying if all(map(_number, values[name])))
        # Seeds and numbers of repetitions begin with 0, which no size does.
        counted = [name for name in varying if name not in sizes and all(map(_is_count, values[name]))]
        needless = {name for name in sizes + counted if not FOUND.fullmatch(name) and _is_needless(name, known)}
        given = [name for name in sizes if not FOUND.fullmatch(name) and name not in needless]
        # Of what was found, each number of the runs that have all of them.
        found = [name for name in sizes if FOUND.fullmatch(name) and len(values[name]) == len(known)][:MAX_CANDIDATES]
        names = tuple((given + _relevant(given, found, known))[:MAX_NUMBERS])
        dropped = [name for name in values if FOUND.fullmatch(name) and name not in names]
        dropped += sorted(needless)
        ignored = {name: frozenset(values[name][-MAX_VALUES:]) for name in dropped}
        return cls(tuple(sorted(names)), _logarithms([name for name in names if name != PER_NODE], known), ignored)

    def relevant(self, params: Mapping[str, str]) -> dict[str, str]:
        """Parameters without those that are ignored."""
        return {name: text for name, text in params.items() if name not in self.ignored}

    def others(self, params: Mapping[str, str]) -> tuple[tuple[str, float], ...]:
        """Numbers that had one other value in all runs, and the ratio to it."""
        found = []
        for name, text in params.items():
            values = self.ignored.get(name, frozenset())
            if len(values) == 1 and text not in values and (known := _number(next(iter(values)))) and _number(text):
                found.append((name, _number(text) / known))
        return tuple(found)

    def unfollowed(self, params: Mapping[str, str]) -> dict[str, frozenset[str]]:
        """Parameters that were given, of which runs have shown that they do not matter, with their values in runs."""
        return {name: self.ignored[name] for name in params if name in self.ignored and not FOUND.fullmatch(name)}

    def size(self, params: Mapping[str, str]) -> tuple[float, ...] | None:
        """The size; None if a number is missing."""
        return self.numbers(self.names, params)

    def numbers(self, names: Iterable[str], params: Mapping[str, str]) -> tuple[float, ...] | None:
        """Some of the numbers of a size; None if one is missing."""
        numbers = tuple(self._size(name, params.get(name, "")) for name in names)
        return numbers if all(numbers) else None

    def text(self, size: Iterable[float]) -> str:
        """A size as parameters.

        >>> SizeSpace(("EF", "SC"), frozenset({"SC"})).text((16.0, 1048576.0))
        'EF=16 SC=20'
        """
        pairs = zip(self.names, size, strict=True)
        plain = ((name, math.log2(one) if name in self.logarithms else one) for name, one in pairs)
        return " ".join(f"{name}={shown_number(one)}" for name, one in plain)

    def _size(self, name: str, text: str) -> float:
        number = _number(text)
        if name in self.logarithms:
            return 2**number if 0 < number <= MAX_LOGARITHM else 0.0
        return number


def shown_number(number: float) -> str:
    """A number of a size as text: whole ones in full.

    >>> shown_number(1572864.0), shown_number(400 / 3)
    ('1572864', '133.333')
    """
    return f"{number:.{10 if number == math.floor(number) else 6}g}"


def is_number(text: str) -> bool:
    """Whether a text is a number that a size can have, above 0."""
    return _number(text) > 0


def _number(text: str) -> float:
    """The number that a text is; 0 if it is none that a size can have."""
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if 1 / MAX_SIZE <= number <= MAX_SIZE else 0.0


def _is_count(text: str) -> bool:
    """Whether a text is a whole number, which may be 0."""
    return text.isdecimal() and len(text) <= MAX_DIGITS


class _Regression:
    """A line of log seconds over log ranks and the logarithms of numbers."""

    def __init__(self, names: Sequence[str], known: Sequence[tuple[WorkloadPlace, float]]) -> None:
        rows = [(dict(place.params), place.ranks, seconds) for place, seconds in known]
        rows = [row for row in rows if all(name in row[0] for name in names)]
        self.values = {name: np.array([_number(params[name]) for params, _, _ in rows]) for name in names}
        self.ranks = np.array([float(ranks) for _, ranks, _ in rows])
        self.y = np.log([seconds for _, _, seconds in rows])
        self.columns: dict[str, Floats] = {name: np.log(one) for name, one in self.values.items()}

    def line(self, columns: Mapping[str, Floats]) -> tuple[dict[str, float], float]:
        """Slopes and squared error, with a little ridge, so that columns may be linearly dependent."""
        x = np.column_stack([np.log(self.ranks), *columns.values()])
        x, centred = x - x.mean(axis=0), self.y - self.y.mean()
        slopes = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ centred)
        return dict(zip(columns, slopes[1:].tolist(), strict=True)), float(((centred - x @ slopes) ** 2).sum())


def is_layout_relevant(known: Sequence[tuple[WorkloadPlace, float]]) -> bool:
    """Whether runs that differ in nothing else show that their runtimes follow the ranks per node.

    known: workloads of one work and their median seconds.
    """
    alike: dict[tuple[object, ...], list[tuple[float, float]]] = {}
    for place, seconds in known:
        if place.known_nodes is None:
            return False
        row = (math.log(place.ranks / place.nodes), math.log(seconds))
        alike.setdefault((place.ranks, place.params), []).append(row)
    x, y, compared = _differences(alike.values())
    if not x.any():
        return False
    left = y - float(x @ y) / float(x @ x) * x
    return float(y @ y) > WORSE * float(left @ left) + compared * NOISE**2


def _differences(groups: Iterable[Sequence[tuple[float, float]]]) -> tuple[Floats, Floats, int]:
    """Two columns without the means of each group, and the number of rows beyond one of each group."""
    rows = [np.array(some) - np.mean(some, axis=0) for some in groups]
    x, y = np.concatenate([*rows, np.empty((0, 2))]).T
    return x, y, sum(len(some) - 1 for some in rows)


def _is_needless(name: str, known: Sequence[tuple[WorkloadPlace, float]]) -> bool:
    """Whether runs that differ in nothing but this number show that their runtimes do not follow it."""
    alike: dict[tuple[object, ...], list[tuple[float, float]]] = {}
    for place, seconds in known:
        params = dict(place.params)
        number = _number(text := params.pop(name, ""))
        if number > 0 or _is_count(text):
            key = (place.ranks, place.nodes, *sorted(params.items()))
            alike.setdefault(key, []).append((math.log(number or LEAST_COUNT), math.log(seconds)))
    x, y, compared = _differences(alike.values())
    if compared < MIN_COMPARED or not x.any():
        return False
    slope = float(x @ y / (x @ x))
    spread = math.sqrt(float(((y - slope * x) ** 2).sum()) / (compared - 1))
    return spread < NOISE and abs(slope) + 2 * spread / math.sqrt(float(x @ x)) < MAX_SLOPE


def _relevant(given: list[str], found: list[str], known: Sequence[tuple[WorkloadPlace, float]]) -> list[str]:
    """Those of the found numbers that the runtime follows, or that grow with the ranks without being a process grid."""
    if not found:
        return []
    data = _Regression([*given, *found], known)
    if data.ranks.size < 2:
        return []
    found = [name for name in found if name not in _grid(found, data) and not _is_given(name, given, data)]
    for name in list(found):
        kept = {one: data.columns[one] for one in (*given, *found)}
        without = {one: column for one, column in kept.items() if one != name}
        enough = data.ranks.size * NOISE**2
        slopes, squares = data.line(kept)
        follows = data.line(without)[1] > WORSE * squares + enough and _is_plausible(name, slopes[name], data)
        if not follows and not _grows(data.columns[name], np.log(data.ranks)):
            found.remove(name)
    return found


def _is_plausible(name: str, slope: float, data: _Regression) -> bool:
    """Whether a runtime may grow with this power of a number, or fall: the first runs of a program are often longer,
    whatever the seeds of the next ones are."""
    return slope > 0 or name == THREADS or (slope > -MAX_EXPONENT and data.ranks.size >= MIN_COMPARED)


def _is_given(name: str, given: Sequence[str], data: _Regression) -> bool:
    """Whether a number that was found is a power of those that were given, times a constant: they have told it."""
    if not given or np.ptp(data.columns[name]) == 0:
        return False
    x = np.column_stack([np.ones(data.ranks.size), *(data.columns[one] for one in given)])
    fitted, *_ = np.linalg.lstsq(x, data.columns[name], rcond=None)
    return bool(np.abs(x @ fitted - data.columns[name]).max() < ON_LINE)


def _grid(found: Sequence[str], data: _Regression) -> set[str]:
    """Numbers whose product is the ranks in all runs."""
    parts: set[str] = set()
    for count in range(1, MAX_FACTORS + 1):
        for names in combinations(found, count):
            if not parts & set(names) and np.array_equal(np.prod([data.values[n] for n in names], axis=0), data.ranks):
                parts |= set(names)
    return parts


def _grows(logs: Floats, log_ranks: Floats) -> bool:
    if np.ptp(log_ranks) == 0 or np.ptp(logs) == 0:
        return False
    return bool(np.corrcoef(logs, log_ranks)[0, 1] > 0.95)


def _logarithms(names: Sequence[str], known: Sequence[tuple[WorkloadPlace, float]]) -> frozenset[str]:
    """Those of the numbers that are logarithms: one grows by 1 with each doubling of the ranks, as in a weak series, or
    a line of log seconds over log ranks and log numbers has it so."""
    data = _Regression(names, known)
    if not names or not data.ranks.size:
        return frozenset()
    found, columns = set(), dict(data.columns)
    for name in names:
        values = data.values[name]
        if not ((values == np.floor(values)) & (values <= MAX_LOGARITHM)).all():
            continue
        doubled = values * math.log(2)
        as_logarithm = columns | {name: doubled}
        (slopes, squares), (slopes_so, squares_so) = data.line(columns), data.line(as_logarithm)
        many = np.unique(values).size > 2
        low, high = LOGARITHM_SLOPES
        better = slopes[name] > MAX_EXPONENT or (many and squares_so < CLEARLY * squares)
        if (better and low < slopes_so[name] < high) or (many and np.ptp(doubled - np.log(data.ranks)) < ON_LINE):
            found.add(name)
            columns = as_logarithm
    return frozenset(found)
