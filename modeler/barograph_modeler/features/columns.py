"""Selection of the features that a model uses, and encoding of a run's features as numbers."""

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

MINIMUM_RUNS: Final = 20
"""Fewest runs that a model is fitted to; conformal limits of 95 % need 19."""
EARLY_SHARE: Final = 0.1
"""Share of the mean runtime within which a feature must be known. Features are reported at twice their age, so the
prediction comes after a fifth of the run."""
MAX_FEATURES: Final = 24
"""Features that a model uses at most: the most important ones."""
MARGIN: Final = 0.1
"""Share of a feature's range by which a value may lie outside of the range."""

UNSEEN: Final = -1.0
"""Code of a text that did not occur in the training data."""


class UninformativeFeatures(Exception):
    """No model can be fitted to the features of these runs. The message has the reason."""


@dataclass(frozen=True)
class FeatureColumns:
    """names: the features used. codes: for each text feature, the code of each text in the training data.

    low, high: range of each feature in the training data, including constant features, which are not used.
    """

    names: tuple[str, ...]
    codes: Mapping[str, Mapping[str, float]]
    low: Mapping[str, float]
    high: Mapping[str, float]

    def missing(self, values: Mapping[str, Value]) -> list[str]:
        """Used features that are absent from `values`, or not a number where numbers are expected."""
        return [name for name in self.names if math.isnan(self._number(name, values.get(name)))]

    def outside(self, values: Mapping[str, Value]) -> list[str]:
        """Features outside of the training data: a clause for each, with value and range."""
        found = []
        for name, low in self.low.items():
            high, number = self.high[name], self._number(name, values.get(name))
            if number == UNSEEN and name in self.codes:
                found.append(f"{name} is {values[name]!r}, expected one of {', '.join(self.codes[name])}")
            elif number < low - MARGIN * (high - low) or number > high + MARGIN * (high - low):
                found.append(f"{name} is {number:g}, expected {low:g} to {high:g}")
        return found

    def row(self, values: Mapping[str, Value]) -> Floats:
        """The values as one row of numbers: (1, m)."""
        return np.array([[self._number(name, values[name]) for name in self.names]])

    def _number(self, name: str, value: Value | None) -> float:
        if value is None:
            return math.nan
        return self.codes[name].get(str(value), UNSEEN) if name in self.codes else number(value)


def number(value: Value) -> float:
    """A value as a finite number, else NaN."""
    try:
        parsed = float(value)
    except ValueError:
        return math.nan
    return parsed if math.isfinite(parsed) else math.nan


def select_features(runs: Sequence[FeatureRun], *, seed: int = 0) -> tuple[FeatureColumns, Sample]:
    """Select the features that are common to the runs, vary, are known early and are important; and make the sample.

    runs: newest last. Editing a source renames its features: the names in the newest MINIMUM_RUNS runs are used, and
    older runs without them are left out. Raises UninformativeFeatures.
    """
    if len(runs) < MINIMUM_RUNS:
        raise UninformativeFeatures(f"{len(runs)} runs, expected at least {MINIMUM_RUNS}")
    names = set.intersection(*(set(run.features.values) for run in runs[-MINIMUM_RUNS:]))
    usable = [run for run in runs if names <= run.features.values.keys()]
    columns = {name: [run.features.values[name] for run in usable] for name in sorted(names)}
    codes = {name: _codes(cells) for name, cells in columns.items() if any(math.isnan(number(c)) for c in cells)}
    numbers = {
        name: np.array([codes[name][str(c)] if name in codes else number(c) for c in cells])
        for name, cells in columns.items()
    }
    varied = [name for name, column in numbers.items() if np.ptp(column) > 0]
    if not varied:
        raise UninformativeFeatures("no feature differs between runs")
    seconds = np.array([run.runtime_seconds for run in usable])
    known_at = np.array([[run.features.seconds.get(name, 0.0) for name in varied] for run in usable])
    early = by_time(known_at, seconds, EARLY_SHARE)
    if not early.size:
        raise UninformativeFeatures(f"no feature that differs is known within {EARLY_SHARE:.0%} of the runtime")
    timely = tuple(varied[i] for i in early)
    sample = Sample(timely, np.column_stack([numbers[name] for name in timely]), seconds)
    best = by_importance(sample, seed=seed)[:MAX_FEATURES]
    chosen = tuple(timely[i] for i in best)
    watched = [*chosen, *(name for name in numbers if name not in varied)]
    low, high = ({name: float(f(numbers[name])) for name in watched} for f in (np.min, np.max))
    used = {name: codes[name] for name in watched if name in codes}
    return FeatureColumns(chosen, used, low, high), Sample(chosen, sample.values[:, best], seconds)


def _codes(cells: Sequence[Value]) -> dict[str, float]:
    return {text: float(code) for code, text in enumerate(sorted({str(cell) for cell in cells}))}
