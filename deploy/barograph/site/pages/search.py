"""The search: jobs, applications and nodes by name."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from barograph.site.pages.running import SHOWN_ENDED, matching
from barograph.views import queries
from barograph.views.context import ViewContext
from barograph.views.jobs import JobQuery
from barograph.views.log import SEARCH


def view(context: ViewContext, search: str) -> dict[str, Any]:
    """The `jobs` and `applications` that match. `go`: the address of the only job of this name or number, if any."""
    search = search.strip()
    if not search:
        return {"search": "", "jobs": [], "applications": [], "go": ""}
    with SEARCH:
        jobs = matching(context, JobQuery(search=search, viewer=context.user), f"search {search}")[:SHOWN_ENDED]
        named = matching(context, JobQuery(name=search, viewer=context.user), f"named {search}")
        applications = context.rows(queries.applications(context.user, search), max_age=10.0)
    go = f"/job/{quote(named[0]['job'])}" if len(named) == 1 else ""
    return {"search": search, "jobs": jobs, "applications": applications, "go": go}
