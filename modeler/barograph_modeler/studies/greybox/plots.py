"""The grey-box paper's figures 2 to 7 as PNG files: errors, their sensitivity to the cutoffs, projections.

| file | figure |
|---|---|
| errors-SCALING.png | 2 (strong), 3 (hybrid): root squared errors of speedups |
| cutoff-ranks-SCALING.png | 4, or 6 with two levels of parallelism: error over the quantile that is c_f |
| cutoff-size-SCALING.png | 5, or 6: error over the quantile that is w_f |
| projections.png | 7: speedups of the largest size beyond c_f |

The paper varies w_f from 0.2 to 0.6 of the largest size; sizes of our files are few and grow by factors, so both
cutoffs are quantiles, as everywhere in the study. Where c_f varies w_f stays at the given quantile, and conversely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import matplotlib as mpl
import numpy as np

from barograph_modeler.scaling.history import Runs
from barograph_modeler.studies.greybox.fraction import TooFewRuns
from barograph_modeler.studies.greybox.greybox import METHODS
from barograph_modeler.studies.greybox.greybox_study import LABELS, Scored, evaluate
from barograph_modeler.studies.greybox.split import Scaling
from barograph_modeler.studies.plot import panels, save_with_legend
from barograph_modeler.studies.runs import over_known

QUANTILES: Final = (0.25, 0.4, 0.5, 0.6, 0.75)
"""Cutoffs of a sweep."""
SWEPT: Final = (*(method.label for method in METHODS), "Amdahl Aggregate p")
"""Models of a sweep: those that depend on both cutoffs."""
COLORS: Final = dict(zip(LABELS, mpl.colormaps["tab10"](range(len(LABELS))), strict=True))
Cutoff = Literal["ranks", "size"]


def sweep(
    applications: Mapping[tuple[str, ...], Runs], scaling: Scaling, cutoff: Cutoff, fixed: float, seed: int
) -> dict[float, list[Scored]]:
    """The scores of SWEPT at each of QUANTILES of one cutoff. fixed: quantile of the other cutoff.

    Applications that a quantile leaves too few runs are missing from its scores.
    """
    found: dict[float, list[Scored]] = {}
    for quantile in QUANTILES:
        c_f, w_f = (quantile, fixed) if cutoff == "ranks" else (fixed, quantile)
        found[quantile] = []
        for name, runs in applications.items():
            try:
                found[quantile] += evaluate(name, runs, scaling, c_f, w_f, seed, SWEPT)
            except TooFewRuns:
                continue
    return found


def plot_errors(rows: Sequence[Scored], folder: Path) -> None:
    """Figures 2 and 3: quartiles, 5 and 95 % of the root squared errors, a panel per column of the tables."""
    for scaling in dict.fromkeys(row.scaling for row in rows):
        mine = [row for row in rows if row.scaling == scaling]
        figure, drawn = panels(list(dict.fromkeys(row.application[0] for row in mine)))
        for axes, column in drawn:
            for at, label in enumerate(LABELS):
                parts = [row.errors for row in mine if (row.application[0], row.model) == (column, label)]
                errors = np.concatenate(parts)
                errors = errors[~np.isnan(errors)]
                if errors.size:
                    low, quarter, middle, three, high = np.percentile(errors, [5, 25, 50, 75, 95])
                    axes.plot([at, at], [low, high], "-", color=COLORS[label], lw=1)
                    axes.plot([at, at], [quarter, three], "-", color=COLORS[label], lw=7, solid_capstyle="butt")
                    axes.plot([at], [middle], "_", color="black", ms=9, zorder=3)
            axes.set_xticks(range(len(LABELS)), LABELS, rotation=45, ha="right", fontsize=7)
            axes.set(yscale="log", ylabel="root squared error of speedup")
            axes.set_title(column, loc="left", fontsize=8)
        figure.savefig(folder / f"errors-{scaling}.png")


def plot_sweep(swept: Mapping[float, Sequence[Scored]], cutoff: Cutoff, folder: Path) -> None:
    """Figures 4 to 6: median relative RMSE over the applications of each column. Without any score nothing is drawn."""
    rows = [row for scored in swept.values() for row in scored]
    if not rows:
        return
    figure, drawn = panels(list(dict.fromkeys(row.application[0] for row in rows)))
    for axes, column in drawn:
        for label in SWEPT:
            errors = [
                over_known(
                    np.median,
                    [row.rmse_relative for row in scored if (row.application[0], row.model) == (column, label)],
                )
                for scored in swept.values()
            ]
            values = [np.nan if error is None else error for error in errors]
            axes.plot(list(swept), values, "o-", ms=4, lw=1, color=COLORS[label], label=label)
        axes.set(yscale="log", ylabel="relative RMSE of speedup")
        axes.set_xlabel("quantile of the scales that is c_f" if cutoff == "ranks" else "quantile of the sizes, w_f")
        axes.set_title(column, loc="left", fontsize=8)
    save_with_legend(figure, folder / f"cutoff-{cutoff}-{rows[0].scaling}.png")


def plot_projections(rows: Sequence[Scored], folder: Path) -> None:
    """Figure 7: strong scaling of the largest size of some applications, measured and predicted beyond c_f."""
    strong = [row for row in rows if row.scaling == "strong"]
    if not strong:
        return
    figure, drawn = panels(list(dict.fromkeys(row.application for row in strong)))
    for axes, application in drawn:
        mine = [row for row in strong if row.application == application]
        of_largest = mine[0].sizes == mine[0].sizes.max()
        ranks = mine[0].ranks[of_largest]
        axes.plot(ranks, mine[0].measured[of_largest], "o", color="black", ms=4, label="measured", zorder=3)
        scales = np.unique(ranks)
        for row in mine:
            predicted = row.predicted[of_largest]
            means = [float(np.mean(predicted[ranks == scale])) for scale in scales]
            axes.plot(scales, means, ".-", lw=1, color=COLORS[row.model], label=row.model)
        axes.set_xscale("log", base=2)
        axes.set(yscale="log", xlabel="processes", ylabel="speedup")
        axes.set_title(", ".join(application), loc="left", fontsize=8)
    save_with_legend(figure, folder / "projections.png")
