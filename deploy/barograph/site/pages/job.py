"""One job: its intervals over their band, its alarm, who came last, and when it should end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from barograph.charts.axis import linear, timeline
from barograph.charts.figure import BOTTOM, LEFT, RIGHT, TOP, Figure, draw
from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.job import JobSummary, find
from barograph.views.log import Row, limits
from barograph.views.refusal import NothingKnown
from barograph.views.states import shown
from barograph.views.words import clock, percent, round_seconds, seconds

CLEAR: Final = 1.15
"""Upper end of the vertical axis over the highest value that must be seen."""
CLASSES: Final = 8
MOST_NODES: Final = 64
TABLE_ROWS: Final = 24


@dataclass(frozen=True)
class IntervalTrace:
    """The intervals of one class as a chart, in a sentence, and as rows of a table."""

    chart: Markup
    text: str
    rows: list[Row]
    band: Row | None


def view(context: ViewContext, name: str, class_id: int | None) -> dict[str, Any]:
    """The page of a job; `end` is when it should end: lower, expected, upper, in Unix seconds.

    class_id: the class to draw, None for the one where most time goes. Raises NothingKnown.
    """
    job = find(context, name)
    if job is None:
        raise NothingKnown(f"There is no job {name} in the log that you may see.")
    of_job = queries.during(job.row)
    classes = context.rows(queries.classes(of_job, CLASSES))
    chosen = next((one for one in classes if class_id is None or int(one["class_id"]) == class_id), None)
    onset_at = -1.0 if job.onset_at is None else job.onset_at
    reported_at = max([job.started_at, *(one["reported_at"] for one in classes)])
    silent = not job.ended and reported_at < context.now - queries.SILENT_SECONDS
    return {
        "row": job.row,
        "state": shown(job.row, silent),
        "classes": classes,
        "chosen": chosen,
        "trace": _trace(context, job, int(chosen["class_id"])) if chosen else None,
        "arrivals": _paired(context.rows(queries.arrivals(of_job, onset_at))),
        "latecomers": context.rows(queries.latecomers(of_job, onset_at)),
        "end": None if job.ended or not job.prediction else [job.started_at + took for took in job.prediction],
    }


def _paired(rows: list[Row]) -> list[Row]:
    """One row per node, with what was before the onset beside what is since; most growth of its own work first."""
    nodes: dict[str, Row] = {}
    for row in rows:
        side = "" if row["since"] else "_before"
        node = nodes.setdefault(row["host"], {"host": row["host"], "ranks": row["ranks"]})
        node |= {f"{name}{side}": row[name] for name in ("own", "wait", "least_wait", "syncs")}
    return sorted(nodes.values(), key=lambda node: node.get("own_before", 0.0) - node.get("own", 0.0))[:MOST_NODES]


def _trace(context: ViewContext, job: JobSummary, class_id: int) -> IntervalTrace | None:
    row, key = job.row, f"{job.row['job']} {class_id}"
    # A finished healthy job has become part of its own band: it is shown over what was known before.
    before = row["ended_at"] if job.ended else context.now + 86400
    bands = context.rows(queries.band(row["workload"], class_id, before), name=f"band {key}")
    band = bands[0] if bands else None
    lower, expected, upper = limits(band) if band else (0.0, 0.0, 1e9)
    points = context.rows(queries.trace(queries.during(row), class_id, lower, upper), name=f"trace {key}")
    if not points:
        return None
    # Above all means and the band; single long intervals may leave the paper.
    longest = sorted(p["longest"] for p in points)[math.floor(0.95 * (len(points) - 1))]
    top = CLEAR * max(*(p["mean"] for p in points), longest, upper if band else 0.0)
    first, last = points[0]["at"], points[-1]["at"]
    figure = Figure(timeline(first, last, LEFT, RIGHT), linear(0.0, top, BOTTOM, TOP, round_seconds), "interval")
    if band:
        figure.band(lower, upper, "band")
        figure.level(expected, "expected")
    figure.area(((p["at"], p["least"], p["longest"]) for p in points), "range")
    figure.line(((p["at"], p["mean"]) for p in points), "trace")
    if job.onset_at is not None and job.onset_at <= last:
        figure.mark(max(job.onset_at, first), f"{row['state']} since {clock(job.onset_at, context.now)}", "onset")
    if job.recovered_at is not None and job.recovered_at <= last:
        figure.mark(job.recovered_at, "recovered", "recovery", line=1)
    text = _text(points, band, top, job.onset_at)
    chart = draw(f"Intervals of {row['job']}. {text}", figure)
    return IntervalTrace(chart, text, points[:: -(-len(points) // TABLE_ROWS)], band)


def _text(points: list[Row], band: Row | None, top: float, onset_at: float | None) -> str:
    said = f"{sum(p['intervals'] for p in points):,} intervals, {seconds(_mean(points))} on average"
    if onset_at is not None:
        earlier, later = ([p for p in points if (p["at"] > onset_at) is since] for since in (False, True))
        if earlier and later:
            said += f" ({seconds(_mean(earlier))} before the onset, {seconds(_mean(later))} since)"
    longest = max(p["longest"] for p in points)
    said += f", the longest {seconds(longest)}{', beyond the paper' if longest > top else ''}."
    if band is None:
        return f"{said} No band: too little is known of this class."
    said += f" Of healthy intervals 95 % take {seconds(band['lower_seconds'])} to {seconds(band['upper_seconds'])}"
    single, outside = (sum(p[name] for p in points) for name in ("single", "outside"))
    if single:
        said += f"; of those that are known one by one {percent(outside / single)} lay outside"
    return f"{said}."


def _mean(points: list[Row]) -> float:
    return float(sum(p["mean"] * p["intervals"] for p in points) / sum(p["intervals"] for p in points))
