"""Charts as SVG, on the ruled paper of a recording instrument. No styles in here: the style sheet knows the classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from markupsafe import Markup, escape

from barograph.site.charts.axis import Axis, linear

WIDTH: Final = 960
HEIGHT: Final = 320
LEFT: Final = 78
RIGHT: Final = 940
TOP: Final = 26
BOTTOM: Final = 282

Point = tuple[float, float]


class Figure:
    """A chart under two axes. What is drawn later lies above."""

    def __init__(self, x: Axis, y: Axis, across: str = "", height: int = HEIGHT) -> None:
        """`across` says what the horizontal axis counts, where its ticks do not."""
        self._x, self._y = x, y
        self._parts: list[Markup] = []
        self._height = height
        self._across = across

    def area(self, edges: Iterable[tuple[float, float, float]], kind: str) -> None:
        """What lies between low and high, for (x, low, high)."""
        points = list(edges)
        if points:
            there = [f"{self._x(x)},{self._y(high)}" for x, _, high in points]
            back = [f"{self._x(x)},{self._y(low)}" for x, low, _ in reversed(points)]
            self._add('<polygon class="{}" points="{}"/>', kind, " ".join(there + back))

    def line(self, points: Iterable[Point], kind: str) -> None:
        """A line from point to point."""
        text = " ".join(f"{self._x(x)},{self._y(y)}" for x, y in points)
        self._add('<polyline class="{}" points="{}"/>', kind, text)

    def dots(self, points: Iterable[Point], kind: str, radius: float = 3.5) -> None:
        """A dot at each point."""
        for x, y in points:
            self._add('<circle class="{}" cx="{}" cy="{}" r="{}"/>', kind, self._x(x), self._y(y), radius)

    def ribbon(self, low: float, high: float, kind: str) -> None:
        """A band across the whole chart."""
        top, bottom = self._y(high), self._y(low)
        self._add(
            '<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>',
            *(kind, self._x.start, top, self._x.end - self._x.start, round(max(bottom - top, 1.0), 1)),
        )

    def level(self, y: float, kind: str) -> None:
        """A line across the whole chart."""
        self._add(
            '<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"/>',
            *(kind, self._x.start, self._x.end, self._y(y), self._y(y)),
        )

    def mark(self, x: float, label: str, kind: str) -> None:
        """A line from top to bottom with a word at its head."""
        at = self._x(x)
        left = at > (self._x.start + self._x.end) / 2
        self._add(
            '<line class="{}" x1="{}" x2="{}" y1="{}" y2="{}"/><text class="{} label" x="{}" y="{}" text-anchor="{}">{}'
            "</text>",
            *(kind, at, at, self._y.end, self._y.start, kind, at - 6 if left else at + 6, self._y.end + 13),
            *("end" if left else "start", label),
        )

    def bar(self, x: float, low: float, high: float, kind: str) -> None:
        """An upright bar from low to high with a foot at either end."""
        at, bottom, top = self._x(x), self._y(low), self._y(high)
        self._add(
            '<path class="{}" d="M{} {}H{}M{} {}V{}M{} {}H{}"/>',
            *(kind, at - 5, bottom, at + 5, at, bottom, top, at - 5, top, at + 5),
        )

    def draw(self, title: str, text: str) -> Markup:
        """The SVG. `title` names it, `text` says in words what is to be seen."""
        return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}. {}">{}{}</svg>').format(
            WIDTH, self._height, title, text, self._paper(), Markup("").join(self._parts)
        )

    def _add(self, form: str, *values: object) -> None:
        self._parts.append(Markup(form).format(*values))

    def _paper(self) -> Markup:
        x, y = self._x, self._y
        lines = [_rect(x.start, y.end, x.end, y.start)]
        lines += [_rule(x.start, y(value), x.end, y(value), "fine") for value in y.between()]
        lines += [_rule(x(value), y.start, x(value), y.end, "fine") for value in x.between()]
        for value, name in y.ticks:
            lines += [_rule(x.start, y(value), x.end, y(value)), _tick(x.start - 8, y(value) + 4, "end", name)]
        for value, name in x.ticks:
            lines += [_rule(x(value), y.start, x(value), y.end), _tick(x(value), y.start + 18, "middle", name)]
        if self._across:
            lines.append(_tick(x.end, y.start + 34, "end", self._across))
        return Markup("").join(lines)


def _rect(left: float, top: float, right: float, bottom: float) -> Markup:
    form = Markup('<rect class="paper" x="{}" y="{}" width="{}" height="{}"/>')
    return form.format(left, top, right - left, bottom - top)


def _rule(x1: float, y1: float, x2: float, y2: float, kind: str = "rule") -> Markup:
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(kind, x1, y1, x2, y2)


def _tick(x: float, y: float, anchor: str, name: str) -> Markup:
    return Markup('<text class="tick" x="{}" y="{}" text-anchor="{}">{}</text>').format(x, y, anchor, name)


def spark(values: Sequence[float], width: int = 120, height: int = 24) -> Markup:
    """A line in a cell: a quarter more or less than the median at least fills it, so that noise stays small."""
    middle = sorted(values)[len(values) // 2]
    y = linear(min(0.75 * middle, *values), max(1.25 * middle, *values), height - 3, 3, str)
    x = Axis(0, max(len(values) - 1, 1), 2, width - 4)
    points = " ".join(f"{x(i)},{y(value)}" for i, value in enumerate(values))
    return Markup(
        '<svg class="spark" viewBox="0 0 {0} {1}" width="{0}" height="{1}" aria-hidden="true">'
        '<line class="rule" x1="2" x2="{2}" y1="{3}" y2="{3}"/><polyline class="trace" points="{4}"/>'
        '<circle class="pen" cx="{5}" cy="{6}" r="2"/></svg>'
    ).format(width, height, width - 2, y(middle), escape(points), x(len(values) - 1), y(values[-1]))
