"""What all dashboards have: the data source, the links to each other, and how they are kept fresh.

They are of the classic model, which every Grafana since 11 provisions from files; the newer one needs 12.
"""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard, DashboardLink, DatasourceVariable, QueryVariable
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    VariableHide,
    VariableRefresh,
    VariableSort,
)

from barograph_dashboards.panels import DATASOURCE

TAG: Final = "barograph"


def board(uid: str, title: str, description: str, *, since: str, refresh: str) -> Dashboard:
    """An empty dashboard. since: where its time range begins, such as now-6h."""
    return (
        Dashboard(title)
        .uid(uid)
        .description(description)
        .tags([TAG])
        .time(since, "now")
        .refresh(refresh)
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )


def link(title: str, url: str) -> DashboardLink:
    """A link beside the variables; the time range goes with it."""
    return DashboardLink(title).type(DashboardLinkType.LINK).url(url).keep_time(True).icon("external link")


def variable(name: str, query: str, *, label: str = "", regex: str = "", sort: bool = True) -> QueryVariable:
    """A choice from what Prometheus has in the time range. Without a label the reader does not see it."""
    made = QueryVariable(name).query(query).datasource(DATASOURCE).regex(regex)
    made.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    made.sort(VariableSort.NATURAL_ASC if sort else VariableSort.DISABLED)
    return made.label(label) if label else made.hide(VariableHide.HIDE_VARIABLE)
