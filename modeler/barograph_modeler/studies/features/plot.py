"""Predicted over observed runtimes, as the paper's figure 5."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from matplotlib.figure import Figure

from barograph_modeler.features.estimators.conformal import RuntimeLimits
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.features.runtime import RuntimeScore

MOST: Final = 6
"""Models drawn: the best by mean error."""
COLUMNS: Final = 3
DRAWN_RUNS: Final = 400


def plot_runtimes(
    results: Sequence[tuple[RuntimeScore, Floats, RuntimeLimits]], observed: Floats, path: Path, *, time: str
) -> None:
    """One panel per model: a point per run with its limits, and the line of perfect prediction."""
    best = sorted(results, key=lambda result: result[0].mean_ape)[:MOST]
    rows, columns = math.ceil(len(best) / COLUMNS), min(len(best), COLUMNS)
    figure = Figure(figsize=(4.2 * columns, 4.0 * rows), layout="constrained")
    shown = np.linspace(0, len(observed) - 1, min(len(observed), DRAWN_RUNS)).astype(int)
    line = np.array([observed.min(), observed.max()])
    for axes, (score, predicted, limits) in zip(
        figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat, best, strict=False
    ):
        lower, upper = limits.lower[shown], limits.upper[shown]
        axes.vlines(observed[shown], lower, upper, color="#9ecae1", linewidth=0.8)
        axes.plot(observed[shown], predicted[shown], ".", color="#08519c", markersize=3)
        axes.plot(line, line, color="#333333", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel=f"observed {time}", ylabel=f"predicted {time}")
        axes.set_ylim(line[0] / 5, line[1] * 5)
        axes.set_title(
            f"{score.model}: {100 * score.mean_ape:.1f} %, holds {100 * score.coverage_95:.0f} %", fontsize=10
        )
        axes.label_outer()
    figure.savefig(path, dpi=120)
