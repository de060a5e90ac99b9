"""The data of a report on a job: its classes, its nodes and its prediction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Final

import numpy as np

from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.job import find
from barograph.views.log import Row
from barograph.views.refusal import NothingKnown
from barograph_modeler.maxima.sample import Floats

CLASSES: Final = 12
"""Limit of classes shown."""
POINTS: Final = 1_500
"""Approximate number of intervals of a class that are drawn."""


@dataclass(frozen=True)
class JobClass:
    """A class of intervals of the job with its share of the time, 0 to 1, and its band.

    step: of so many consecutive blocks the first and the slowest are drawn. at, seconds: ends (Unix seconds) and
    intervals that are drawn.
    """

    letter: str
    site: Row
    share: float
    intervals: int
    mean_seconds: float
    band: Row | None
    step: int
    at: Floats
    seconds: Floats


@dataclass(frozen=True)
class JobReport:
    """The data of the page. job: from `find`. nodes: rows of `queries.late_nodes`."""

    job: Row
    classes: Sequence[JobClass]
    nodes: Sequence[Row]


def gather(context: ViewContext, name: str) -> JobReport:
    """Query the log. Raises NothingKnown."""
    job = find(context, name)
    if job is None:
        raise NothingKnown(f"no job {name!r} is in the log, expected one that `barograph status` shows")
    of_job = f"job = {queries.text(name)}"
    rows = zip(ascii_uppercase, context.rows(queries.classes(of_job, CLASSES)), strict=False)
    classes = [_job_class(context, job["workload"], of_job, letter, row) for letter, row in rows]
    return JobReport(job, classes, context.rows(queries.late_nodes(of_job)))


def _job_class(context: ViewContext, workload: str, of_job: str, letter: str, row: Row) -> JobClass:
    class_id, step = int(row["class_id"]), max(1, math.ceil(2 * row["rows"] / POINTS))
    bands = context.rows(queries.band(workload, class_id, before=None))
    drawn = context.rows(queries.thinned(of_job, class_id, step))
    return JobClass(
        letter,
        row,
        row["share"],
        row["intervals"],
        row["seconds"] / row["intervals"],
        bands[0] if bands else None,
        step,
        np.array([one["ended_at"] for one in drawn]),
        np.array([one["seconds"] for one in drawn]),
    )
