"""The finished runs of one problem with the time of each region, such as a timer or a call-site class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs

MIN_SECONDS: Final = 1e-9
"""Shorter parts count as this, because laws are fitted to logarithms."""


@dataclass(frozen=True)
class RegionRuns:
    """Runs of one problem. runs: ranks, sizes and total seconds. regions: seconds of each, (runs,), NaN if unknown.

    Regions may be nested or overlap: `disjoint.py` chooses parts among them.
    """

    runs: Runs
    regions: Mapping[str, Floats]

    def __post_init__(self) -> None:
        for name, seconds in self.regions.items():
            if seconds.shape != (len(self.runs),):
                raise ValueError(f"region {name} has shape {seconds.shape}, expected ({len(self.runs)},) as ranks has")
            if (bad := np.isinf(seconds) | (seconds < 0)).any():
                raise ValueError(f"region {name} is {seconds[bad][0]} s, expected at least 0, or NaN where unknown")

    def select(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> RegionRuns:
        """A subset of the runs."""
        return RegionRuns(self.runs.select(rows), {name: seconds[rows] for name, seconds in self.regions.items()})

    @cached_property
    def complete(self) -> tuple[str, ...]:
        """Regions that are known and above 0 in every run."""
        return tuple(name for name, seconds in self.regions.items() if (seconds > 0).all())

    def part(self, seconds: Floats) -> Runs:
        """The same runs with the seconds of a part instead of the total."""
        runs = self.runs
        return Runs(runs.ranks, runs.nodes, runs.size, np.maximum(seconds, MIN_SECONDS))
