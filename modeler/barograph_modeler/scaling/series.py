"""The runs of one problem as series over scale: one per size, or one in which size grows with scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.answer import Refusal
from barograph_modeler.scaling.history import Runs

SIZE_GROWS: Final = 0.0
"""Key of a series in which size grows with scale."""
OFF: Final = 0.05
"""Largest deviation of a size from the line of such a series, in logarithms."""


@dataclass(frozen=True)
class ScalingSeries:
    """runs: all runs of the problem. parts: runs by size, or all under SIZE_GROWS."""

    runs: Runs
    parts: dict[float, Runs]

    def locate(self, ranks: float, size: float | None) -> float | Refusal:
        """The requested size: a key of parts, or a size without runs."""
        if SIZE_GROWS in self.parts:
            return SIZE_GROWS if size is None or self._on_line(ranks, size) else self._off_line(size)
        if size is not None:
            return size
        if len(self.parts) == 1:
            return next(iter(self.parts))
        return Refusal(f"the runs have {len(self.parts)} sizes and none was asked for, expected a size")

    def at(self, ranks: float, size: float) -> Floats:
        """Seconds of the runs on so many ranks. size: as `locate` gives it."""
        part = self.parts.get(size)
        return np.zeros(0) if part is None else part.seconds[part.ranks == ranks]

    def _on_line(self, ranks: float, size: float) -> bool:
        x, y = np.log(self.runs.ranks), np.log(self.runs.size)
        slope, level = np.polyfit(x, y, 1)
        return abs(float(level + slope * np.log(ranks) - np.log(size))) < OFF

    def _off_line(self, size: float) -> Refusal:
        return Refusal(
            f"every size was run at one scale only, so what size {size:g} does there cannot be told from what the scale"
            " does, expected a size that grows with the ranks as before, or runs of one size at two scales"
        )


def series_of(runs: Runs) -> ScalingSeries:
    """Split the runs of a problem; one series if no size was run at two scales, and no scale at two sizes."""
    sizes = np.unique(runs.size)
    pairs = np.unique(np.stack([runs.ranks, runs.size]), axis=1).shape[1]
    if sizes.size > 1 and pairs == sizes.size == runs.scales.size:
        return ScalingSeries(runs, {SIZE_GROWS: runs})
    return ScalingSeries(runs, {float(size): runs.select(runs.size == size) for size in sizes})
