"""Shares of the parts of a predicted runtime over ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from markupsafe import Markup

from barograph.charts.axis import linear, ranks
from barograph.charts.figure import BOTTOM, LEFT, RIGHT, TOP, Figure, draw, key
from barograph.views.words import share

KINDS: Final = {
    "own work": "own",
    "waiting for the slowest rank": "waiting",
    "point-to-point": "exchange",
    "collectives": "collective",
}
"""Looks of the parts, from the bottom up; all others are the rest."""
REST: Final = "rest"


class PartsChart(NamedTuple):
    """A chart and its key."""

    chart: Markup
    key: Markup


def parts_chart(answer: Mapping[str, Any]) -> PartsChart | None:
    """The chart of an answer with a curve; None where the parts are not known at two scales.

    answer: from `GET /predict` with `curve=1`.
    """
    curve = answer["parts_curve"]
    if len(curve) < 2:
        return None
    scales = [int(at) for at, _ in curve]
    figure = Figure(
        ranks(scales, LEFT, RIGHT), linear(0.0, 1.0, BOTTOM, TOP, share), "share of the predicted time", "ranks"
    )
    shares = [{name: seconds / sum(parts.values()) for name, seconds in parts.items()} for _, parts in curve]
    below = [0.0] * len(curve)
    for name, kind in KINDS.items():
        above = [low + parts.get(name, 0.0) for low, parts in zip(below, shares, strict=True)]
        figure.area(zip(scales, below, above, strict=True), kind)
        below = above
    figure.area(((at, low, 1.0) for at, low in zip(scales, below, strict=True)), REST)
    meanings = {kind: name if any(parts.get(name) for _, parts in curve) else "" for name, kind in KINDS.items()}
    meanings[REST] = next((name for name in curve[0][1] if name not in KINDS), "")
    largest, most = max(shares[-1].items(), key=lambda item: item[1])
    label = f"Parts of the predicted time over ranks. On {scales[-1]:,} ranks {share(most)} is {largest}."
    return PartsChart(draw(label, figure), key(**meanings))
