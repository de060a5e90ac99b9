"""The form for a prediction, and its answer."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from barograph.charts.parts import parts_chart
from barograph.charts.projection import projection
from barograph.views import queries
from barograph.views.advice import sentences
from barograph.views.context import ViewContext
from barograph_agent.job.identity import JobError, parse_params

FIELDS = ("app", "ranks", "nodes", "params", "cluster", "risk")


def view(context: ViewContext, query: Mapping[str, str]) -> dict[str, Any]:
    """The fields of the form, and the answer in sentences and as charts, or an error."""
    given = {name: query.get(name, "").strip() for name in FIELDS}
    known = sorted({row["app"] for row in context.rows(queries.applications(context.user), max_age=30.0)})
    page: dict[str, Any] = {"given": given, "known": known, "sentences": [], "chart": None, "parts": None, "error": ""}
    if not given["app"]:
        return page
    try:
        params = parse_params(_words(given["params"].replace(",", " ")))
    except (JobError, ValueError) as error:
        return page | {"error": str(error)}
    fields = {name: given[name] or None for name in FIELDS if name != "params"}
    answer, reason = context.predict(params, **fields, curve="1")
    if answer is None:
        return page | {"error": reason}
    chart, parts = (projection(answer), parts_chart(answer)) if answer["refusal"] is None else (None, None)
    return page | {"sentences": sentences(answer), "chart": chart, "parts": parts, "ranks": answer["ranks"]}


def _words(text: str) -> list[str]:
    """Parameters with spaces between; a value with spaces is in quotes. Raises ValueError."""
    try:
        return shlex.split(text)
    except ValueError:
        raise ValueError(f"parameters are {text[:80]!r}, expected an end of each quotation") from None
