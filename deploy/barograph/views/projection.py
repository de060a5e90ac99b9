"""The picture of `barograph predict --plot`: runtime and speedup over ranks with their intervals, and the runs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from barograph.views.log import limits
from barograph.views.words import listed, plural

TITLE_WIDTH = 48
"""Characters of a line of the title, for each panel."""
FEW_TICKS = 8
"""Ratio of the ends of an axis up to which 1, 2 and 5 times powers of ten are too few ticks."""
BAND, LINE, DOTS, ASKED = "#c6dbef", "#2171b5", "#252525", "#cb181d"


def plot(answer: Mapping[str, Any], path: Path) -> None:
    """Draw runtime and, where there is one, speedup of an answer that has a curve to a file. Raises OSError."""
    curve = np.array(answer["curve"], dtype=float).reshape(-1, 4)
    observed = np.array(answer["observed"], dtype=float).reshape(-1, 2)
    asked = [answer["ranks"], *limits(answer)]
    with mpl.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        has_speedup, has_parts = answer["speedup"] is not None and len(curve) > 1, len(answer["parts_curve"]) > 1
        count = 1 + has_speedup + has_parts
        figure = Figure(figsize=(5.5 * count, 5), layout="constrained")
        left, *rest = figure.subplots(1, count, squeeze=False)[0]
        if has_parts:
            _draw_parts(rest[-1], answer["parts_curve"])
        _draw(left, curve, observed, asked)
        left.set_ylabel("runtime in seconds")
        left.legend(frameon=False, loc="best")
        if has_speedup:
            right = rest[0]
            ranks, seconds = answer["speedup"]["base_ranks"], answer["speedup"]["base_seconds"]
            _draw(right, _speedups(curve, seconds), _speedups(observed, seconds), _speedups([asked], seconds)[0])
            (ideal,) = right.plot(curve[:, 0], curve[:, 0] / ranks, color="0.6", lw=1, ls="--", label="ideal")
            right.set_ylabel(f"speedup over {plural(ranks, 'rank')}")
            right.legend(handles=[ideal], frameon=False, loc="upper left")
        title = ", ".join(filter(None, (f"{answer['app']} on {answer['cluster']}", listed(answer["params"]))))
        figure.suptitle("\n".join(textwrap.wrap(title, TITLE_WIDTH * count)))
        figure.savefig(path, dpi=120)


def _draw_parts(axes: Axes, curve: Any) -> None:
    """Shares of the parts over ranks. curve: rows of ranks and seconds by part."""
    ranks, every = zip(*curve, strict=True)
    names = list(dict.fromkeys(name for parts in every for name in parts))
    shares = np.array([[100 * parts.get(name, 0.0) / sum(parts.values()) for parts in every] for name in names])
    axes.stackplot(ranks, shares, labels=names, alpha=0.8)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylim(0, 100)
    axes.set_xlabel("ranks")
    axes.set_ylabel("share of the time in per cent")
    axes.legend(frameon=True, loc="lower left", fontsize=9)


def _speedups(rows: Any, seconds: float) -> Any:
    """Rows with durations in every column but the first as rows with speedups over `seconds`."""
    ranks, *times = np.transpose(np.asarray(rows))
    return np.column_stack([ranks, *(seconds / column for column in times)])


def _draw(axes: Axes, curve: Any, observed: Any, asked: Any) -> None:
    """Draw one panel. curve, asked: ranks, limit, expected, limit. observed: ranks, value."""
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
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if high > FEW_TICKS * low else MaxNLocator(6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(color="0.92")
    axes.set_xlabel("ranks")
