"""The strong-scaling projection: runtime and speedup over ranks with their intervals, beside the runs behind them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from barograph.views.log import limits
from barograph.views.words import listed, plural

BAND, LINE, DOTS, ASKED = "#c6dbef", "#2171b5", "#252525", "#cb181d"


def plot(said: Mapping[str, Any], path: Path) -> None:
    """Draw an answer that has a curve to a file. Raises OSError."""
    figure = draw(said)
    figure.suptitle(", ".join(filter(None, (f"{said['app']} on {said['cluster']}", listed(said["params"])))))
    figure.savefig(path, dpi=120)


def draw(said: Mapping[str, Any]) -> Figure:
    """Runtime and, where there is one, speedup of an answer that has a curve."""
    curve = np.array(said["curve"], dtype=float).reshape(-1, 4)
    observed = np.array(said["observed"], dtype=float).reshape(-1, 2)
    asked = [said["ranks"], *limits(said)]
    with mpl.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(11, 5), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw(left, curve, observed, asked)
        left.set_ylabel("runtime in seconds")
        left.legend(frameon=False, loc="best")
        if said["speedup"] is not None:
            ranks, seconds = said["speedup"]["base_ranks"], said["speedup"]["base_seconds"]
            _draw(right, _faster(curve, seconds), _faster(observed, seconds), _faster(np.array([asked]), seconds)[0])
            right.plot(curve[:, 0], curve[:, 0] / ranks, color="0.6", lw=1, ls="--", label="ideal")
            right.set_ylabel(f"speedup over {plural(ranks, 'rank')}")
            right.legend(*_only(right, "ideal"), frameon=False, loc="upper left")
    return figure


def _faster(rows: Any, seconds: float) -> Any:
    """Seconds in every column but the first turned into speedups."""
    return np.column_stack([rows[:, 0], seconds / rows[:, 1:]])


def _draw(axes: Axes, curve: Any, observed: Any, asked: Any) -> None:
    """curve: ranks, limit, expected, limit. observed: ranks, value. asked: as a row of the curve."""
    axes.fill_between(curve[:, 0], curve[:, 1], curve[:, 3], color=BAND, lw=0, label="95 % interval")
    axes.plot(curve[:, 0], curve[:, 2], color=LINE, lw=2, label="expected")
    axes.plot(observed[:, 0], observed[:, 1], ".", color=DOTS, ms=6, label="runs", zorder=3)
    reach = [[abs(asked[2] - min(asked[1], asked[3]))], [abs(asked[2] - max(asked[1], asked[3]))]]
    axes.errorbar(
        [asked[0]], [asked[2]], reach, fmt="o", color=ASKED, capsize=4, label=f"{asked[0]:,.0f} ranks", zorder=4
    )
    if observed.size:
        axes.axvline(observed[:, 0].max(), color="0.6", lw=1, ls=":", label="largest run")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.4g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(color="0.92")
    axes.set_xlabel("ranks")


def _only(axes: Axes, label: str) -> tuple[list[Any], list[str]]:
    handles, labels = axes.get_legend_handles_labels()
    return [handles[labels.index(label)]], [label]
