"""Predicted runtime and speedup over ranks with their intervals, and the observed runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from barograph.charts.axis import ROUND, log_durations, logarithmic, ranks
from barograph.charts.figure import BOTTOM, LEFT, RIGHT, TOP, Figure, draw
from barograph.views.log import limits
from barograph.views.words import plural, seconds

HALF: Final = 470
"""Pixels at which the chart of the runtime ends where the speedup is beside it."""
Rows = Sequence[Sequence[float]]


def projection(answer: Mapping[str, Any], speedup: bool = False) -> Markup | None:
    """The chart of a prediction with a curve; None where nothing can be predicted anywhere on it.

    answer: from `GET /predict` with `curve=1`. speedup: whether to show the speedup too, where the answer has one.
    """
    curve, observed = answer["curve"], answer["observed"]
    if not curve:
        return None
    asked = [] if answer["refusal"] is not None else [(answer["ranks"], *limits(answer))]
    scales = [int(row[0]) for row in (*observed, *curve, *asked)]
    doubles = [min(scales) * 2**k for k in range(40) if min(scales) * 2**k <= max(scales)]
    base = answer["speedup"] if speedup else None
    times = [value for _, *row in (*observed, *curve, *asked) for value in row]
    y = log_durations(min(times) / 1.15, max(times) * 1.15, BOTTOM, TOP)
    x = ranks([*doubles, max(scales)], LEFT, HALF if base else RIGHT)
    figures = [_panel(Figure(x, y, "runtime", "ranks"), curve, observed, asked)]
    if base:
        first, took = base["base_ranks"], base["base_seconds"]
        faster = [[(at, *(took / value for value in row)) for at, *row in rows] for rows in (curve, observed, asked)]
        ratios = [value for rows in faster for _, *row in rows for value in row]
        ideal = [(at, at / first) for at, *_ in curve]
        high = 1.15 * max(*ratios, ideal[-1][1])
        y = logarithmic(min(ratios) / 1.15, high, BOTTOM, TOP, "{:,g}".format, ROUND)
        x = ranks([*doubles, max(scales)], HALF + LEFT, RIGHT)
        figure = Figure(x, y, f"speedup over {plural(first, 'rank')}", "ranks")
        figure.line(ideal, "limit")
        figures.append(_panel(figure, *faster))
    return draw(f"Runtime of {answer['app']} over ranks. {_text(answer)}", *figures)


def _panel(figure: Figure, curve: Rows, observed: Rows, asked: Rows) -> Figure:
    """Adds curve, runs and the prediction asked for. curve, asked: rows of ranks, limit, expected, limit."""
    figure.area(((at, low, high) for at, low, _, high in curve), "band")
    figure.line(((at, middle) for at, _, middle, _ in curve), "trace")
    figure.dots(((at, took) for at, took in observed), "observed", 3)
    for at, low, middle, high in asked:
        figure.error_bar(at, low, high, "asked")
        figure.dots([(at, middle)], "asked")
    if observed and (largest := max(at for at, _ in observed)) < curve[-1][0]:
        figure.mark(largest, "largest scale run", "limit")
    return figure


def _text(answer: Mapping[str, Any]) -> str:
    first, last = answer["curve"][0], answer["curve"][-1]
    return (
        f"From {seconds(first[2])} on {first[0]:,} ranks to {seconds(last[2])} on {last[0]:,}, where 95 of 100 runs"
        f" should take {seconds(last[1])} to {seconds(last[3])}; {len(answer['observed']):,} observed runs."
    )
