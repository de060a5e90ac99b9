"""What a report on a job shows: how it went, by class and by node, and what had been predicted of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Final

import numpy as np

from barograph.report.classes import site
from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.job import JobSummary, find
from barograph.views.log import Row
from barograph.views.refusal import NothingKnown
from barograph_modeler.maxima.sample import Floats

PHASES: Final = 12
"""Classes shown: those in which most time was spent."""
POINTS: Final = 1_500
"""Intervals of a class that are drawn, about."""


@dataclass(frozen=True)
class Phase:
    """A class of the job: site, share of its time, intervals, the band, and what is drawn: Unix seconds, seconds."""

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
    """Everything the page says. nodes: rows of `queries.waited_for`, those that the others waited for most first."""

    job: JobSummary
    phases: Sequence[Phase]
    nodes: Sequence[Row]


def gather(context: ViewContext, name: str) -> JobReport:
    """Ask the log. Raises NothingKnown."""
    job = find(context, name)
    if job is None:
        raise NothingKnown(f"no job {name!r} is in the log, expected one that `barograph status` shows")
    of_job = f"job = {queries.text(name)}"
    classes = context.rows(queries.classes(of_job, PHASES))
    phases = [_phase(context, job, of_job, letter, row) for letter, row in zip(ascii_uppercase, classes, strict=False)]
    return JobReport(job, phases, context.rows(queries.waited_for(of_job)))


def _phase(context: ViewContext, job: JobSummary, of_job: str, letter: str, row: Row) -> Phase:
    class_id, step = int(row["class_id"]), max(1, math.ceil(2 * row["rows"] / POINTS))
    bands = context.rows(queries.band(job.row["workload"], class_id, before=None))
    drawn = context.rows(queries.thinned(of_job, class_id, step))
    return Phase(
        letter,
        site(row),
        row["share"],
        row["intervals"],
        row["seconds"] / row["intervals"],
        bands[0] if bands else None,
        step,
        np.array([one["ended_at"] for one in drawn]),
        np.array([one["seconds"] for one in drawn]),
    )
