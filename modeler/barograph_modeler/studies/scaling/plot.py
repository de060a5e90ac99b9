"""Pictures of a scaling backtest: each workload with its predictions, and all models side by side."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter

from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.rivals.laws import RuntimeCurve
from barograph_modeler.studies.scaling.accuracy import ModelAccuracy
from barograph_modeler.studies.scaling.models import Limited
from barograph_modeler.studies.scaling.workloads import WorkloadSplit

POINTS: Final = 25
"""At which a curve is drawn."""
OURS: Final = "barograph"
COLOR: Final = "#1f6f43"
SUMMARY: Final = "summary.png"


def plot_scaling(
    curves: Mapping[str, Mapping[str, RuntimeCurve | str]],
    splits: Sequence[WorkloadSplit],
    rows: Sequence[ModelAccuracy],
    folder: Path,
    *,
    time: str,
    ranks: str,
) -> None:
    """Write summary.png and a PNG per workload into a folder, which is made. time, ranks: for the axes."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(splits, 1):
        figure, axes = plt.subplots(figsize=(7.2, 4.8), layout="constrained", dpi=110)
        _draw(axes, {model: fitted[one.name] for model, fitted in curves.items()}, one)
        axes.set_title(", ".join(one.key.values()), loc="left", fontsize=9)
        axes.set_xlabel(ranks)
        axes.set_ylabel(time)
        axes.legend(frameon=False, fontsize=8)
        figure.savefig(folder / f"{number:03d}-{_file_name(one)}.png")
        plt.close(figure)
    _summary(rows, folder / SUMMARY)


def _draw(axes: Axes, curves: Mapping[str, RuntimeCurve | str], one: WorkloadSplit) -> None:
    if one.scored is None:
        return
    scales = np.union1d(one.learned.scales, one.scored.scales)
    x = np.unique(np.rint(np.geomspace(scales[0], scales[-1], POINTS)))
    seen = np.concatenate([one.learned.seconds, one.scored.seconds])
    # A rival that runs away would squeeze everything else.
    low, high = seen.min() / 3, seen.max() * 3
    sizes = np.unique(one.scored.size)
    rivals = [model for model in curves if model != OURS]
    colors = dict(zip(rivals, plt.colormaps["plasma"](np.linspace(0, 0.9, len(rivals))), strict=True))
    for size in sizes:
        rows = (x, np.full(x.size, np.nan), np.full(x.size, size))
        for model, curve in curves.items():
            if isinstance(curve, str):
                continue
            with np.errstate(all="ignore"):
                y = curve(*rows)
            label = model if size == sizes[0] else None
            if model == OURS:
                axes.plot(x, y, color=COLOR, lw=2.2, label=label, zorder=3)
            else:
                axes.plot(x, y, color=colors[model], lw=0.8, label=label, zorder=2)
            if isinstance(curve, Limited):
                limits = curve.limits(*rows)
                axes.fill_between(x, limits.lower, limits.upper, color=COLOR, alpha=0.15, lw=0, zorder=1)
            low, high = _stretched(curve, rows, low, high)
    axes.plot(one.learned.ranks, one.learned.seconds, "o", color="black", ms=4, label="learned", zorder=4)
    axes.plot(one.scored.ranks, one.scored.seconds, "o", mfc="white", mec="black", ms=4, label="scored", zorder=4)
    axes.axvline(one.learned.scales[-1], color="#999999", lw=0.8, ls=":")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_ylim(low, high)


def _stretched(
    curve: RuntimeCurve, rows: tuple[Floats, Floats, Floats], low: float, high: float
) -> tuple[float, float]:
    """Limits of the axis that hold the interval too, but no more than a factor of 10 beyond."""
    if not isinstance(curve, Limited):
        return low, high
    limits = curve.limits(*rows)
    if not np.isfinite(limits.lower).any():
        return low, high
    return max(low / 10, min(low, np.nanmin(limits.lower))), min(high * 10, max(high, np.nanmax(limits.upper)))


def _summary(rows: Sequence[ModelAccuracy], path: Path) -> None:
    models = list(dict.fromkeys(row.model for row in rows))
    errors = {model: [row.median_ape for row in rows if row.model == model and row.median_ape] for model in models}
    models = sorted((model for model in models if errors[model]), key=lambda model: -float(np.median(errors[model])))
    figure, axes = plt.subplots(figsize=(7.2, 0.8 + 0.42 * len(models)), layout="constrained", dpi=110)
    for y, model in enumerate(models):
        lower, quarter, middle, three, upper = 100 * np.quantile(errors[model], [0.05, 0.25, 0.5, 0.75, 0.95])
        color = COLOR if model == OURS else "#777777"
        axes.plot([lower, upper], [y, y], "-", color=color, lw=1)
        axes.plot([quarter, three], [y, y], "-", color=color, lw=5, solid_capstyle="butt")
        axes.plot([middle], [y], "o", color="white", mec=color, ms=6)
        axes.annotate(
            f"{middle:.1f} %", (middle, y), xytext=(0, 7), textcoords="offset points", fontsize=8, ha="center"
        )
    axes.set_yticks(range(len(models)), models)
    axes.set_ylim(-0.6, len(models) - 0.3)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g} %")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("median error of a workload: median, quarters, 5 to 95 % of workloads")
    figure.savefig(path)
    plt.close(figure)


def _file_name(one: WorkloadSplit) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(one.key.values()))[:100].strip("-")
