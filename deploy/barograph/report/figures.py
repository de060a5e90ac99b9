"""The figures of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

import numpy as np
from markupsafe import Markup

from barograph.charts.axis import Axis, categories, durations, fitted, linear
from barograph.charts.figure import BOTTOM, LEFT, RIGHT, TOP, Figure, draw
from barograph.report.classes import CLASSES, ClassReport
from barograph.report.scale import RunsAtScale
from barograph.views.log import Row, limits
from barograph.views.words import round_seconds, share
from barograph_modeler.maxima.sample import Floats

POINTS: Final = 150
"""Intervals of one class drawn at one scale."""
JITTER: Final = 0.06
"""Distance between neighbouring dots of one scale; scales are 1 apart."""
NODES: Final = 30
"""Limit of nodes drawn."""
MAX_SCALE_GAP: Final = 72
"""Pixels between names of scales that are sufficient for the longest of them."""
CHARACTER: Final = 8
"""Pixels of a character of a name, with its share of the space between names."""
PANEL: Final = 150
"""Height of the intervals of one class over time."""
GUTTER: Final = 66
"""Pixels between Q-Q plots, for ticks."""
NONE: Final[Floats] = np.empty(0)


def runtimes(scales: Sequence[RunsAtScale]) -> Markup:
    """Runs by scale over the band of the next run."""
    values, bands = [scale.healthy for scale in scales], [scale.band for scale in scales]
    figure = _by_scale(scales, values, bands, "runtime", 3.0, [scale.alarmed for scale in scales])
    return draw("Runtimes by number of ranks, with their bands", figure)


def intervals(one: ClassReport, scales: Sequence[RunsAtScale]) -> Markup:
    """A sample of the intervals of a class by scale over the band of the next interval."""
    values = [one.samples.get(scale.workload, NONE)[:POINTS] for scale in scales]
    bands = [one.bands.get(scale.workload) for scale in scales]
    figure = _by_scale(scales, values, bands, "interval", 1.7, [NONE for _ in scales])
    return draw(f"Intervals of class {one.letter} by number of ranks, with their bands", figure)


def _by_scale(
    scales: Sequence[RunsAtScale],
    values: Sequence[Floats],
    bands: Sequence[Row | None],
    name: str,
    radius: float,
    alarmed: Sequence[Floats],
) -> Figure:
    """A dot for each value, a cross for each alarmed one, and a box for each band, all in seconds."""
    drawn = chain(*values, *alarmed, *(limits(band) for band in bands if band))
    names = [scale.tick for scale in scales]
    longest = max(len(line) for name in names for line in name.split("\n"))
    x = categories(names, LEFT, RIGHT, min(CHARACTER * (longest + 1), MAX_SCALE_GAP))
    below = "ranks and work" if any(scale.work for scale in scales) else "ranks"
    figure = Figure(x, durations(drawn, BOTTOM, TOP), name, below)
    for at, band in enumerate(bands):
        if band:
            lower, expected, upper = limits(band)
            figure.box(at - 0.25, at + 0.25, lower, upper, "band")
            figure.line([(at - 0.25, expected), (at + 0.25, expected)], "trace")
        figure.dots(_jittered(at, values[at]), "observed", radius)
        figure.crosses(_jittered(at, alarmed[at]), "alarmed")
    return figure


def _jittered(at: int, values: Floats) -> list[tuple[float, float]]:
    """Values side by side around a position, so that equal ones do not cover each other."""
    return [(at + (number % 7 - 3) * JITTER, float(value)) for number, value in enumerate(values)]


def quantiles(classes: Sequence[ClassReport]) -> Markup:
    """Q-Q plots of the classes that have a fit: observed over fitted quantiles."""
    pitch = (RIGHT - LEFT + GUTTER) / CLASSES
    figures = []
    for number, one in enumerate(classes):
        assert one.verdict is not None
        observed = np.sort(one.samples[one.fitted])
        # Plotting positions as in Hosking's papers: (i - 0.35) / n.
        levels = (np.arange(1, observed.size + 1) - 0.35) / observed.size
        expected = np.array([one.verdict.pwm.quantile(level) for level in levels])
        low, high = min(observed[0], expected[0]), max(observed[-1], expected[-1])
        left = LEFT + number * pitch
        x = linear(low, high, left, left + pitch - GUTTER, round_seconds, 4)
        trusted = one.verdict.trusted
        name = f"{one.letter}: {'trusted' if trusted else 'not trusted'}; observed"
        figure = Figure(x, linear(low, high, BOTTOM, TOP, round_seconds), name, "fitted quantile")
        figure.line([(low, low), (high, high)], "limit")
        points = [(float(at), float(value)) for at, value in zip(expected, observed, strict=True)]
        figure.dots(points, "pen" if trusted else "distrusted", 2)
        figures.append(figure)
    return draw("Observed over fitted quantiles, class by class", *figures)


def forecasts(rows: Sequence[Row]) -> Markup:
    """Predictions made while runs ran, and their runtimes, as ratios to the expected runtime."""
    kinds = {"inside": "observed", "outside": "missed"}
    ratios = []
    for row in rows:
        lower, expected, upper = limits(row)
        ratios.append((lower / expected, upper / expected, row["actual_seconds"] / expected))
    y = fitted(chain([1.0], *ratios), 222, TOP, "{:,.4g}".format)
    x = Axis(-0.6, len(rows) - 0.4, LEFT, RIGHT)
    figure = Figure(x, y, "runtime over expected runtime", "predicted runs, the newest to the right")
    for at, (lower, upper, _) in enumerate(ratios):
        figure.box(at - 0.15, at + 0.15, lower, upper, "band")
    figure.level(1, "expected")
    for at, (row, (_, _, actual)) in enumerate(zip(rows, ratios, strict=True)):
        figure.dots([(at, actual)], kinds.get(row["result"], "unjudged"), 3)
    return draw("Runtimes relative to predictions made while they ran", figure)


def timeline(job: Row, classes: Sequence[Row]) -> Markup:
    """Intervals of a job's classes over time, over their bands, with onset and alarm."""
    start = job["started_at"]
    known = (("onset", job["onset_at"]), ("alarm", job["alarmed_at"]))
    marks = {name: at - start for name, at in known if at is not None}
    ends = [at - start for one in classes for at, _ in one["points"][-1:]]
    x = linear(0.0, 1.02 * max([*ends, *marks.values(), 1e-3]), LEFT, RIGHT, "{:,.6g}".format, 8)
    bare = replace(x, ticks=tuple((value, "") for value, _ in x.ticks))
    figures = []
    for number, one in enumerate(classes):
        band = limits(one["band"]) if one["band"] else None
        top = TOP + number * (PANEL + 36)
        last = number == len(classes) - 1
        y = durations(chain((seconds for _, seconds in one["points"]), band or ()), top + PANEL, top)
        figure = Figure(
            x if last else bare,
            y,
            f"{one['letter']}: {share(one['share'])} of the time",
            "seconds since the start of the run" if last else "",
        )
        if band:
            figure.band(band[0], band[2], "band")
            figure.level(band[1], "expected")
        figure.dots(((at - start, seconds) for at, seconds in one["points"]), "observed", 1.5)
        for line, (name, at) in enumerate(marks.items()):
            figure.mark(at, name, name, line)
        figures.append(figure)
    return draw("Intervals over time, over their bands", *figures)


def nodes(rows: Sequence[Row], members: Sequence[str]) -> Markup:
    """Own work and waiting of each node per sync point. members: the nodes that an alarm is attributed to."""
    shown = rows[:NODES][::-1]
    hosts = [row["host"] for row in shown]
    y = categories(hosts, TOP + 26 * len(hosts), TOP, 0)
    most = 1.03 * max(row["own_seconds"] + row["waited_seconds"] for row in shown)
    left = max(LEFT, 16 + 7 * max(map(len, hosts)))
    x = linear(0.0, most, left, RIGHT, round_seconds, 8)
    figure = Figure(x, y, below="mean of a rank from one sync point to the next")
    for at, row in enumerate(shown):
        own = row["own_seconds"]
        figure.box(0, own, at - 0.4, at + 0.4, "cause" if row["host"] in members else "own")
        figure.box(own, own + row["waited_seconds"], at - 0.4, at + 0.4, "waiting")
    return draw("Own work and waiting of each node", figure)
