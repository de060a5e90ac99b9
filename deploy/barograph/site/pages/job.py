"""One job: its intervals over their band, its alarm, late nodes and ranks, and its expected end."""

from __future__ import annotations

import math
from typing import Any, Final

from barograph.charts.axis import linear, time_axis
from barograph.charts.figure import BOTTOM, LEFT, RIGHT, TOP, Figure, draw
from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.job import find
from barograph.views.log import Row, limits
from barograph.views.refusal import NothingKnown
from barograph.views.states import shown
from barograph.views.words import clock, finite, known_time, percent, round_seconds, seconds

HEADROOM: Final = 1.15
"""Ratio of the upper end of the vertical axis to the highest value that must be visible."""
CLASSES: Final = 8
MOST_NODES: Final = 64
MOST_WORKERS: Final = 64
TABLE_ROWS: Final = 24


def view(context: ViewContext, name: str, class_id: int | None) -> dict[str, Any]:
    """The page of a job. `end`: lower, expected and upper limit of its end in Unix seconds.

    class_id: the class to draw, None for the one with most time. Raises NothingKnown.
    """
    job = find(context, name)
    if job is None:
        raise NothingKnown(f"There is no job {name} in the log that you may see.")
    of_job = queries.during(job)
    classes = context.of_job(name, queries.classes(of_job, CLASSES))
    chosen = next((one for one in classes if class_id is None or int(one["class_id"]) == class_id), None)
    onset_at = -1.0 if job["onset_at"] is None else job["onset_at"]
    reported_at = max([job["started_at"], *(one["reported_at"] for one in classes)])
    running = job["ended_at"] is None
    silent = running and reported_at < context.now - queries.SILENT_SECONDS
    return {
        "row": shown(job, silent),
        "classes": classes,
        "chosen": chosen,
        "trace": _trace(context, job, int(chosen["class_id"])) if chosen else None,
        "nodes": _before_and_since(context.of_job(name, queries.node_times(of_job, onset_at))),
        "workers": context.of_job(name, queries.workers(of_job, MOST_WORKERS, onset_at)),
        "late_ranks": context.of_job(name, queries.late_ranks(of_job, onset_at)),
        "end": [job["started_at"] + took for took in job["prediction"] or ()] if running else None,
    }


def _before_and_since(rows: list[Row]) -> list[Row]:
    """One row per node with its times before and since the onset, the largest growth of own work first."""
    nodes: dict[str, Row] = {}
    for row in rows:
        side = "" if row["since"] else "_before"
        node = nodes.setdefault(row["host"], {"host": row["host"], "ranks": row["ranks"]})
        node |= {f"{name}{side}": row[name] for name in ("own", "wait")}
    return sorted(nodes.values(), key=lambda node: node.get("own_before", 0.0) - node.get("own", 0.0))[:MOST_NODES]


def _trace(context: ViewContext, job: Row, class_id: int) -> dict[str, Any] | None:
    """The intervals of one class as a `chart`, as a sentence in `text`, and as `rows` of a table, with their `band`."""
    key, onset_at = f"{job['job']} {class_id}", job["onset_at"]
    # A later band may contain this job, once it has ended healthy.
    before = job["ended_at"] or context.now + 86400
    bands = context.of_job(job["job"], queries.band(job["workload"], class_id, before), name=f"band {key}")
    band = next((row for row in bands if all(map(finite, limits(row)))), None)
    lower, expected, upper = limits(band) if band else (0.0, 0.0, 1e9)
    trace = queries.trace(queries.during(job), class_id, lower, upper)
    points = context.of_job(job["job"], trace, name=f"trace {key}")
    points = [
        p for p in points if known_time(p["ended_at"]) and all(finite(p[name]) for name in ("least", "mean", "longest"))
    ]
    if not points:
        return None
    # Above all means and the band. Single long intervals may be clipped.
    longest = sorted(p["longest"] for p in points)[math.floor(0.95 * (len(points) - 1))]
    top = HEADROOM * max(*(p["mean"] for p in points), longest, upper if band else 0.0)
    first, last = points[0]["ended_at"], points[-1]["ended_at"]
    figure = Figure(time_axis(first, last, LEFT, RIGHT), linear(0.0, top, BOTTOM, TOP, round_seconds), "interval")
    if band:
        figure.band(lower, upper, "band")
        figure.level(expected, "expected")
    figure.area(((p["ended_at"], p["least"], p["longest"]) for p in points), "range")
    figure.line(((p["ended_at"], p["mean"]) for p in points), "trace")
    if onset_at is not None and onset_at <= last:
        figure.mark(max(onset_at, first), f"{job['state']} since {clock(onset_at, context.now)}", "onset")
    if job["recovered_at"] is not None and job["recovered_at"] <= last:
        figure.mark(job["recovered_at"], "recovered", "recovery", line=1)
    text = _text(points, band, top, onset_at)
    chart = draw(f"Intervals of {job['job']}. {text}", figure)
    return {"chart": chart, "text": text, "rows": points[:: -(-len(points) // TABLE_ROWS)], "band": band}


def _text(points: list[Row], band: Row | None, top: float, onset_at: float | None) -> str:
    text = f"{sum(p['intervals'] for p in points):,} intervals, {seconds(_mean(points))} on average"
    if onset_at is not None:
        earlier, later = ([p for p in points if (p["ended_at"] > onset_at) is since] for since in (False, True))
        if earlier and later:
            text += f" ({seconds(_mean(earlier))} before the onset, {seconds(_mean(later))} since)"
    longest = max(p["longest"] for p in points)
    text += f", the longest {seconds(longest)}{', beyond the chart' if longest > top else ''}."
    if band is None:
        return f"{text} No band: too few intervals of this class are known."
    lower, upper = (seconds(band[f"{limit}_seconds"]) for limit in ("lower", "upper"))
    text += f" Of the latest intervals of earlier healthy runs 95 % took {lower} to {upper}"
    single, outside = (sum(p[name] for p in points) for name in ("single", "outside"))
    if single:
        text += f"; of those recorded one by one {percent(outside / single)} of this job are outside"
    return f"{text}."


def _mean(points: list[Row]) -> float:
    return float(sum(p["mean"] * p["intervals"] for p in points) / sum(p["intervals"] for p in points))
