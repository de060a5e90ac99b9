"""The phases of one run, kept in little memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from barograph_modeler.forecasts.parts.measurement import PhaseMeasurement
from barograph_modeler.maxima.sample import Floats

MAX_CLASSES: Final = 8
"""Classes that are kept, those with most time."""
ATOMS: Final = 24
"""Values that a distribution is kept as."""
EXTREMES: Final = 8
"""Largest of the ATOMS, which stand for themselves."""
MAX_OVER: Final = 1.02
"""Time of all classes over the runtime, which a clock may have measured a little shorter."""
_FIELDS: Final = tuple(name for name in PhaseMeasurement.__dataclass_fields__ if name not in ("deviations", "shares"))
_KNOWN: Final = [i for i, name in enumerate(_FIELDS) if name not in ("between", "within")]
"""Fields that are never NaN."""


class PhasedRun(NamedTuple):
    """A run. seconds: its runtime. classes: ids, those with most time first. values: (classes, fields and atoms)."""

    ranks: int
    nodes: int
    seconds: float
    classes: tuple[int, ...]
    values: npt.NDArray[np.float32]

    @classmethod
    def of(cls, ranks: int, nodes: int, seconds: float, phases: Mapping[int, PhaseMeasurement]) -> Self | None:
        """None where the phases take longer than the run, or have numbers that are not finite."""
        longest = sorted(phases, key=lambda class_id: -phase_seconds(phases[class_id]))[:MAX_CLASSES]
        values = np.array([_packed(phases[class_id]) for class_id in longest], np.float64)
        if not longest or not (np.abs(values[:, _KNOWN]) < np.finfo(np.float32).max).all():
            return None
        found = cls(ranks, nodes, seconds, tuple(longest), values.astype(np.float32))
        return found if 0 < found.measured_seconds <= MAX_OVER * seconds < math.inf else None

    @property
    def measured_seconds(self) -> float:
        """Time of all classes."""
        return sum(map(phase_seconds, self.phases().values()))

    def phases(self) -> dict[int, PhaseMeasurement]:
        """Measurements by class id."""
        return {class_id: _unpacked(row) for class_id, row in zip(self.classes, self.values, strict=True)}


def phase_seconds(phase: PhaseMeasurement) -> float:
    """Time of all intervals of a class."""
    return phase.count * (phase.slowest + phase.exchange + phase.collective)


def _packed(phase: PhaseMeasurement) -> list[float]:
    deviations, shares = _thinned(phase.deviations, phase.shares)
    return [*(getattr(phase, name) for name in _FIELDS), *deviations, *shares]


def _unpacked(row: npt.NDArray[np.float32]) -> PhaseMeasurement:
    numbers = row.astype(np.float64)
    fields = dict(zip(_FIELDS, numbers[: len(_FIELDS)].tolist(), strict=True))
    deviations, shares = np.split(numbers[len(_FIELDS) :], 2)
    known = shares > 0
    return PhaseMeasurement(deviations=deviations[known], shares=shares[known] / shares.sum(), **fields)


def _thinned(x: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """Ascending values joined to ATOMS: the largest as they are, the others to atoms of equal probability.

    Returns means and shares, (ATOMS,) each, where a share may be 0.
    """
    body, bins = max(x.size - EXTREMES, 0), ATOMS - EXTREMES
    low = mass[:body]
    at = np.minimum((np.cumsum(low) / max(low.sum(), 1e-300) * bins).astype(int), bins - 1)
    at = np.concatenate([at, bins + np.arange(x.size - body)]) if x.size > ATOMS else np.arange(x.size)
    shares = np.asarray(np.bincount(at, mass, ATOMS), np.float64)
    sums = np.bincount(at, mass * x, ATOMS)
    return np.where(shares > 0, sums / np.where(shares > 0, shares, 1.0), 0.0), shares
