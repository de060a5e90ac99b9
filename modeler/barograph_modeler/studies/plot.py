"""Plots of back-tests as PNG files: bands over scale or in order, scaling curves, predicted runtimes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from barograph_modeler.features.estimators.conformal import RuntimeLimits
from barograph_modeler.maxima.predictive import Predictive
from barograph_modeler.maxima.sample import Floats
from barograph_modeler.studies.bands.methods import METHODS
from barograph_modeler.studies.bands.tasks import programs
from barograph_modeler.studies.features.runtime import RuntimeScore
from barograph_modeler.studies.rivals.laws import RuntimeCurve
from barograph_modeler.studies.scaling.accuracy import ModelAccuracy
from barograph_modeler.studies.scaling.models import PredictorCurve
from barograph_modeler.studies.scaling.workloads import WorkloadSplit
from barograph_modeler.studies.series import Series

PANELS: Final = 6
"""Panels per file, one per series, program or model."""
POINTS: Final = 400
"""Observed values drawn per scale or series, evenly spaced."""
CURVE_POINTS: Final = 25
"""Scales per curve."""
OURS: Final = "barograph"
GREEN: Final = "#1f6f43"
"""The colour of Barograph's own models."""
STEERED: Final = "#4a6fa5"
COLORS: Final = {"nonparametric": "#b3261e", "gev": "#c77700", OURS: GREEN}
OFFSETS: Final = {"nonparametric": 0.16, "gev": 0.24, OURS: 0.32}
"""Distance of a band from the observed values, in doublings of scale."""
T = TypeVar("T")

BY_NAME: Final = {method.name: method for method in METHODS}


def plot_scales(series: Sequence[Series], value: str, scale: str, path: Path) -> None:
    """Write a PNG: for some programs the observed values at each scale, and the bands fitted to all smaller scales.

    As the paper's figures 5 to 9. value, scale: axis labels. Raises ValueError if no program has two scales.
    """
    several = [program for program in programs(series) if len(program) > 1]
    if not several:
        raise ValueError("no series was seen at two scales, expected at least two to draw bands over scale")
    figure, drawn = panels(several)
    for axes, program in drawn:
        _draw_program(axes, program)
        axes.set_title(next(iter(program.values())).name, loc="left", fontsize=8)
        axes.set(xlabel=scale, ylabel=value)
    save_with_legend(figure, path)


def plot_order(series: Sequence[Series], value: str, mode: str, path: Path) -> None:
    """Write a PNG: for some series the observed values in order, and Barograph's limits for them.

    mode: "half" draws the band fitted to the first half and the learning limits; "prequential" the latter only.
    """
    figure, drawn = panels(series)
    for axes, one in drawn:
        x = one.values
        at = np.array(_thinned(range(x.size), 4 * POINTS))
        axes.plot(at, x[at], ".", ms=2.5, color="#777777", label="observed", zorder=1)
        half = x.size // 2 if mode == "half" else 0
        for limit, label in zip(Predictive().learn(x), ("steered limits", None), strict=True):
            axes.plot(range(half, x.size), limit[half:], lw=1, color=STEERED, label=label)
        fixed = BY_NAME[OURS].fit
        if half and fixed is not None and (band := fixed(x[:half])) is not None:
            axes.fill_between(
                [half, x.size], band.lower, band.upper, color=GREEN, alpha=0.2, lw=0, label="fixed at the half"
            )
        axes.set_title(one.name if one.scale is None else f"{one.name}, {one.scale:g}", loc="left", fontsize=8)
        axes.set(xlabel="position in the series", ylabel=value)
        _log_where_wide(axes, x)
    save_with_legend(figure, path)


def plot_runtimes(
    results: Sequence[tuple[RuntimeScore, Floats, RuntimeLimits]], observed: Floats, path: Path, *, time: str
) -> None:
    """Write a PNG of the models with the least mean errors: a point per run, its limits, the perfect prediction.

    As the paper's figure 5. time: axis label.
    """
    figure, drawn = panels(sorted(results, key=lambda result: result[0].mean_ape)[:PANELS])
    shown = np.array(_thinned(range(len(observed)), POINTS))
    line = np.array([observed.min(), observed.max()])
    for axes, (score, predicted, limits) in drawn:
        axes.vlines(observed[shown], limits.lower[shown], limits.upper[shown], color="#9ecae1", linewidth=0.8)
        axes.plot(observed[shown], predicted[shown], ".", color="#08519c", markersize=3)
        axes.plot(line, line, color="#333333", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel=f"observed {time}", ylabel=f"predicted {time}")
        axes.set_ylim(line[0] / 5, line[1] * 5)
        title = f"{score.model}: {100 * score.mean_ape:.1f} %, holds {100 * score.coverage_95:.0f} %"
        axes.set_title(title, loc="left", fontsize=8)
    figure.savefig(path)


def plot_scaling(
    curves: Mapping[str, Mapping[str, RuntimeCurve | str]],
    splits: Sequence[WorkloadSplit],
    rows: Sequence[ModelAccuracy],
    folder: Path,
    *,
    time: str,
    ranks: str,
) -> None:
    """Write summary.png and a PNG per workload to a folder, which is created. time, ranks: axis labels."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(splits, 1):
        figure, axes = one_panel(7.2, 4.8)
        _draw_workload(axes, {model: fitted[one.name] for model, fitted in curves.items()}, one)
        axes.set_title(", ".join(one.key.values()), loc="left", fontsize=8)
        axes.set(xlabel=ranks, ylabel=time)
        axes.legend(frameon=False, fontsize=8)
        name = re.sub(r"[^A-Za-z0-9.]+", "-", "-".join(one.key.values()))[:100].strip("-")
        figure.savefig(folder / f"{number:03d}-{name}.png")
    _plot_summary(rows, folder / "summary.png")


def _draw_program(axes: Axes, program: dict[float, Series]) -> None:
    jitter = np.random.default_rng(0)
    for i, (scale, one) in enumerate(program.items()):
        x = one.values[_thinned(range(one.values.size), POINTS)]
        near = scale * 2 ** jitter.uniform(-0.06, 0.06, x.size)
        axes.plot(near, x, ".", ms=2, color="#999999", zorder=1, label=None if i else "observed")
        lower, middle, upper = np.quantile(one.values, [0.025, 0.5, 0.975])
        _draw_bar(axes, scale, lower, upper, "black", None if i else "central 95 % of them")
        axes.plot([scale], [middle], "o", color="black", ms=4, zorder=3)
        seen = {own: other.values for own, other in program.items() if own < scale}
        for name, offset in OFFSETS.items():
            project = BY_NAME[name].project
            if seen and project is not None and (band := project(seen, scale)) is not None:
                label = f"{name}, from smaller scales" if i == 1 else None
                _draw_bar(axes, scale * 2**offset, band.lower, band.upper, COLORS[name], label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(program), [f"{scale:g}" for scale in program])
    _log_where_wide(axes, np.concatenate([one.values for one in program.values()]))


def _draw_bar(axes: Axes, at: float, lower: float, upper: float, color: str, label: str | None) -> None:
    axes.plot([at, at], [lower, upper], "-_", color=color, lw=2.2, ms=6, label=label, zorder=3)


def _draw_workload(axes: Axes, curves: Mapping[str, RuntimeCurve | str], one: WorkloadSplit) -> None:
    if one.scored is None:
        return
    scales = np.union1d(one.learned.scales, one.scored.scales)
    x = np.unique(np.rint(np.geomspace(scales[0], scales[-1], CURVE_POINTS)))
    seen = np.concatenate([one.learned.seconds, one.scored.seconds])
    # A diverging rival would compress everything else.
    low, high = seen.min() / 3, seen.max() * 3
    sizes = np.unique(one.scored.size)
    rivals = [model for model in curves if model != OURS]
    colors = dict(zip(rivals, mpl.colormaps["plasma"](np.linspace(0, 0.9, len(rivals))), strict=True))
    for size in sizes:
        rows = (x, np.full(x.size, np.nan), np.full(x.size, size))
        for model, curve in curves.items():
            if isinstance(curve, str):
                continue
            with np.errstate(all="ignore"):
                y = curve(*rows)
            style = {"color": GREEN, "lw": 2.2, "zorder": 3} if model == OURS else {"color": colors[model], "lw": 0.8}
            axes.plot(x, y, label=model if size == sizes[0] else None, **style)
            if isinstance(curve, PredictorCurve):
                limits = curve.limits(*rows)
                axes.fill_between(x, limits.lower, limits.upper, color=GREEN, alpha=0.15, lw=0, zorder=1)
                if np.isfinite(limits.lower).any():
                    # Extend the axis to the interval, by a factor of 10 at most.
                    low = max(low / 10, min(low, np.nanmin(limits.lower)))
                    high = min(high * 10, max(high, np.nanmax(limits.upper)))
    axes.plot(one.learned.ranks, one.learned.seconds, "o", color="black", ms=4, label="learned", zorder=4)
    axes.plot(one.scored.ranks, one.scored.seconds, "o", mfc="white", mec="black", ms=4, label="scored", zorder=4)
    axes.axvline(one.learned.scales[-1], color="#999999", lw=0.8, ls=":")
    axes.set_xscale("log", base=2)
    axes.set(yscale="log", ylim=(low, high))


def _plot_summary(rows: Sequence[ModelAccuracy], path: Path) -> None:
    models = list(dict.fromkeys(row.model for row in rows))
    errors = {model: [row.median_ape for row in rows if row.model == model and row.median_ape] for model in models}
    models = sorted((model for model in models if errors[model]), key=lambda model: -float(np.median(errors[model])))
    figure, axes = one_panel(7.2, 0.8 + 0.42 * len(models))
    for y, model in enumerate(models):
        lower, quarter, middle, three, upper = 100 * np.quantile(errors[model], [0.05, 0.25, 0.5, 0.75, 0.95])
        color = GREEN if model == OURS else "#777777"
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


def one_panel(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of one panel. width, height: inches."""
    figure = Figure(figsize=(width, height), layout="constrained", dpi=110)
    return figure, figure.subplots()


def panels(items: Sequence[T]) -> tuple[Figure, list[tuple[Axes, T]]]:
    """A figure with a panel for each of at most PANELS of the items, evenly spaced."""
    items = _thinned(items, PANELS)
    columns = min(len(items), 3)
    rows = -(-len(items) // columns)
    figure = Figure(figsize=(4.6 * columns + 1, 3.4 * rows + 0.6), layout="constrained", dpi=110)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(items) :]:
        axes.remove()
    return figure, list(zip(grid.flat, items, strict=False))


def save_with_legend(figure: Figure, path: Path) -> None:
    """Write a PNG with one legend above all panels: that of the panel with the most labels."""
    labelled = max(figure.axes, key=lambda axes: len(axes.get_legend_handles_labels()[0]))
    figure.legend(*labelled.get_legend_handles_labels(), loc="outside upper center", ncols=5, frameon=False, fontsize=9)
    figure.savefig(path)


def _log_where_wide(axes: Axes, values: Floats) -> None:
    if values.min() > 0 and values.max() > 10 * values.min():
        axes.set_yscale("log")


def _thinned(items: Sequence[T], count: int) -> list[T]:
    """At most `count` of the items, evenly spaced, including the first and the last."""
    if len(items) <= count:
        return list(items)
    return [items[i] for i in np.linspace(0, len(items) - 1, count).astype(int)]
