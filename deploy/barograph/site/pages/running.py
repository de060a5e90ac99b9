"""The running jobs: filtered, sorted, a page at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from barograph.charts.figure import sparkline
from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.log import Row
from barograph.views.states import ALARMS, LEGEND, Shown, shown
from barograph.views.words import known

PER_PAGE: Final = 50
FEWEST_POINTS: Final = 4
"""A line of fewer says nothing."""


@dataclass(frozen=True)
class Running:
    """A job that runs: its row, and the state it is shown in."""

    row: Row
    state: Shown

    @property
    def disturbed(self) -> bool:
        """Whether its alarm is on."""
        return self.state.name in ALARMS

    def holds(self, words: list[str]) -> bool:
        """Whether each word is in its names, its state, or the sentence of its alarm."""
        row = self.row
        # The sentence of a healthy job has the word "slow" too.
        said = row["sentence"] if self.disturbed else ""
        text = f"{row['job']} {row['app']} {row['user']} {row['workload']} {self.state.word} {said}".lower()
        return all(word in text for word in words)


def _largest(name: str) -> Callable[[Running], Any]:
    return lambda job: -(job.row[name] if known(job.row[name]) else -1.0)


SORTS: Final[dict[str, Callable[[Running], Any]]] = {
    "score": lambda job: (job.state.rank, _largest("score")(job), -job.row["started_at"]),
    "slowdown": _largest("slowdown"),
    "job": lambda job: job.row["job"],
    "app": lambda job: (job.row["app"], job.row["job"]),
    "ranks": _largest("ranks"),
    "started": _largest("started_at"),
}


def reporting(context: ViewContext) -> set[str]:
    """Jobs that are not silent."""
    return {row["job"] for row in context.rows(queries.reporting(context.now), fresh=15.0, name="reporting")}


def running(context: ViewContext) -> list[Running]:
    """All jobs that run and that the viewer may see, the most urgent first."""
    rows = context.visible(queries.open_jobs(context.now), name="open jobs")
    talking = reporting(context)
    silent_from = context.now - queries.SILENT_SECONDS
    jobs = [Running(row, shown(row, row["job"] not in talking and row["started_at"] < silent_from)) for row in rows]
    return sorted(jobs, key=SORTS["score"])


def listing(context: ViewContext, filter_: str, sort: str, page: int) -> dict[str, Any]:
    """A page of them: `jobs` out of `matching` out of `all`, and how many of all are in which state.

    page: from 1 on; beyond the last one it is the last.
    """
    every = running(context)
    words = filter_.lower().split()
    found = sorted((job for job in every if job.holds(words)), key=SORTS[sort])
    pages = max(1, -(-len(found) // PER_PAGE))
    page = min(max(page, 1), pages)
    jobs = found[(page - 1) * PER_PAGE : page * PER_PAGE]
    counts = [(state, sum(job.state is state for job in every)) for state in LEGEND]
    return {
        "jobs": jobs,
        "sparks": _sparks(context, jobs),
        "matching": len(found),
        "all": len(every),
        "counts": [(state, count) for state, count in counts if count],
        "page": page,
        "pages": pages,
        "sort": sort,
        "filter": filter_,
    }


def _sparks(context: ViewContext, jobs: list[Running]) -> dict[str, Markup]:
    if not jobs:
        return {}
    series: dict[str, list[float]] = {}
    names = sorted(job.row["job"] for job in jobs)
    for row in context.rows(queries.sparks(names, context.now), fresh=5.0, name=f"sparks {names}"):
        series.setdefault(row["job"], []).append(row["seconds"])
    return {job: sparkline(values) for job, values in series.items() if len(values) >= FEWEST_POINTS}
