"""The runtime that is foretold over ranks, with its interval, over the runs that were observed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from barograph.site.charts.axis import ranks, spans
from barograph.site.charts.figure import BOTTOM, LEFT, RIGHT, TOP, Figure
from barograph.views.words import seconds


def chart(said: Mapping[str, Any], title: str) -> Markup | None:
    """A chart of an answer that has a curve; None where nothing can be foretold anywhere on it."""
    curve, observed = said["curve"], said["observed"]
    if not curve:
        return None
    scales = [int(point[0]) for point in [*observed, *curve]]
    lows, highs = [point[1] for point in curve], [point[3] for point in curve]
    times = [point[1] for point in observed]
    doubles = [min(scales) * 2**k for k in range(40) if min(scales) * 2**k <= max(scales)]
    x = ranks([*doubles, min(scales), max(scales)], LEFT, RIGHT)
    y = spans(min(lows + times) / 1.15, max(highs + times) * 1.15, BOTTOM, TOP)
    figure = Figure(x, y, "ranks")
    figure.area(((at, low, high) for at, low, _, high in curve), "band")
    figure.line(((at, middle) for at, _, middle, _ in curve), "trace")
    figure.dots(((at, took) for at, took in observed), "observed", 3)
    if observed and (largest := max(at for at, _ in observed)) < max(scales):
        figure.mark(largest, "largest scale run", "limit")
    return figure.draw(title, text(said))


def text(said: Mapping[str, Any]) -> str:
    """What the chart shows, in words."""
    first, last = said["curve"][0], said["curve"][-1]
    return (
        f"From {seconds(first[2])} on {first[0]:,} ranks to {seconds(last[2])} on {last[0]:,}, where 95 of 100 runs"
        f" should take {seconds(last[1])} to {seconds(last[3])}; {len(said['observed']):,} observed runs."
    )
