"""What the grey-box models may learn from and what is scored: one application's runs, cut at c_f and w_f.

Strong scaling: w = 1, speedups over the serial run of the same size. Hybrid: speedups over the serial run of the
smallest size, scored where w <= 0.5. Weak: of those, the runs with as much work per process as some run of the
smallest size. Runs with more than c_f processes are scored. c_f is a quantile of the scales that each size was run at,
the median in the paper, since sizes need not be run at the same scales; w_f one of the sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs
from barograph_modeler.studies.greybox.fraction import TooFewRuns, ratios, references, serial_time

Scaling = Literal["strong", "hybrid", "weak"]

LINE_TOLERANCE: Final = 0.01
"""Relative difference of work per process on one line of weak scaling."""


@dataclass(frozen=True)
class CutoffSplit:
    """One application's runs with their cutoffs. c_f: per run. original: m_original, None for strong scaling."""

    runs: Runs
    c_f: Floats
    w_f: float
    original: float | None
    serial: dict[float, float]
    scored: npt.NDArray[np.bool_]

    @property
    def within(self) -> npt.NDArray[np.bool_]:
        """Runs up to c_f."""
        return self.runs.ranks <= self.c_f

    @property
    def trained(self) -> npt.NDArray[np.bool_]:
        """Runs up to both cutoffs."""
        return self.within & (self.runs.size <= self.w_f)

    @property
    def measured(self) -> Floats:
        """Speedup per run."""
        return references(self.runs, self.serial, self.original) / self.runs.seconds

    @property
    def w(self) -> Floats:
        """Original over scaled work per run."""
        return ratios(self.runs, self.original)


def split(runs: Runs, scaling: Scaling, c_f: float = 0.5, w_f: float = 0.5) -> CutoffSplit:
    """Cut the runs at quantiles of their scales and sizes. Raises TooFewRuns where nothing is left to use."""
    sizes = np.unique(runs.size)
    largest = float(np.quantile(sizes, w_f))
    if scaling != "strong":
        if sizes.size < 2:
            raise TooFewRuns(f"{sizes.size} problem size, expected at least 2 for {scaling} scaling")
        largest = max(largest, float(sizes[1]))
    cutoff = np.empty(len(runs))
    for size in sizes:
        rows = runs.size == size
        cutoff[rows] = np.quantile(np.unique(runs.ranks[rows]), c_f)
    within = runs.select(runs.ranks <= cutoff)
    original = None if scaling == "strong" else float(sizes[0])
    serial = {}
    for size in sizes if original is None else sizes[:1]:
        serial[float(size)] = serial_time(within.select(within.size == size))
    scored = runs.ranks > cutoff
    if original is not None:
        scored &= runs.size >= 2 * original
    if scaling == "weak":
        scored &= _on_lines(runs, sizes[0])
    if not scored.any():
        raise TooFewRuns(f"no run beyond the cutoff of {c_f:g} of the scales, expected some to score")
    return CutoffSplit(runs, cutoff, largest, original, serial, scored)


def _on_lines(runs: Runs, smallest: float) -> npt.NDArray[np.bool_]:
    """Whether each run has the work per process of some run of the smallest size."""
    lines = np.unique(smallest / runs.ranks[runs.size == smallest])
    per_process = runs.size / runs.ranks
    return np.asarray(np.any(np.abs(per_process[:, None] / lines - 1) <= LINE_TOLERANCE, axis=1))
