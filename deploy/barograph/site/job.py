"""One job: its intervals over their band, its alarm, who came last, and when it should end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from barograph.site import queries
from barograph.site.desk import NotThere, RequestContext
from barograph.site.figure import BOTTOM, LEFT, RIGHT, TOP, Figure
from barograph.site.log import Row
from barograph.site.scale import durations, timeline
from barograph.site.states import Shown, shown
from barograph.site.words import clock, known, percent, seconds

CLEAR: Final = 1.15
"""How far above the highest thing that must be seen the paper ends."""
TABLE_ROWS: Final = 24


@dataclass(frozen=True)
class IntervalTrace:
    """The intervals of one class as a chart, in a sentence, and as rows of a table."""

    chart: Markup
    text: str
    rows: list[Row]
    band: Row | None


@dataclass(frozen=True)
class JobView:
    """Everything that the page of a job shows. Times are Unix seconds."""

    row: Row
    state: Shown
    classes: list[Row]
    chosen: Row | None
    trace: IntervalTrace | None
    arrivals: list[Row]
    latecomers: list[Row]
    end: tuple[float, float, float] | None
    """Lower, expected and upper end of a job that runs, as its prediction has it."""


def view(desk: RequestContext, name: str, class_id: int | None) -> JobView:
    """The page of a job. class_id: the class to draw, None for the one where most time goes. Raises NotThere, Away."""
    found = desk.mine(desk.ask(queries.job(name)))
    if not found:
        raise NotThere(f"There is no job {name} in the log that you may see.")
    row = found[0]
    of_job = queries.during(row)
    classes = desk.ask(queries.classes(of_job))
    chosen = next((one for one in classes if class_id is None or int(one["class_id"]) == class_id), None)
    onset = row["onset_at"] if known(row["onset_at"]) else -1.0
    return JobView(
        row=row,
        state=shown(row, _is_silent(desk, row, classes)),
        classes=classes,
        chosen=chosen,
        trace=_trace(desk, row, int(chosen["class_id"])) if chosen else None,
        arrivals=_paired(desk.ask(queries.arrivals(of_job, onset))),
        latecomers=desk.ask(queries.latecomers(of_job, onset)),
        end=_end(row),
    )


def _is_silent(desk: RequestContext, row: Row, classes: list[Row]) -> bool:
    heard_at = max([row["started_at"], *(one["heard_at"] for one in classes)])
    return row["ended_at"] is None and bool(heard_at < desk.now - queries.HEARD_SECONDS)


def _end(row: Row) -> tuple[float, float, float] | None:
    if row["ended_at"] is not None or not known(row["expected_seconds"]):
        return None
    lower, expected, upper = (row["started_at"] + row[f"{limit}_seconds"] for limit in ("lower", "expected", "upper"))
    return lower, expected, upper


def _paired(rows: list[Row]) -> list[Row]:
    """One row per node, with what was before the onset beside what is since; most growth of its own work first."""
    nodes: dict[str, Row] = {}
    for row in rows:
        side = "" if row["since"] else "_before"
        node = nodes.setdefault(row["host"], {"host": row["host"], "ranks": row["ranks"]})
        node |= {f"{name}{side}": row[name] for name in ("own", "wait", "least_wait", "syncs")}
    return sorted(nodes.values(), key=lambda node: -_growth(node))[:64]


def _growth(node: Row) -> float:
    return float(node.get("own", 0.0)) - float(node.get("own_before", 0.0))


def _trace(desk: RequestContext, row: Row, class_id: int) -> IntervalTrace | None:
    # A finished healthy job has become part of its own band: it is shown over what was known before.
    before = row["ended_at"] if row["ended_at"] is not None else desk.now + 86400
    bands = desk.ask(queries.band(row["workload"], class_id, before), name=f"band {row['job']} {class_id}")
    band = bands[0] if bands else None
    lower, upper = (band["lower_seconds"], band["upper_seconds"]) if band else (0.0, 1e9)
    points = desk.ask(queries.trace(queries.during(row), class_id, lower, upper), name=f"trace {row['job']} {class_id}")
    if not points:
        return None
    top = _top(points, band)
    figure = Figure(timeline(points[0]["at"], points[-1]["at"], LEFT, RIGHT), durations(0.0, top, BOTTOM, TOP))
    if band:
        figure.ribbon(band["lower_seconds"], band["upper_seconds"], "band")
        figure.level(band["expected_seconds"], "expected")
    figure.area(((p["at"], p["least"], p["longest"]) for p in points), "range")
    figure.line(((p["at"], p["mean"]) for p in points), "trace")
    if known(row["onset_at"]) and row["onset_at"] <= points[-1]["at"]:
        figure.mark(
            max(row["onset_at"], points[0]["at"]), f"{row['state']} since {clock(row['onset_at'], desk.now)}", "onset"
        )
    if known(row["recovered_at"]) and row["recovered_at"] <= points[-1]["at"]:
        figure.mark(row["recovered_at"], "recovered", "recovery")
    text = _text(points, band, top, row["onset_at"])
    return IntervalTrace(figure.draw(f"Intervals of {row['job']}", text), text, _thinned(points), band)


def _top(points: list[Row], band: Row | None) -> float:
    """Where the paper ends: above all means and the band; single long intervals may leave it."""
    highest = max(p["mean"] for p in points)
    longest = sorted(p["longest"] for p in points)[math.floor(0.95 * (len(points) - 1))]
    return CLEAR * float(max(highest, longest, band["upper_seconds"] if band else 0.0))


def _text(points: list[Row], band: Row | None, top: float, onset_at: float | None) -> str:
    said = f"{sum(p['intervals'] for p in points):,} intervals, {seconds(_mean(points))} on average"
    if onset_at is not None and known(onset_at):
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


def _thinned(points: list[Row]) -> list[Row]:
    step = -(-len(points) // TABLE_ROWS)
    return points[::step]
