"""Draws panels by their places on the grid into one picture."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from barograph_dashboards.preview.dashboard import Dashboard, Panel
from barograph_dashboards.preview.fields import Properties, legend, properties, rows
from barograph_dashboards.preview.plots import MARGINS, Answers, Theme, chart, nothing, series
from barograph_dashboards.preview.units import written

COLUMN, ROW, GAP, DPI = 60, 38, 8, 100
"""Pixels of the grid, and between panels."""
THEMES: Final = {
    "dark": {"page": "#111217", "panel": "#181b1f", "text": "#d5d5dc", "dim": "#8e8e96", "grid": "#2c2f36"},
    "light": {"page": "#f4f5f5", "panel": "#ffffff", "text": "#24292e", "dim": "#6e7178", "grid": "#e3e4e8"},
}


def draw(board: Dashboard, theme_name: str, path: Path) -> None:
    """Draw the whole dashboard. Raises QueryError, OSError."""
    theme = THEMES[theme_name]
    bottom = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board.panels)
    width, height = 24 * COLUMN + GAP, (bottom + 1) * ROW + GAP
    with mpl.rc_context({"font.size": 9, "text.color": theme["text"], "axes.edgecolor": theme["grid"]}):
        figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=theme["page"])
        named = ", ".join(f"{name} = {value}" for name, value in board.variables.items() if name[0] != "_" and value)
        figure.text(GAP / width, 1 - 24 / height, f"{board.title}   {named}", size=12, weight="bold")
        for panel in board.panels:
            place = panel["gridPos"]
            left, top = place["x"] * COLUMN + GAP, (place["y"] + 1) * ROW + GAP
            box = (left / width, 1 - (top + place["h"] * ROW - GAP) / height,
                   (place["w"] * COLUMN - GAP) / width, (place["h"] * ROW - GAP) / height)  # fmt: skip
            if panel["type"] == "row":
                figure.text(box[0], box[1] + box[3] / 3, f"v  {panel['title']}", weight="bold")
                continue
            frame = figure.add_axes(box, facecolor=theme["panel"], xticks=[], yticks=[])
            frame.set_title(panel["title"], loc="left", size=9, y=1, pad=-13, x=0.008 * 24 / place["w"])
            over, under, before, after = MARGINS[panel["type"]]
            wide, high = place["w"] * COLUMN - GAP - before - after, place["h"] * ROW - GAP - over - under
            axes = figure.add_axes(
                ((left + before) / width, 1 - (top + over + high) / height, wide / width, high / height),
                facecolor=theme["panel"],
            )
            _KINDS[panel["type"]](axes, panel, list(board.ask(panel)), theme)
        figure.savefig(path)


def _stat(axes: Axes, panel: Panel, answers: Answers, theme: Theme) -> None:
    axes.axis("off")
    known = [
        (target, sample) for target, samples in answers for sample in samples if not math.isnan(sample.points[-1][1])
    ]
    field = properties(panel, "")
    if not known:
        axes.text(0.5, 0.5, field["noValue"], ha="center", va="center", size=15, color=theme["dim"])
        return
    target, sample = known[-1]
    value = sample.points[-1][1]
    text = written(value, field.get("unit", "short"), field.get("decimals"))
    if panel["options"].get("textMode") == "name":
        text = legend(target["legendFormat"], sample.labels)
    color = theme["text"]
    if panel["options"]["colorMode"] == "value":
        color = [step["color"] for step in field["thresholds"]["steps"] if value >= (step["value"] or -math.inf)][-1]
    axes.text(0.5, 0.5, text, ha="center", va="center", size=22, weight="bold", color=color)


def _table(axes: Axes, panel: Panel, answers: Answers, theme: Theme) -> None:
    columns, table = rows(panel, answers)
    if not table:
        nothing(axes, panel, theme)
        return
    axes.axis("off")
    height, wide = panel["gridPos"]["h"] * ROW - GAP - 28, panel["gridPos"]["w"] * COLUMN - GAP - 20
    fixed = {name: properties(panel, name).get("custom.width") for name in columns}
    rest = max(80, (wide - sum(filter(None, fixed.values()))) // max(1, list(fixed.values()).count(None)))
    axes.set(xlim=(0, wide), ylim=(height, 0))
    line, x = 26, 0
    for name in columns:
        width, field = fixed[name] or rest, properties(panel, name)
        axes.text(x, 14, name, color="#5794F2", weight="bold", va="center")
        for number, row in enumerate(table[: (height - 30) // line]):
            cell = row.get(name, "")
            unit, decimals = field.get("unit", "short"), field.get("decimals")
            text = cell if isinstance(cell, str) else _mapped(cell, field) or written(cell, unit, decimals)
            shown = textwrap.shorten(text, max(4, int(width / 6.3)), placeholder=" ...") if " " in text else text
            axes.text(x, 14 + (number + 1) * line, shown, va="center", clip_on=True)
        x += width
    if len(table) > (height - 30) // line:
        axes.text(wide, 4, f"{len(table)} rows, Grafana scrolls", ha="right", color=theme["dim"], size=8)


def _mapped(value: float, field: Properties) -> str:
    """The text that a value mapping has for it, or nothing."""
    texts = {number: one["text"] for mapping in field.get("mappings", ()) for number, one in mapping["options"].items()}
    return str(texts.get(f"{value:g}", ""))


_KINDS: Final[dict[str, Callable[[Axes, Panel, Answers, Theme], None]]] = {
    "stat": _stat,
    "timeseries": series,
    "xychart": chart,
    "table": _table,
}
