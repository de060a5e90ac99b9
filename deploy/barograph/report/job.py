"""The data of a report on a job: its classes, its nodes and its prediction."""

from __future__ import annotations

import math
from collections.abc import Iterator
from string import ascii_uppercase
from typing import Any, Final

from barograph.report import figures
from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.job import find
from barograph.views.log import Row
from barograph.views.refusal import NothingKnown
from barograph.views.words import period, plural, span

CLASSES: Final = 12
"""Limit of classes shown."""
WORKERS: Final = 30
"""Limit of workers of a training."""
POINTS: Final = 1_500
"""Approximate number of intervals of a class that are drawn."""
DRAWN: Final = 3
"""Classes drawn over time; the table has them all."""
VISIBLE: Final = 0.01
"""Least share of the time of a class that is drawn."""


def view(context: ViewContext, name: str) -> dict[str, Any]:
    """The values of the template. Raises NothingKnown."""
    job = find(context, name)
    if job is None:
        raise NothingKnown(f"no job {name!r} is in the log, expected one that `barograph status` shows")
    of_job = queries.during(job)
    rows = zip(ascii_uppercase, context.of_job(name, queries.classes(of_job, CLASSES)), strict=False)
    classes = [_class(context, job, letter, row) for letter, row in rows]
    nodes = context.of_job(name, queries.late_nodes(of_job))
    drawn = [one for one in classes[:DRAWN] if one["share"] >= VISIBLE]
    return {
        "title": f"Job {name}",
        "job": job,
        "summary": list(_summary(job)),
        "classes": classes,
        "drawn": drawn,
        "nodes": nodes,
        "workers": context.of_job(name, queries.workers(of_job, WORKERS)),
        "charts": {
            "timeline": figures.timeline(job, drawn) if drawn else None,
            "nodes": figures.nodes(nodes, job["members"]) if nodes else None,
        },
    }


def _class(context: ViewContext, job: Row, letter: str, row: Row) -> Row:
    """A row of `queries.classes` with `letter`, `band`, `step` and `points`.

    `points`: end (Unix seconds) and mean interval of the first and the slowest of each `step` consecutive blocks.
    """
    class_id, step = int(row["class_id"]), max(1, math.ceil(2 * row["rows"] / POINTS))
    bands = context.of_job(job["job"], queries.band(job["workload"], class_id, job["ended_at"] or context.now + 86400))
    thinned = queries.thinned(queries.during(job), class_id, step)
    points = [(one["ended_at"], one["seconds"]) for one in context.of_job(job["job"], thinned)]
    return row | {"letter": letter, "band": bands[0] if bands else None, "step": step, "points": points}


def _summary(job: Row) -> Iterator[str]:
    verdict = job["sentence"] or "this job has not been judged yet"
    yield period(f"{verdict[:1].upper()}{verdict[1:]}")
    if job["ended_at"] is None:
        yield "The log has no end of it."
        return
    took, status = job["runtime_seconds"], job["exit_status"]
    if took is None:
        yield "How long it took is unknown."
    elif job["prediction"] is not None:
        lower, expected, upper = job["prediction"]
        where = "within" if lower <= took <= upper else "outside of"
        yield (
            f"It took {span(took)}, {where} the {span(lower)} to {span(upper)} that were predicted while it ran;"
            f" the median was {span(expected)}."
        )
    else:
        yield f"It took {span(took)}. Nothing was predicted while it ran."
    if status != 0:
        yield "Its exit status is unknown." if status < 0 else f"It ended with status {status}."
    if job["dropped"]:
        yield f"Of {plural(job['intervals'], 'interval')}, {job['dropped']:,} were dropped before the log."
