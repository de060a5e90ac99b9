"""Pictures of bands and of what was observed: over scale, as in the paper's figures 5 to 9, or in the order of time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeVar

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from barograph_modeler.studies.bands.methods import METHODS
from barograph_modeler.studies.bands.tasks import programs
from barograph_modeler.studies.series import Series

PANELS: Final = 6
FIXED: Final = "fixed at the half"
POINTS: Final = 400
"""Observed values drawn per scale or series, evenly spread over it."""
COLORS: Final = {"nonparametric": "#b3261e", "gev": "#c77700", "barograph": "#1f6f43", "barograph-live": "#4a6fa5"}
OFFSETS: Final = {"nonparametric": 0.16, "gev": 0.24, "barograph": 0.32}
"""Where a band stands right of the observed values, in doublings of scale."""
T = TypeVar("T")

BY_NAME: Final = {method.name: method for method in METHODS}


def plot_scales(series: Sequence[Series], value: str, scale: str, path: Path) -> None:
    """Write a PNG: for some programs the observed values at each scale, and the bands fitted to all smaller scales.

    value, scale: names of the columns, for the axes. Raises ValueError where no program was seen at two scales.
    """
    several = [program for program in programs(series) if len(program) > 1]
    if not several:
        raise ValueError("no series was seen at two scales, expected at least two to draw bands over scale")
    chosen = _spread(several, PANELS)
    figure, panels = _panels(len(chosen))
    for axes, program in zip(panels, chosen, strict=True):
        _draw_program(axes, program)
        axes.set_title(next(iter(program.values())).name, loc="left", fontsize=8)
        axes.set_xlabel(scale)
        axes.set_ylabel(value)
    _finish(figure, panels, path)


def plot_order(series: Sequence[Series], value: str, mode: str, path: Path) -> None:
    """Write a PNG: for some series the observed values in their order, and Barograph's limits for them.

    mode: "half" draws the band fixed at the half, and the limits that go on learning; "prequential" the latter only.
    """
    chosen = _spread(list(series), PANELS)
    figure, panels = _panels(len(chosen))
    for axes, one in zip(panels, chosen, strict=True):
        x = one.values
        at = np.array(_spread(range(x.size), 4 * POINTS))
        axes.plot(at, x[at], ".", ms=2.5, color="#777777", label="observed", zorder=1)
        half = x.size // 2 if mode == "half" else 0
        live, fixed = BY_NAME["barograph-live"], BY_NAME["barograph"]
        if live.follow is not None:
            limits = live.follow(x)
            for i, limit in enumerate(limits):
                label = ("steered limits", None)[i]
                axes.plot(range(half, x.size), limit[half:], lw=1, color=COLORS[live.name], label=label)
        if half and fixed.fit is not None and (band := fixed.fit(x[:half])) is not None:
            axes.fill_between(
                [half, x.size], band.lower, band.upper, color=COLORS[fixed.name], alpha=0.2, lw=0, label=FIXED
            )
        axes.set_title(one.name if one.scale is None else f"{one.name}, {one.scale:g}", loc="left", fontsize=8)
        axes.set_xlabel("position in the series")
        axes.set_ylabel(value)
        _log_where_wide(axes, x)
    _finish(figure, panels, path)


def _draw_program(axes: Axes, program: dict[float, Series]) -> None:
    jitter = np.random.default_rng(0)
    for i, (scale, one) in enumerate(program.items()):
        x = one.values[_spread(range(one.values.size), POINTS)]
        near = scale * 2 ** jitter.uniform(-0.06, 0.06, x.size)
        axes.plot(near, x, ".", ms=2, color="#999999", zorder=1, label=None if i else "observed")
        lower, middle, upper = np.quantile(one.values, [0.025, 0.5, 0.975])
        _bar(axes, scale, (lower, middle, upper), "black", None if i else "central 95 % of them")
        seen = {own: other.values for own, other in program.items() if own < scale}
        for name, offset in OFFSETS.items():
            project = BY_NAME[name].project
            if seen and project is not None and (band := project(seen, scale)) is not None:
                label = f"{name}, from smaller scales" if i == 1 else None
                _bar(axes, scale * 2**offset, (band.lower, None, band.upper), COLORS[name], label)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(program), [f"{scale:g}" for scale in program])
    _log_where_wide(axes, np.concatenate([one.values for one in program.values()]))


def _bar(axes: Axes, at: float, limits: tuple[float, float | None, float], color: str, label: str | None) -> None:
    lower, middle, upper = limits
    axes.plot([at, at], [lower, upper], "-_", color=color, lw=2.2, ms=6, label=label, zorder=3)
    if middle is not None:
        axes.plot([at], [middle], "o", color=color, ms=4, zorder=3)


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    columns = min(count, 3)
    rows = -(-count // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(4.6 * columns + 1, 3.4 * rows + 0.6), squeeze=False, layout="constrained", dpi=110
    )
    for axes in grid.flat[count:]:
        axes.remove()
    return figure, list(grid.flat[:count])


def _finish(figure: Figure, panels: Sequence[Axes], path: Path) -> None:
    labelled = max(panels, key=lambda axes: len(axes.get_legend_handles_labels()[0]))
    figure.legend(*labelled.get_legend_handles_labels(), loc="outside upper center", ncols=5, frameon=False, fontsize=9)
    figure.savefig(path)
    plt.close(figure)


def _log_where_wide(axes: Axes, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    if values.min() > 0 and values.max() > 10 * values.min():
        axes.set_yscale("log")


def _spread(items: Sequence[T], count: int) -> list[T]:
    """At most `count` of the items, evenly spread, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    return [items[i] for i in np.linspace(0, len(items) - 1, count).astype(int)]
