"""Draws a panel's axes: lines over time, and curves over ranks."""

from __future__ import annotations

import itertools
import math
import textwrap
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from barograph_dashboards.preview.dashboard import Panel
from barograph_dashboards.preview.fields import Properties, legend, properties, rows
from barograph_dashboards.preview.prometheus import Sample
from barograph_dashboards.preview.units import written

MARGINS: Final = {
    "stat": (22, 4, 4, 4),
    "timeseries": (26, 46, 62, 16),
    "xychart": (26, 62, 62, 16),
    "table": (24, 4, 10, 10),
}
"""Pixels around the axes for title, numbers and legend: over, under, before, after."""
LEGEND: Final = 8
"""Names in a legend."""
CLASSIC: Final = ("#73BF69", "#F2CC0C", "#8AB8FF", "#FF780A", "#F2495C", "#5794F2", "#B877D9", "#705DA0", "#37872D")
"""Grafana's own palette, where a dashboard gives no colour."""

Answers = list[tuple[Panel, list[Sample]]]
Theme = dict[str, str]


@dataclass(frozen=True)
class Line:
    """One series: its name, the query it comes from, and pairs of Unix seconds and value."""

    name: str
    reference: str
    points: list[tuple[float, float]]

    @property
    def times(self) -> list[datetime]:
        """When."""
        return [datetime.fromtimestamp(at, UTC) for at, _ in self.points]

    @property
    def values(self) -> list[float]:
        """What."""
        return [value for _, value in self.points]


def series(axes: Axes, panel: Panel, answers: Answers, theme: Theme) -> None:
    """Values over time."""
    lines = [
        Line(legend(target["legendFormat"], sample.labels), target["refId"], sample.points)
        for target, samples in answers
        for sample in samples
    ]
    if all(math.isnan(value) for line in lines for _, value in line.points):
        nothing(axes, panel, theme)
        return
    right = None
    floor: dict[float, float] = {}
    for number, line in enumerate(lines):
        field = properties(panel, line.name, line.reference)
        field.setdefault("color", {"fixedColor": CLASSIC[number % len(CLASSIC)]})
        if field.get("custom.axisPlacement") == "right":
            right = right or axes.twinx()
        if field.get("custom.stacking", {}).get("mode") == "normal":
            _stack(axes, line, field, floor)
        elif "custom.fillBelowTo" in field:
            _shade(axes, line, next(one for one in lines if one.name == field["custom.fillBelowTo"]), field)
        elif field.get("custom.lineWidth") != 0:
            place = right if right is not None and field.get("custom.axisPlacement") == "right" else axes
            name = line.name + (" (right)" if place is right else "")
            color, width = field["color"]["fixedColor"], 1.2 * field.get("custom.lineWidth", 1)
            place.plot(line.times, line.values, color=color, lw=width, label=name)  # type: ignore[arg-type]
    field = properties(panel, "")
    if "custom.thresholdsStyle" in field:
        limit = field["thresholds"]["steps"][-1]
        axes.axhline(limit["value"], color=limit["color"], lw=1, ls="--")
    for place in (axes, right) if right is not None else (axes,):
        if "min" in field:
            place.set_ylim(bottom=field["min"], top=None if place.get_ylim()[1] > field["min"] else field["min"] + 1)
        place.xaxis.set_major_locator(MaxNLocator(5))
        place.xaxis.set_major_formatter(FuncFormatter(_clock))
        _finish(place, field, theme)
    if right is not None:
        right.tick_params(pad=-46)
        right.grid(visible=False)
    _legend(axes, right, panel, theme)


def _stack(axes: Axes, line: Line, field: Properties, floor: dict[float, float]) -> None:
    color, opacity = field["color"]["fixedColor"], field.get("custom.fillOpacity", 0) / 100
    low = [floor.get(at, 0.0) for at, _ in line.points]
    own = [0.0 if math.isnan(value) else value for value in line.values]
    high = [a + b for a, b in zip(low, own, strict=True)]
    floor.update({at: top for (at, _), top in zip(line.points, high, strict=True)})
    if field.get("custom.drawStyle") == "bars":
        step = min((b[0] - a[0] for a, b in itertools.pairwise(line.points)), default=60.0) / 86_400
        axes.bar(line.times, own, 0.8 * step, low, color=color, label=line.name)  # type: ignore[arg-type]
    else:
        axes.fill_between(line.times, low, high, color=color, alpha=opacity, lw=0, label=line.name)  # type: ignore[arg-type]


def _shade(axes: Axes, line: Line, below: Line, field: Properties) -> None:
    color, opacity = field["color"]["fixedColor"], field["custom.fillOpacity"] / 100
    low = dict(below.points)
    floor = [low.get(at, math.nan) for at, _ in line.points]
    axes.fill_between(line.times, floor, line.values, color=color, alpha=opacity, lw=0, label=line.name)  # type: ignore[arg-type]


def _clock(day: float, _: int) -> str:
    return f"{datetime.fromtimestamp(86_400 * day, UTC):%H:%M:%S}"


def chart(axes: Axes, panel: Panel, answers: Answers, theme: Theme) -> None:
    """Values over ranks."""
    columns, table = rows(panel, answers)
    table.sort(key=lambda row: float(row["Ranks"]))
    if not table:
        nothing(axes, panel, theme)
        return
    field = properties(panel, "")
    for name in columns[1:]:
        one = properties(panel, name)
        points = [(float(row["Ranks"]), float(row[name])) for row in table if name in row]
        show = one.get("custom.show", "points+lines")
        dashes = "--" if one.get("custom.lineStyle", {}).get("fill") == "dash" else "-"
        axes.plot(*zip(*points, strict=True) if points else ((), ()), color=one["color"]["fixedColor"], label=name,
                  ls="" if show == "points" else dashes, marker="" if show == "lines" else "o")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    if field.get("custom.scaleDistribution", {}).get("type") == "log":
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("ranks", color=theme["dim"], labelpad=0)
    _finish(axes, field, theme)
    _legend(axes, None, panel, theme)


def nothing(axes: Axes, panel: Panel, theme: Theme) -> None:
    """What the panel says when there is no data."""
    axes.axis("off")
    text = textwrap.fill(properties(panel, "")["noValue"], 6 * panel["gridPos"]["w"])
    axes.text(0.5, 0.5, text, ha="center", va="center", size=12, color=theme["dim"])


def _finish(axes: Axes, field: Properties, theme: Theme) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: written(value, field.get("unit", "short"))))
    axes.tick_params(colors=theme["dim"], length=0, labelsize=8)
    axes.grid(color=theme["grid"], lw=0.7)


def _legend(axes: Axes, right: Axes | None, panel: Panel, theme: Theme) -> None:
    handles, labels = axes.get_legend_handles_labels()
    for more, names in [right.get_legend_handles_labels()] if right is not None else []:
        handles, labels = [*handles, *more], [*labels, *names]
    under = MARGINS[panel["type"]][1]
    axes.legend(
        handles[:LEGEND], labels[:LEGEND], loc="lower left", ncols=LEGEND, frameon=False, labelcolor=theme["text"],
        bbox_to_anchor=(-50 / axes.bbox.width, -under / axes.bbox.height), fontsize=8, handlelength=1, columnspacing=1,
    )  # fmt: skip
