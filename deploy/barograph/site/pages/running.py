"""Jobs: those that run, filtered, sorted and paged, and those that ended lately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from markupsafe import Markup

from barograph.charts.figure import sparkline
from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.jobs import JobQuery
from barograph.views.log import Row
from barograph.views.states import ALARMS, LEGEND, shown
from barograph.views.words import finite

PER_PAGE: Final = 50
LEAST_POINTS: Final = 4
"""A shorter sparkline is left out."""
FIRST_OF_USER: Final = 20
"""Jobs of a user beyond these follow those of all users, and ended ones are left out unless the user is selected."""
MAX_ENDED: Final = 5_000
"""Ended jobs that a query returns."""
MAX_USER_ENDED: Final = 500
"""Those of one user among them."""
SHOWN_ENDED: Final = 100
PERIODS: Final = {"": 7 * 86400, "1h": 3600, "1d": 86400, "7d": 7 * 86400, "30d": 30 * 86400}
"""Seconds before now of the periods that may be selected; without one, those of ended jobs."""


def _descending(name: str) -> Callable[[Row], Any]:
    return lambda job: -(job[name] if finite(job[name]) else -1.0)


def _urgency(job: Row) -> tuple[float, ...]:
    """Alarms first, then the newest job."""
    alarmed = job["shown"].name in ALARMS
    first = (job["shown"].rank, _descending("score")(job)) if alarmed else (len(ALARMS), 0.0)
    return (job["place"] > FIRST_OF_USER, *first, _descending("started_at")(job), job["shown"].rank)


SORTS: Final[dict[str, Callable[[Row], Any]]] = {
    "score": _urgency,
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
    """The running jobs that the viewer may see with what is displayed, as `states.shown` has it."""
    rows = context.visible(queries.open_jobs(context.now), name="open jobs")
    senders = reporting(context)
    silent_from = context.now - queries.SILENT_SECONDS
    silent = [row["job"] not in senders and row["started_at"] < silent_from for row in rows]
    return [shown(row, still) for row, still in zip(rows, silent, strict=True)]


def _is_selected(job: Row, selection: JobQuery, words: Iterable[str]) -> bool:
    # The sentence of a healthy job contains the word "slow" too.
    sentence = job["sentence"] if job["shown"].name in ALARMS else ""
    text = f"{job['job']} {job['app']} {job['user']} {job['workload']} {job['shown'].word} {sentence}".lower()
    return (
        selection.user in ("", job["user"])
        and selection.app in ("", job["app"])
        and selection.state in ("", job["shown"].name)
        and (job["started_at"] >= selection.since or "ended_at" in job)
        and all(word in text for word in words)
    )


def listing(context: ViewContext, given: dict[str, str], sort: str, page: int) -> dict[str, Any]:
    """A page of running `jobs`, the numbers of `matching` and `all`, `counts` by state, and jobs that `ended`.

    given: `filter`, `user`, `app`, `state` and `since` as in the address. page: from 1; numbers beyond the last page
    select the last page. `cut`: number of running jobs of users of whom not all are listed.
    """
    words = given["filter"].lower().split()
    since = context.now - PERIODS[given["since"]]
    selection = JobQuery(given["user"], given["app"], given["state"], since, viewer=context.user)
    running = replace(selection, since=since if given["since"] else 0.0)
    every = _running(context)
    found = sorted((job for job in every if _is_selected(job, running, words)), key=SORTS[sort])
    pages = max(1, -(-len(found) // PER_PAGE))
    page = min(max(page, 1), pages)
    jobs = found[(page - 1) * PER_PAGE : page * PER_PAGE]
    counts = [(state, sum(job["shown"] is state for job in every)) for state in LEGEND]
    # One query for all words that are typed.
    over = matching(context, replace(selection, ended=True, watched=True), f"ended {given | {'filter': ''}}")
    over = _fairly(job for job in over if _is_selected(job, selection, words))
    return {
        "jobs": jobs,
        "sparklines": _sparklines(context, jobs),
        "matching": len(found),
        "all": len(every),
        "counts": [(state, count) for state, count in counts if count],
        "cut": {job["user"]: job["of_user"] for job in every if job["of_user"] > queries.MAX_USER_RUNNING},
        "page": page,
        "pages": pages,
        "sort": sort,
        "given": given | {"sort": "" if sort == "score" else sort},
        "is_filtered": any(given.values()),
        "ended": over,
        "ended_cut": _cut(over),
        "days": PERIODS[given["since"]] / 86400,
    }


def matching(context: ViewContext, selection: JobQuery, name: str) -> list[Row]:
    """The newest jobs of a selection, at most MAX_USER_ENDED of each user. name: of the query in the cache."""
    rows = context.visible(selection.joint(context.now, MAX_USER_ENDED, MAX_ENDED), name=f"{name} {selection.viewer}")
    return [shown(row) for row in rows]


def _fairly(jobs: Iterable[Row]) -> list[Row]:
    """The first SHOWN_ENDED jobs, at most FIRST_OF_USER of a user unless there is only one."""
    found = list(jobs)
    several = len({job["user"] for job in found}) > 1
    places: Counter[str] = Counter()
    first = []
    for job in found:
        places[job["user"]] += 1
        if not several or places[job["user"]] <= FIRST_OF_USER:
            first.append(job)
    return first[:SHOWN_ENDED]


def _cut(jobs: list[Row]) -> dict[str, int]:
    """The numbers of ended jobs of users of whom more than FIRST_OF_USER are left out of a list of several users."""
    users = {job["user"]: job["of_user"] for job in jobs}
    return {user: count for user, count in users.items() if count > FIRST_OF_USER} if len(users) > 1 else {}


def _sparklines(context: ViewContext, jobs: list[Row]) -> dict[str, Markup]:
    if not jobs:
        return {}
    series: dict[str, list[float]] = {}
    names = sorted(job["job"] for job in jobs)
    for row in context.rows(queries.sparks(names, context.now), max_age=5.0, name=f"sparks {names}"):
        series.setdefault(row["job"], []).append(row["seconds"])
    return {job: sparkline(values) for job, values in series.items() if len(values) >= LEAST_POINTS}
