"""The running jobs, filtered, sorted and paged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from markupsafe import Markup

from barograph.charts.figure import sparkline
from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.log import Row
from barograph.views.states import ALARMS, LEGEND, display_state
from barograph.views.words import finite

PER_PAGE: Final = 50
LEAST_POINTS: Final = 4
"""A shorter sparkline is left out."""


def _matches(job: Row, words: list[str]) -> bool:
    """Whether each word is in the names, the state, or the sentence of the alarm of a job."""
    # The sentence of a healthy job contains the word "slow" too.
    sentence = job["sentence"] if job["shown"].name in ALARMS else ""
    text = f"{job['job']} {job['app']} {job['user']} {job['workload']} {job['shown'].word} {sentence}".lower()
    return all(word in text for word in words)


def _descending(name: str) -> Callable[[Row], Any]:
    return lambda job: -(job[name] if finite(job[name]) else -1.0)


SORTS: Final[dict[str, Callable[[Row], Any]]] = {
    "score": lambda job: (job["shown"].rank, _descending("score")(job), -job["started_at"]),
    "slowdown": _descending("slowdown"),
    "job": lambda job: job["job"],
    "app": lambda job: (job["app"], job["job"]),
    "ranks": _descending("ranks"),
    "started": _descending("started_at"),
}


def reporting(context: ViewContext) -> set[str]:
    """The names of the jobs that are not silent."""
    return {row["job"] for row in context.rows(queries.reporting(context.now), max_age=15.0, name="reporting")}


def _running(context: ViewContext) -> list[Row]:
    """The running jobs that the viewer may see with the displayed state in `shown`, the most urgent first."""
    rows = context.visible(queries.open_jobs(context.now), name="open jobs")
    senders = reporting(context)
    silent_from = context.now - queries.SILENT_SECONDS
    silent = [row["job"] not in senders and row["started_at"] < silent_from for row in rows]
    jobs = [row | {"shown": display_state(row, still)} for row, still in zip(rows, silent, strict=True)]
    return sorted(jobs, key=SORTS["score"])


def listing(context: ViewContext, filter_: str, sort: str, page: int) -> dict[str, Any]:
    """A page of `jobs`, the numbers of `matching` and `all` jobs, and `counts` of all by state.

    page: from 1; numbers beyond the last page select the last page.
    """
    every = _running(context)
    words = filter_.lower().split()
    found = sorted((job for job in every if _matches(job, words)), key=SORTS[sort])
    pages = max(1, -(-len(found) // PER_PAGE))
    page = min(max(page, 1), pages)
    jobs = found[(page - 1) * PER_PAGE : page * PER_PAGE]
    counts = [(state, sum(job["shown"] is state for job in every)) for state in LEGEND]
    return {
        "jobs": jobs,
        "sparklines": _sparklines(context, jobs),
        "matching": len(found),
        "all": len(every),
        "counts": [(state, count) for state, count in counts if count],
        "page": page,
        "pages": pages,
        "sort": sort,
        "filter": filter_,
    }


def _sparklines(context: ViewContext, jobs: list[Row]) -> dict[str, Markup]:
    if not jobs:
        return {}
    series: dict[str, list[float]] = {}
    names = sorted(job["job"] for job in jobs)
    for row in context.rows(queries.sparks(names, context.now), max_age=5.0, name=f"sparks {names}"):
        series.setdefault(row["job"], []).append(row["seconds"])
    return {job: sparkline(values) for job, values in series.items() if len(values) >= LEAST_POINTS}
