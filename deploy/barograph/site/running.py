"""The running jobs: filtered, sorted, a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from barograph.site import queries
from barograph.site.desk import RequestContext
from barograph.site.figure import spark
from barograph.site.log import Row
from barograph.site.states import ALARMS, LEGEND, Shown, shown
from barograph.site.words import known

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
        """Whether each word is in its names, its state, or what is said of its alarm."""
        row = self.row
        # What is said of a healthy job speaks of "slow" too.
        said = row["sentence"] if self.disturbed else ""
        text = f"{row['job']} {row['app']} {row['user']} {row['workload']} {self.state.word} {said}".lower()
        return all(word in text for word in words)


@dataclass(frozen=True)
class Listing:
    """A page of the table: `jobs` out of `matching` out of `all`, and how many of all are in which state."""

    jobs: list[Running]
    sparks: Mapping[str, Markup]
    matching: int
    all: int
    counts: list[tuple[Shown, int]]
    page: int
    pages: int
    sort: str
    filter: str


def _figure(name: str) -> Callable[[Running], Any]:
    return lambda job: -(job.row[name] if known(job.row[name]) else -1.0)


SORTS: Final[dict[str, Callable[[Running], Any]]] = {
    "score": lambda job: (job.state.rank, _figure("score")(job), -job.row["started_at"]),
    "slowdown": _figure("slowdown"),
    "job": lambda job: job.row["job"],
    "app": lambda job: (job.row["app"], job.row["job"]),
    "ranks": _figure("ranks"),
    "started": _figure("started_at"),
}


def heard(desk: RequestContext) -> set[str]:
    """Jobs that have said something of late. Raises Away."""
    return {row["job"] for row in desk.ask(queries.heard(desk.now), fresh=15.0, name="heard")}


def running(desk: RequestContext) -> list[Running]:
    """All jobs that run and that the viewer may see, those first that need somebody. Raises Away."""
    rows = desk.mine(desk.ask(queries.open_jobs(desk.now), name="open jobs"))
    talking = heard(desk)
    quiet_from = desk.now - queries.HEARD_SECONDS
    jobs = [Running(row, shown(row, row["job"] not in talking and row["started_at"] < quiet_from)) for row in rows]
    return sorted(jobs, key=SORTS["score"])


def listing(desk: RequestContext, filter_: str, sort: str, page: int) -> Listing:
    """A page of them; `page` counts from 1 and is taken as the last where there are fewer. Raises Away."""
    every = running(desk)
    words = filter_.lower().split()
    found = [job for job in every if job.holds(words)]
    if sort != "score":
        found.sort(key=SORTS[sort])
    pages = max(1, -(-len(found) // PER_PAGE))
    page = min(max(page, 1), pages)
    jobs = found[(page - 1) * PER_PAGE : page * PER_PAGE]
    counts = [(state, sum(job.state is state for job in every)) for state in LEGEND]
    return Listing(
        jobs=jobs,
        sparks=_sparks(desk, jobs),
        matching=len(found),
        all=len(every),
        counts=[(state, count) for state, count in counts if count],
        page=page,
        pages=pages,
        sort=sort,
        filter=filter_,
    )


def _sparks(desk: RequestContext, jobs: list[Running]) -> dict[str, Markup]:
    if not jobs:
        return {}
    series: dict[str, list[float]] = {}
    names = sorted(job.row["job"] for job in jobs)
    for row in desk.ask(queries.sparks(names, desk.now), fresh=5.0, name=f"sparks {names}"):
        series.setdefault(row["job"], []).append(row["seconds"])
    return {job: spark(values) for job, values in series.items() if len(values) >= FEWEST_POINTS}
