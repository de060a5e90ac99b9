"""Panels as these dashboards use them. Each has a description and asks the data source that the reader has chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from grafana_foundation_sdk.builders import common as build
from grafana_foundation_sdk.builders.dashboard import FieldColor, ThresholdsConfig
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.table import Panel as Table
from grafana_foundation_sdk.builders.timeseries import Panel as Timeseries
from grafana_foundation_sdk.builders.xychart import Panel as Chart
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.xychart import XYShowMode

from barograph_dashboards.palette import BAD, BLUE, GOOD, GREY, ORANGE

BARS: Final[Mapping[str, object]] = {"custom.drawStyle": "bars"}
WRAPPED: Final[Mapping[str, object]] = {"custom.cellOptions": {"type": "auto", "wrapText": True}}
YES_OR_NO: Final[Mapping[str, object]] = {
    "mappings": [{"type": "value", "options": {"0": {"text": "no"}, "1": {"text": "yes"}}}]
}
DATASOURCE: Final = common.DataSourceRef("prometheus", "${datasource}")


@dataclass(frozen=True)
class Query:
    """What Prometheus is asked, and what the answer is called; `{{label}}` in a name stands for a label's value."""

    expr: str
    name: str
    color: str = ""
    unit: str = ""
    step: str = ""
    """At least so much time between points; the queries of bars take as much, so that nothing is counted twice."""
    properties: Mapping[str, object] = field(default_factory=dict)
    """Further properties of the answer's field, as Grafana calls them."""


def band(lower: str, expected: str, upper: str, name: str) -> list[Query]:
    """A shaded band around its median."""
    lowest = f"lower limit of {name}"
    bare: dict[str, object] = {"custom.lineWidth": 0}
    hidden = {"custom.hideFrom": {"legend": True, "tooltip": False, "viz": False}}
    shaded = {"custom.fillBelowTo": lowest, "custom.fillOpacity": 25}
    return [
        Query(lower, lowest, GREY, properties=bare | hidden),
        Query(upper, name, GREY, properties=bare | shaded),
        Query(expected, "expected", ORANGE),
    ]


def stat(
    title: str, description: str, query: str, *, unit: str = "short", bad_from: float | None = None, empty: str = "-",
    decimals: int | None = None, name: str = "",
) -> Stat:  # fmt: skip
    """One number. bad_from: from here on it is drawn as bad. empty: shown where there is no data. name: shown instead
    of the number."""
    panel = Stat().title(title).description(description).datasource(DATASOURCE).span(4).height(3)
    panel.with_target(_target(Query(query, name or title), 0)).unit(unit).no_value(empty)
    panel.graph_mode(common.BigValueGraphMode.NONE).thresholds(_thresholds(bad_from))
    panel.color_mode(common.BigValueColorMode.NONE if bad_from is None else common.BigValueColorMode.VALUE)
    if name:
        panel.text_mode(common.BigValueTextMode.NAME)
    return panel if decimals is None else panel.decimals(decimals)


def series(
    title: str, description: str, queries: Sequence[Query], *, unit: str = "short", span: int = 12, height: int = 8,
    line_at: float | None = None, minimum: float | None = None, stacked: bool = False, fill: int = 0,
    empty: str = "No data in this time range",
) -> Timeseries:  # fmt: skip
    """Values over time. line_at: a dashed line at this value, and bad above it."""
    panel = Timeseries().title(title).description(description).datasource(DATASOURCE).span(span).height(height)
    panel.unit(unit).line_width(1).fill_opacity(fill).show_points(common.VisibilityMode.NEVER).no_value(empty)
    panel.legend(_legend()).tooltip(
        build.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING)
    )
    for number, query in enumerate(queries):
        panel.with_target(_target(query, number))
        if properties := _properties(query):
            panel.override_by_query(_ref(number), properties)
    if minimum is not None:
        panel.min(minimum)
    if stacked:
        panel.stacking(build.StackingConfig().mode(common.StackingMode.NORMAL))
    if line_at is not None:
        style = build.GraphThresholdsStyleConfig().mode(common.GraphThresholdsStyleMode.DASHED)
        panel.thresholds(_thresholds(line_at)).thresholds_style(style)
    return panel


def table(
    title: str, description: str, columns: Sequence[str | Query], *, span: int = 24, height: int = 8,
    sort_by: str = "", empty: str = "None", links: Mapping[str, str] | None = None,
    widths: Mapping[str, int] | None = None,
) -> Table:  # fmt: skip
    """What is so now. columns: labels, and queries whose value is shown; all queries have all labels or the first of
    them. links: column to address, in which `${__value.raw}` is the cell."""
    panel = Table().title(title).description(description).datasource(DATASOURCE).span(span).height(height)
    for transformation in _one_table(panel, columns):
        panel.with_transformation(transformation)
    for query in (column for column in columns if isinstance(column, Query)):
        if properties := _properties(query):
            panel.override_by_name(query.name, properties)
    for name, url in (links or {}).items():
        link = {"title": f"Open this {name}", "url": url}
        panel.override_by_name(name.capitalize(), [DynamicConfigValue("links", [link])])
    if "sentence" in columns:
        panel.override_by_name("Sentence", [DynamicConfigValue(name, value) for name, value in WRAPPED.items()])
    for name, width in (widths or {}).items():
        panel.override_by_name(name, [DynamicConfigValue("custom.width", width)])
    if sort_by:
        panel.sort_by([build.TableSortByFieldState().display_name(sort_by).desc(True)])
    return panel.no_value(empty)


def by_ranks(
    title: str, description: str, queries: Sequence[Query], *, unit: str, span: int = 12, height: int = 9,
    log: bool = False, empty: str = "Nothing at this time",
) -> Chart:  # fmt: skip
    """Values over the label `ranks`, on a logarithmic axis."""
    panel = Chart().title(title).description(description).datasource(DATASOURCE).span(span).height(height)
    first, *rest = _one_table(panel, ["ranks", *queries])
    ordered = [
        first,
        _transformation("convertFieldType", {"conversions": [{"targetField": "ranks", "destinationType": "number"}]}),
        _transformation("sortBy", {"sort": [{"field": "ranks"}]}),
        *rest,
    ]
    for transformation in ordered:
        panel.with_transformation(transformation)
    panel.unit(unit).show(XYShowMode.POINTS_AND_LINES).no_value(empty).legend(_legend())
    if log:
        panel.scale_distribution(_logarithmic(10))
    panel.override_by_name(
        "Ranks",
        [
            DynamicConfigValue("unit", "short"),
            DynamicConfigValue("custom.scaleDistribution", _logarithmic(2).build()),
            DynamicConfigValue("custom.axisLabel", "ranks"),
        ],
    )
    for query in queries:
        if properties := _properties(query):
            panel.override_by_name(query.name, properties)
    return panel


def _target(query: Query, number: int) -> Dataquery:
    target = Dataquery().expr(query.expr).legend_format(query.name).ref_id(_ref(number)).range().datasource(DATASOURCE)
    return target.interval(query.step) if query.step else target


def _one_table(panel: Table | Chart, columns: Sequence[str | Query]) -> list[DataTransformerConfig]:
    """Ask every query for a table as of now, and how to make one of them, with the columns in order."""
    queries = [column for column in columns if isinstance(column, Query)]
    for number, query in enumerate(queries):
        target = Dataquery().expr(query.expr).ref_id(_ref(number)).instant().format(PromQueryFormat.TABLE)
        panel.with_target(target.datasource(DATASOURCE))
    names: dict[str, str] = {}
    for column in columns:
        if isinstance(column, str):
            names[column] = column.capitalize()
        else:
            # So Grafana calls the values, depending on how many queries there are.
            names["Value" if len(queries) == 1 else f"Value #{_ref(queries.index(column))}"] = column.name
    order = {name: number for number, name in enumerate(names)}
    organize = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names}
    return [_transformation("merge", {}), _transformation("organize", organize)]


def _transformation(name: str, options: dict[str, object]) -> DataTransformerConfig:
    return DataTransformerConfig(name, options=options)


def _properties(query: Query) -> list[DynamicConfigValue]:
    found = dict(query.properties)
    if query.unit:
        found["unit"] = query.unit
    if query.color:
        found["color"] = FieldColor().mode(FieldColorModeId.FIXED).fixed_color(query.color).build()
    return [DynamicConfigValue(name, value) for name, value in found.items()]


def _thresholds(bad_from: float | None) -> ThresholdsConfig:
    steps = [Threshold(None, GOOD if bad_from is not None else BLUE)]
    if bad_from is not None:
        steps.append(Threshold(bad_from, BAD))
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _logarithmic(base: int) -> build.ScaleDistributionConfig:
    return build.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(base)


def _legend() -> build.VizLegendOptions:
    return (
        build.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )


def _ref(number: int) -> str:
    return "ABCDEFGH"[number]
