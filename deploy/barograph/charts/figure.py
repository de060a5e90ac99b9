"""Charts as SVG: marks over two axes. Their look is chosen by `kind`, a class of `static/chart.css`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from markupsafe import Markup, escape

from barograph.charts.axis import Axis, linear

WIDTH: Final = 960
LEFT: Final = 78
RIGHT: Final = 940
TOP: Final = 26
BOTTOM: Final = 282
FOOT: Final = 38
"""Pixels below a chart for its ticks and the name of its horizontal axis."""
LINE: Final = 15
"""Pixels from one line of text to the next."""

Point = tuple[float, float]


class Figure:
    """A chart over two axes; later marks cover earlier ones.

    above, below: names of the vertical and of the horizontal axis, the latter where its ticks do not say it.
    """

    def __init__(self, x: Axis, y: Axis, above: str = "", below: str = "") -> None:
        self._x, self._y = x, y
        self._parts: list[Markup] = []
        lines = max((text.count("\n") for _, text in x.ticks), default=0)
        self.height = y.start + FOOT + LINE * lines
        self._rules(above, below)

    def area(self, edges: Iterable[tuple[float, float, float]], kind: str) -> None:
        """The area between low and high of each (x, low, high)."""
        points = list(edges)
        upper = [f"{self._x(x)},{self._y(high)}" for x, _, high in points]
        lower = [f"{self._x(x)},{self._y(low)}" for x, low, _ in reversed(points)]
        self._add('<polygon class="{}" points="{}"/>', kind, " ".join(upper + lower))

    def box(self, left: float, right: float, low: float, high: float, kind: str) -> None:
        """A rectangle, at least one pixel high."""
        x, y = self._x(left), self._y(high)
        width, height = round(self._x(right) - x, 1), round(max(self._y(low) - y, 1.0), 1)
        self._add('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>', kind, x, y, width, height)

    def band(self, low: float, high: float, kind: str) -> None:
        """A rectangle across the whole chart."""
        self.box(self._x.low, self._x.high, low, high, kind)

    def line(self, points: Iterable[Point], kind: str) -> None:
        """A line from point to point."""
        text = " ".join(f"{self._x(x)},{self._y(y)}" for x, y in points)
        self._add('<polyline class="{}" points="{}"/>', kind, text)

    def level(self, y: float, kind: str) -> None:
        """A line across the whole chart."""
        self.line([(self._x.low, y), (self._x.high, y)], kind)

    def dots(self, points: Iterable[Point], kind: str, radius: float = 3.5) -> None:
        """A circle at each point."""
        # Thousands: all at once.
        start, across, up = f'<circle class="{escape(kind)}" cx="', self._x, self._y
        self._parts.append(Markup("".join(f'{start}{across(x)}" cy="{up(y)}" r="{radius}"/>' for x, y in points)))

    def crosses(self, points: Iterable[Point], kind: str) -> None:
        """A diagonal cross at each point."""
        for x, y in points:
            self._add('<path class="{}" d="M{} {}m-4-4l8 8m0-8l-8 8"/>', kind, self._x(x), self._y(y))

    def error_bar(self, x: float, low: float, high: float, kind: str) -> None:
        """A vertical line from low to high with a cap at either end."""
        at, bottom, top = self._x(x), self._y(low), self._y(high)
        self._add(
            '<path class="{}" d="M{} {}H{}M{} {}V{}M{} {}H{}"/>',
            *(kind, at - 5, bottom, at + 5, at, bottom, top, at - 5, top, at + 5),
        )

    def mark(self, x: float, label: str, kind: str, line: int = 0) -> None:
        """A vertical line with a label at its top, `line` lines below the edge of the chart."""
        at = self._x(x)
        on_left = at > (self._x.start + self._x.end) / 2
        self._add('<path class="{}" d="M{} {}V{}"/>', kind, at, self._y.end, self._y.start)
        left, anchor = (at - 6, "end") if on_left else (at + 6, "start")
        self._text(left, self._y.end + 13 + LINE * line, anchor, label, f"{kind} label")

    def _rules(self, above: str, below: str) -> None:
        x, y = self._x, self._y
        width, height = x.end - x.start, y.start - y.end
        self._add('<rect class="paper" x="{}" y="{}" width="{}" height="{}"/>', x.start, y.end, width, height)
        for kind, down, across in (
            ("fine", x.minor(), y.minor()),
            ("rule", [value for value, _ in x.ticks], [value for value, _ in y.ticks]),
        ):
            ends = "".join(f"M{x.start} {y(value)}H{x.end}" for value in across)
            self._add('<path class="{}" d="{}"/>', kind, ends + "".join(f"M{x(v)} {y.start}V{y.end}" for v in down))
        for value, text in y.ticks:
            self._text(x.start - 8, y(value) + 4, "end", text)
        for value, text in x.ticks:
            for number, line in enumerate(text.split("\n")):
                self._text(x(value), y.start + 18 + LINE * number, "middle", line)
        self._text(x.start, y.end - 9, "start", above)
        self._text(x.end, self.height - 4, "end", below)

    def _text(self, x: float, y: float, anchor: str, text: str, kind: str = "tick") -> None:
        if text:
            self._add('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>', kind, x, y, anchor, text)

    def _add(self, form: str, *values: object) -> None:
        # As Markup.format does, which takes ten times as long.
        safe = (one if isinstance(one, int | float) else escape(one) for one in values)
        self._parts.append(Markup(form.format(*safe)))

    def __html__(self) -> str:
        return Markup("").join(self._parts)


def draw(label: str, *figures: Figure) -> Markup:
    """An SVG element with all figures, each at the place of its axes. label: a description for screen readers."""
    height = max(figure.height for figure in figures)
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, height, label, Markup("").join(figures)
    )


def key(**meanings: str) -> Markup:
    """The key of a chart: the meaning of each kind of mark. Kinds with an empty meaning are left out."""
    item = Markup('<li><i class="swatch {}"></i>{}</li>')
    items = Markup("").join(item.format(kind, meaning) for kind, meaning in meanings.items() if meaning)
    return Markup('<ul class="key">{}</ul>').format(items)


def sparkline(values: Sequence[float]) -> Markup:
    """A line without axes. Its height is at least the range from 0.75 to 1.25 of the median, so noise stays small."""
    middle = sorted(values)[len(values) // 2]
    y = linear(min(0.75 * middle, *values), max(1.25 * middle, *values), 21, 3, str)
    x = Axis(0, max(len(values) - 1, 1), 2, 116)
    points = " ".join(f"{x(i)},{y(value)}" for i, value in enumerate(values))
    return Markup(
        '<svg class="spark" viewBox="0 0 120 24" width="120" height="24" aria-hidden="true">'
        '<path class="rule" d="M2 {}H118"/><polyline class="trace" points="{}"/>'
        '<circle class="pen" cx="{}" cy="{}" r="2"/></svg>'
    ).format(y(middle), points, x(len(values) - 1), y(values[-1]))
