"""The form that asks how long a run will take, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from barograph.commands.predict import ModelerUnreachable, PredictionRefused
from barograph.site import queries
from barograph.site.desk import RequestContext
from barograph.site.projection import chart
from barograph.views.advice import sentences
from barograph_agent.job.identity import JobError, parse_params

FIELDS = ("app", "ranks", "nodes", "params", "cluster", "risk")


@dataclass(frozen=True)
class PredictionView:
    """The form as it was filled in, and what came of it: sentences and a chart, or why there is no answer."""

    given: dict[str, str]
    known: list[str]
    sentences: list[str]
    chart: Markup | None
    error: str


def view(desk: RequestContext, query: Mapping[str, str]) -> PredictionView:
    """The form; asked only where an application is named. Raises Away of the log."""
    given = {name: query.get(name, "").strip() for name in FIELDS}
    known = sorted({row["app"] for row in desk.ask(queries.applications(desk.user), fresh=30.0)})
    if not given["app"]:
        return PredictionView(given, known, [], None, "")
    try:
        said = desk.predict(_fields(given))
    except (JobError, PredictionRefused, ModelerUnreachable) as error:
        return PredictionView(given, known, [], None, str(error))
    lines = sentences(said)
    drawn = chart(said, f"Runtime of {given['app']} over ranks") if said["refusal"] is None else None
    return PredictionView(given, known, lines, drawn, "")


def _fields(given: Mapping[str, str]) -> dict[str, Any]:
    params = parse_params(given["params"].replace(",", " ").split())
    fields = {name: given[name] for name in FIELDS if name != "params" and given[name]}
    return fields | {f"param.{name}": value for name, value in params.items()} | {"curve": "1"}
