"""What all dashboards have: data source, variables, links to each other, and rows of panels.

They are of the classic model, which every Grafana since 11 provisions from files; the newer one needs 12.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard, DashboardLink, DatasourceVariable, QueryVariable, Row
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    VariableHide,
    VariableRefresh,
    VariableSort,
)

from barograph_dashboards.panels import DATASOURCE, AnyPanel

TAG: Final = "barograph"


def board(
    uid: str, title: str, description: str, *, since: str, refresh: str, rows: Mapping[str, Sequence[AnyPanel]],
    variables: Sequence[QueryVariable] = (), links: Sequence[DashboardLink] = (),
) -> Dashboard:  # fmt: skip
    """A dashboard. since: where its time range begins, such as now-6h. rows: titles and panels; the first has none."""
    made = Dashboard(title).uid(uid).description(description).tags([TAG]).time(since, "now").refresh(refresh).readonly()
    made.tooltip(DashboardCursorSync.CROSSHAIR)
    for choice in (DatasourceVariable("datasource").label("Data source").type("prometheus"), *variables):
        made.with_variable(choice)
    for address in links:
        made.link(address)
    for name, panels in rows.items():
        if name:
            made.with_row(Row(name))
        for panel in panels:
            made.with_panel(panel)
    return made


def link(title: str, url: str) -> DashboardLink:
    """A link beside the variables; the time range goes with it."""
    return DashboardLink(title).type(DashboardLinkType.LINK).url(url).keep_time(True).icon("external link")


def variable(name: str, query: str, *, label: str = "", regex: str = "", sort: bool = True) -> QueryVariable:
    """A choice from what Prometheus has in the time range; hidden without a label."""
    made = QueryVariable(name).query(query).datasource(DATASOURCE).regex(regex)
    made.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    made.sort(VariableSort.NATURAL_ASC if sort else VariableSort.DISABLED)
    return made.label(label) if label else made.hide(VariableHide.HIDE_VARIABLE)
