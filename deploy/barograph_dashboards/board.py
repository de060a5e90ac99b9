"""Builds a dashboard from its TOML file: variables, links, and rows of panels.

`<NAME>` in any text of a file stands for the constant NAME of its table `constants`. The dashboards use Grafana's
classic model, which every Grafana since 11 provisions from files; the newer model needs 12.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from grafana_foundation_sdk.builders.dashboard import Dashboard, DashboardLink, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    VariableHide,
    VariableRefresh,
    VariableSort,
)

from barograph_dashboards.panels import DATASOURCE, AnyPanel, Query, band, by_ranks, series, stat, table

KINDS: Final[Mapping[str, Callable[..., AnyPanel]]] = {
    "stat": stat,
    "series": series,
    "table": table,
    "by_ranks": by_ranks,
}


def dashboard(path: Path) -> Dashboard:
    """The dashboard that the file describes."""
    file = tomllib.loads(path.read_text())
    spec = _expanded(file, file["constants"])
    made = Dashboard(spec["title"]).uid(spec["uid"]).description(spec["description"]).tags(["barograph"])
    made.time(spec["since"], "now").refresh(spec["refresh"]).readonly().tooltip(DashboardCursorSync.CROSSHAIR)
    made.with_variable(DatasourceVariable("datasource").label("Data source").type("prometheus"))
    for one in spec.get("variables", ()):
        made.with_variable(_variable(**one))
    for one in spec.get("links", ()):
        link = DashboardLink(one["title"]).type(DashboardLinkType.LINK).url(one["url"])
        made.link(link.keep_time(True).icon("external link"))
    for row in spec["rows"]:
        if row["title"]:
            made.with_row(Row(row["title"]))
        for panel in row["panels"]:
            made.with_panel(_panel(**panel))
    return made


def _expanded(node: Any, constants: Mapping[str, str]) -> Any:
    match node:
        case str():
            return re.sub(r"<([A-Z_]+)>", lambda found: _expanded(constants[found[1]], constants), node)
        case dict():
            return {key: _expanded(value, constants) for key, value in node.items()}
        case list():
            return [_expanded(value, constants) for value in node]
    return node


def _panel(kind: str, **arguments: Any) -> AnyPanel:
    for key in arguments.keys() & {"queries", "columns"}:
        arguments[key] = [one if isinstance(one, str) else Query(**one) for one in arguments[key]]
    if "band" in arguments:
        arguments["queries"] = [*band(**arguments.pop("band")), *arguments["queries"]]
    return KINDS[kind](**arguments)


def _variable(name: str, query: str, label: str = "", regex: str = "", sort: bool = True) -> QueryVariable:
    """A choice among label values in the time range; hidden without a label."""
    made = QueryVariable(name).query(query).datasource(DATASOURCE).regex(regex)
    made.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    made.sort(VariableSort.NATURAL_ASC if sort else VariableSort.DISABLED)
    return made.label(label) if label else made.hide(VariableHide.HIDE_VARIABLE)
