"""The demo's picture: the intervals of the disturbed and the healthy run, their band, and the alarm."""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from barograph.demo.runs import ClassBand, DemoRun


def draw(disturbed: DemoRun, healthy: DemoRun, band: ClassBand, hog_at: float, path: Path) -> None:
    """Write a PNG. hog_at: start of the disturbance in Unix seconds."""
    longest = max(run.runtime_seconds for run in (disturbed, healthy))
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 4.6), sharey=True, width_ratios=(3, 2), layout="constrained", dpi=130
    )
    _run(left, disturbed, band, "#b3261e")
    _run(right, healthy, band, "#1f6f43")
    began = hog_at - disturbed.started_at
    left.axvspan(began, disturbed.runtime_seconds, color="#b3261e", alpha=0.07, lw=0)
    left.axvline(began, color="#b3261e", lw=1, ls=":")
    style = {"transform": left.get_xaxis_transform(), "color": "#b3261e"}
    style["bbox"] = {"fc": "white", "ec": "none", "pad": 2}
    left.text(began, 0.03, " CPU hog begins", **style)
    if math.isfinite(disturbed.alarm_at):
        alarm = disturbed.alarm_at - disturbed.started_at
        left.axvline(alarm, color="#b3261e", lw=1.8)
        text = f" alarm after {disturbed.alarm_at - hog_at:.1f} s"
        left.text(alarm, 0.96, text, va="top", weight="bold", **style)
    left.set_ylabel("interval between two Allreduce calls, ms")
    left.set_title(f"disturbed from its middle on: {_outcome(disturbed)}", loc="left")
    right.set_title(f"the next run, left alone: {_outcome(healthy)}", loc="left")
    right.legend(loc="lower right", framealpha=0.9, edgecolor="none")
    right.set_xlim(0, max(healthy.runtime_seconds, 0.4 * longest))
    figure.savefig(path)
    plt.close(figure)


def _outcome(run: DemoRun) -> str:
    return f"{run.slowdown:.1f}x slower" if run.state == "slow" else f"{run.state}, no alarm"


def _run(axes: Axes, run: DemoRun, band: ClassBand, color: str) -> None:
    main = run.class_ids == band.class_id
    at = run.ended_at[main] - run.started_at
    label = "95 % of healthy intervals"
    lower, expected, upper = (1e3 * seconds for seconds in band.interval)
    axes.axhspan(lower, upper, color="#4a6fa5", alpha=0.25, lw=0, label=label)
    axes.axhline(expected, color="#4a6fa5", lw=1)
    axes.plot(at, run.seconds[main] * 1e3, ".", ms=3.5, color=color, alpha=0.7, label="one interval")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("seconds since the start of the run")
    axes.set_xlim(0, run.runtime_seconds)
    axes.spines[["top", "right"]].set_visible(False)
