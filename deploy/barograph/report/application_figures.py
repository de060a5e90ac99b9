"""The figures of a report on an application."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from barograph.report.application import RunsAtScale
from barograph.report.classes import CLASSES, Class
from barograph.report.drawing import label_above, plain, styled
from barograph.views.log import Row, limits
from barograph.views.projection import ASKED, BAND, DOTS, LINE
from barograph_modeler.maxima.sample import Floats

POINTS: Final = 150
"""Intervals of one class drawn at one scale."""
JITTER: Final = 0.06


def runtimes(scales: Sequence[RunsAtScale]) -> Figure:
    """Runs by scale with the band for the next one."""
    with styled(3.6) as figure:
        axes = figure.subplots()
        for at, scale in enumerate(scales):
            label = None if at else "healthy runs"
            axes.plot(_spread(at, scale.healthy.size), scale.healthy, ".", color=DOTS, ms=5, label=label, zorder=3)
            _box(axes, at, scale.band)
            axes.plot(_spread(at, scale.alarmed.size), scale.alarmed, "x", color=ASKED, ms=6, zorder=4)
        if any(scale.alarmed.size for scale in scales):
            axes.plot([], [], "x", color=ASKED, label="runs that alarmed")
        _finish(axes, scales, "runtime in seconds")
    return figure


def intervals(one: Class, scales: Sequence[RunsAtScale]) -> Figure:
    """A sample of the intervals of a class by scale with the band for the next one."""
    with styled(3.6) as figure:
        axes = figure.subplots()
        label: str | None = "healthy intervals"
        for at, scale in enumerate(scales):
            values = 1e3 * one.samples.get(scale.workload, np.empty(0))[:POINTS]
            named = label if values.size else None
            axes.plot(_spread(at, values.size), values, ".", color=DOTS, ms=3, alpha=0.5, label=named, zorder=3)
            label = None if values.size else label
            _box(axes, at, one.bands.get(scale.workload), 1e3)
        _finish(axes, scales, "interval in milliseconds")
    return figure


def fits(classes: Sequence[Class]) -> Figure:
    """Q-Q plots of the classes that have a fit: observed over fitted quantiles."""
    with styled(3) as figure:
        panels = figure.subplots(1, CLASSES)
        for axes in panels[len(classes) :]:
            axes.remove()
        for axes, one in zip(panels, classes, strict=False):
            assert one.verdict is not None
            x = 1e3 * np.sort(one.samples[one.fitted])
            # The positions of Hosking's plots, as the paper's.
            levels = (np.arange(1, x.size + 1) - 0.35) / x.size
            fitted = 1e3 * np.array([one.verdict.pwm.quantile(level) for level in levels])
            ends = [min(x[0], fitted[0]), max(x[-1], fitted[-1])]
            axes.plot(ends, ends, color="0.6", lw=1, ls="--", zorder=1)
            axes.plot(fitted, x, ".", color=LINE if one.verdict.trusted else ASKED, ms=3, zorder=2)
            axes.set_title(f"{one.letter}: {'trusted' if one.verdict.trusted else 'not trusted'}")
            axes.set_xlabel("fitted quantile, ms")
            axes.grid(color="0.92")
        panels[0].set_ylabel("observed, ms")
    return figure


def shapes(classes: Sequence[Class]) -> Figure:
    """The shape that the modeler has fitted to each class, over time."""
    with styled(2.6) as figure:
        axes = figure.subplots()
        for one, color in zip(classes, (LINE, DOTS, "0.5"), strict=False):
            times = [datetime.fromtimestamp(row["fitted_at"], UTC) for row in one.shapes]
            # matplotlib's own types know no dates.
            axes.plot(times, [row["shape"] for row in one.shapes], ".-", color=color, ms=4, lw=1, label=one.letter)  # type: ignore[arg-type]
        axes.axhline(0, color="0.6", lw=1, ls="--", zorder=0)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator(), tz=UTC))  # type: ignore[no-untyped-call]
        axes.set_ylabel("shape k")
        axes.grid(color="0.92")
        plain(axes)
        label_above(axes)
    return figure


def forecasts(rows: Sequence[Row]) -> Figure:
    """What was predicted of runs while they ran, and their runtimes: relative to what was expected."""
    colors = {"inside": DOTS, "outside": ASKED}
    with styled(2.8) as figure:
        axes = figure.subplots()
        for at, row in enumerate(rows):
            lower, expected, upper = limits(row)
            axes.plot([at, at], [lower / expected, upper / expected], color=BAND, lw=4, solid_capstyle="butt", zorder=1)
            color = colors.get(row["result"], "0.7")
            axes.plot([at], [row["actual_seconds"] / expected], ".", color=color, ms=6, zorder=2)
        axes.axhline(1, color=LINE, lw=1)
        for label, color in (("ended inside", DOTS), ("ended outside", ASKED), ("alarmed or failed", "0.7")):
            axes.plot([], [], ".", color=color, label=label)
        axes.plot([], [], color=BAND, lw=4, label="95 % interval")
        plain(axes)
        axes.xaxis.set_major_locator(NullLocator())
        axes.set_xlabel("predicted runs, the newest to the right")
        axes.set_ylabel("over what was expected")
        label_above(axes)
    return figure


def _box(axes: Axes, at: int, band: Row | None, unit: float = 1.0) -> None:
    if band is None:
        return
    lower, expected, upper = limits(band, unit)
    labelled = "expected" in axes.get_legend_handles_labels()[1]
    bar, line = (None, None) if labelled else ("95 % of healthy ones", "expected")
    axes.bar([at], [upper - lower], bottom=lower, width=0.5, color=BAND, label=bar, zorder=1)
    axes.plot([at - 0.25, at + 0.25], [expected, expected], color=LINE, lw=2, label=line, zorder=2)


def _spread(at: int, count: int) -> Floats:
    """Positions beside each other, so that dots of equal height are told apart."""
    return np.asarray(at + (np.arange(count) % 7 - 3) * JITTER, dtype=np.float64)


def _finish(axes: Axes, scales: Sequence[RunsAtScale], what: str) -> None:
    label_above(axes)
    axes.use_sticky_edges = False  # else a band at the bottom lies on the axis
    axes.margins(y=0.08)
    axes.set_xticks(range(len(scales)), [scale.tick for scale in scales])
    axes.set_xlim(-0.6, len(scales) - 0.4)
    axes.set_xlabel("ranks")
    axes.set_ylabel(what)
    axes.grid(axis="y", color="0.92")
    plain(axes)
