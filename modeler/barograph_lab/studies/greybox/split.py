"""The runs of one application, split at c_f and w_f into those that grey-box models learn and those that are scored.

Strong scaling: w = 1, speedups over the serial run of the same size. Hybrid: speedups over the serial run of the
smallest size, scored where w <= 0.5. Weak: of those, the runs with as much work per process as some run of the
smallest size. Runs on more than c_f processes are scored. c_f is a quantile of the scales of each size, the median in
the paper, since sizes need not be run at the same scales; w_f is a quantile of the sizes.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from barograph_lab.studies.greybox.fraction import TooFewRuns, ratios, references, serial_time
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.scaling.history import Runs

Scaling = Literal["strong", "hybrid", "weak"]

LINE_TOLERANCE: Final = 0.01
"""Relative difference of work per process on one line of weak scaling."""


@dataclass(frozen=True)
class CutoffSplit:
    """One application's runs with their cutoffs.

    c_f: per run. original: m_original, None for strong scaling. serial: T(1, m) by size. scored: runs beyond c_f to
    score. trained: runs within both cutoffs. measured: speedup per run. w: original over scaled work per run.
    """

    runs: Runs
    c_f: Floats
    w_f: float
    original: float | None
    serial: dict[float, float]
    scored: npt.NDArray[np.bool_]
    trained: npt.NDArray[np.bool_]
    measured: Floats
    w: Floats

    def known_serial(self, sizes: Floats) -> dict[float, float]:
        """T(1, m) of some sizes, from their runs within c_f; without the sizes whose runs do not determine it."""
        within = self.runs.select(self.runs.ranks <= self.c_f)
        found = dict(self.serial)
        for size in sizes.tolist():
            if size not in found:
                with suppress(TooFewRuns):
                    found[size] = serial_time(within.select(within.size == size))
        return found


def split(runs: Runs, scaling: Scaling, c_f: float = 0.5, w_f: float = 0.5) -> CutoffSplit:
    """Split at quantiles of scales and sizes. Raises TooFewRuns if there are too few sizes or no run to score."""
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
    scored = runs.ranks > cutoff
    within = runs.select(~scored)
    original = None if scaling == "strong" else float(sizes[0])
    serial = {}
    for size in sizes if original is None else sizes[:1]:
        serial[float(size)] = serial_time(within.select(within.size == size))
    trained = ~scored & (runs.size <= largest)
    if original is not None:
        scored &= runs.size >= 2 * original
    if scaling == "weak":
        scored &= _on_lines(runs, sizes[0])
    if not scored.any():
        raise TooFewRuns(f"no run beyond the cutoff of {c_f:g} of the scales, expected some to score")
    measured = references(runs, serial, original) / runs.seconds
    return CutoffSplit(runs, cutoff, largest, original, serial, scored, trained, measured, ratios(runs, original))


def _on_lines(runs: Runs, smallest: float) -> npt.NDArray[np.bool_]:
    """Whether each run has the work per process of some run of the smallest size."""
    lines = np.unique(smallest / runs.ranks[runs.size == smallest])
    per_process = runs.size / runs.ranks
    return np.asarray(np.any(np.abs(per_process[:, None] / lines - 1) <= LINE_TOLERANCE, axis=1))
