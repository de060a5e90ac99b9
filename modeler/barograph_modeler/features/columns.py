"""Which features of past runs a model may use, and how the values of one run become a row of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from barograph_modeler.features.reduction import by_importance, by_time
from barograph_modeler.features.sample import Sample
from barograph_modeler.forecasts.run import FeatureRun, Value
from barograph_modeler.maxima.sample import Floats

FEWEST: Final = 20
"""Runs that a model learns at least; conformal limits of 95 % need 19."""
EARLY: Final = 0.1
"""Of the mean runtime, within which features used are known: they are told at twice that age, and a prediction that
comes when a fifth of the run has gone is still one."""
MOST: Final = 24
"""Features that a model uses at most, the most important ones."""
MARGIN: Final = 0.1
"""Of the range of a feature, beyond which it is a place where no run has been."""

UNSEEN: Final = -1.0
"""The number of a text that was never learned."""


class UninformativeFeatures(Exception):
    """Runs whose features say nothing. The text says why."""


@dataclass(frozen=True)
class FeatureColumns:
    """names: of the features used. codes: of each feature of texts, the number of each text that was learned.

    low, high: the least and largest value learned of each feature, also of those that never changed and are not used.
    """

    names: tuple[str, ...]
    codes: Mapping[str, Mapping[str, float]]
    low: Mapping[str, float]
    high: Mapping[str, float]

    def missing(self, values: Mapping[str, Value]) -> list[str]:
        """Names of the features used that are not among these, or are no numbers where numbers were learned."""
        return [name for name in self.names if math.isnan(self._number(name, values.get(name)))]

    def outside(self, values: Mapping[str, Value]) -> list[str]:
        """Features where no run has been: a sentence for each, with value and range."""
        found = []
        for name, low in self.low.items():
            high, number = self.high[name], self._number(name, values.get(name))
            if number == UNSEEN and name in self.codes:
                found.append(f"{name} is {values[name]!r}, expected one of {', '.join(self.codes[name])}")
            elif number < low - MARGIN * (high - low) or number > high + MARGIN * (high - low):
                found.append(f"{name} is {number:g}, expected {low:g} to {high:g}")
        return found

    def row(self, values: Mapping[str, Value]) -> Floats:
        """One row: (1, m)."""
        return np.array([[self._number(name, values[name]) for name in self.names]])

    def _number(self, name: str, value: Value | None) -> float:
        if value is None:
            return math.nan
        return self.codes[name].get(str(value), UNSEEN) if name in self.codes else number(value)


def number(value: Value) -> float:
    """A value as a finite number; NaN where it is none."""
    try:
        parsed = float(value)
    except ValueError:
        return math.nan
    return parsed if math.isfinite(parsed) else math.nan


def select_features(runs: Sequence[FeatureRun], *, seed: int = 0) -> tuple[FeatureColumns, Sample]:
    """The features that the runs have in common, that differ, are known early, and tell something; and the sample.

    runs: the newest last. A source that was edited gives its features other names: those of the newest FEWEST runs
    count, and older runs without them are left out. Raises UninformativeFeatures.
    """
    if len(runs) < FEWEST:
        raise UninformativeFeatures(f"{len(runs)} runs, expected at least {FEWEST}")
    names = set.intersection(*(set(run.known.values) for run in runs[-FEWEST:]))
    usable = [run for run in runs if names <= run.known.values.keys()]
    columns = {name: [run.known.values[name] for run in usable] for name in sorted(names)}
    codes = {name: _codes(cells) for name, cells in columns.items() if any(math.isnan(number(c)) for c in cells)}
    numbers = {
        name: np.array([codes[name][str(c)] if name in codes else number(c) for c in cells])
        for name, cells in columns.items()
    }
    varied = [name for name, column in numbers.items() if np.ptp(column) > 0]
    if not varied:
        raise UninformativeFeatures("no feature differs between runs")
    seconds = np.array([run.runtime_seconds for run in usable])
    known_at = np.array([[run.known.seconds.get(name, 0.0) for name in varied] for run in usable])
    early = by_time(known_at, seconds, EARLY)
    if not early.size:
        raise UninformativeFeatures(f"no feature that differs is known within {EARLY:.0%} of the runtime")
    timely = tuple(varied[i] for i in early)
    sample = Sample(timely, np.column_stack([numbers[name] for name in timely]), seconds)
    best = by_importance(sample, seed=seed)[:MOST]
    chosen = tuple(timely[i] for i in best)
    watched = [*chosen, *(name for name in numbers if name not in varied)]
    low, high = ({name: float(f(numbers[name])) for name in watched} for f in (np.min, np.max))
    used = {name: codes[name] for name in watched if name in codes}
    return FeatureColumns(chosen, used, low, high), Sample(chosen, sample.values[:, best], seconds)


def _codes(cells: Sequence[Value]) -> dict[str, float]:
    return {text: float(code) for code, text in enumerate(sorted({str(cell) for cell in cells}))}
