"""The kinds of panels. Each has a description and queries the data source that the reader has selected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

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

COLORS: Final = {
    "blue": "#0072B2",
    "sky": "#56B4E9",
    "green": "#009E73",
    "orange": "#E69F00",
    "red": "#D55E00",
    "pink": "#CC79A7",
    "grey": "#8A8A8A",
}
"""Colours that are distinct for any colour vision (Okabe and Ito 2008)."""
WRAPPED: Final[Mapping[str, object]] = {"custom.cellOptions": {"type": "auto", "wrapText": True}}
NONE: Final[Mapping[str, Any]] = {}
DATASOURCE: Final = common.DataSourceRef("prometheus", "${datasource}")

AnyPanel: TypeAlias = Stat | Timeseries | Table | Chart
P = TypeVar("P", Stat, Timeseries, Table, Chart)


@dataclass(frozen=True)
class Query:
    """A PromQL query and the name of its series; `{{label}}` in the name stands for the label's value.

    color: of COLORS. step: minimum time between points; bars of increases need the range of the increase, or events
    are counted twice. properties: further properties of the field, with Grafana's names.
    """

    expr: str
    name: str
    color: str = ""
    unit: str = ""
    step: str = ""
    properties: Mapping[str, object] = field(default_factory=dict)


def band(lower: str, expected: str, upper: str, name: str) -> list[Query]:
    """A shaded band around its median."""
    lowest = f"lower limit of {name}"
    bare: dict[str, object] = {"custom.lineWidth": 0}
    hidden = {"custom.hideFrom": {"legend": True, "tooltip": False, "viz": False}}
    shaded = {"custom.fillBelowTo": lowest, "custom.fillOpacity": 25}
    return [
        Query(lower, lowest, "grey", properties=bare | hidden),
        Query(upper, name, "grey", properties=bare | shaded),
        Query(expected, "expected", "orange"),
    ]


def stat(
    title: str, description: str, query: str, *, unit: str = "short", bad_from: float | None = None, empty: str = "-",
    decimals: int | None = None, name: str = "",
) -> Stat:  # fmt: skip
    """One number. bad_from: smallest bad value. empty: shown without data. name: shown instead of the number."""
    panel = _framed(Stat(), title, description, 4, 3, empty)
    panel.with_target(_target(Query(query, name or title), 0)).unit(unit)
    panel.graph_mode(common.BigValueGraphMode.NONE).thresholds(_thresholds(bad_from))
    panel.color_mode(common.BigValueColorMode.NONE if bad_from is None else common.BigValueColorMode.VALUE)
    if name:
        panel.text_mode(common.BigValueTextMode.NAME)
    return panel if decimals is None else panel.decimals(decimals)


def series(
    title: str, description: str, queries: Sequence[Query], *, unit: str = "short", span: int = 12,
    line_at: float | None = None, minimum: float | None = None, stacked: bool = False,
    empty: str = "No data in this time range",
) -> Timeseries:  # fmt: skip
    """Values over time. line_at: a dashed threshold, above which values are bad."""
    panel = _framed(Timeseries(), title, description, span, 8, empty)
    panel.unit(unit).line_width(1).fill_opacity(60 if stacked else 0).show_points(common.VisibilityMode.NEVER)
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
    sort_by: str = "", empty: str, links: Mapping[str, str] = NONE, widths: Mapping[str, int] = NONE,
) -> Table:  # fmt: skip
    """Values at the end of the time range. columns: labels, and queries for values; every query has all labels, or the
    first of them. links: maps a column to a URL, in which `${__value.raw}` is the cell."""
    panel = _framed(Table(), title, description, span, height, empty)
    for transformation in _one_table(panel, columns):
        panel.with_transformation(transformation)
    _override(panel, columns)
    for name, url in links.items():
        panel.override_by_name(name.capitalize(), _values({"links": [{"title": f"Open this {name}", "url": url}]}))
    if "sentence" in columns:
        panel.override_by_name("Sentence", _values(WRAPPED))
    for name, width in widths.items():
        panel.override_by_name(name, _values({"custom.width": width}))
    if sort_by:
        panel.sort_by([build.TableSortByFieldState().display_name(sort_by).desc(True)])
    return panel


def by_ranks(
    title: str, description: str, queries: Sequence[Query], *, unit: str, log: bool = False, empty: str
) -> Chart:
    """Values over the label `ranks`, on a logarithmic axis."""
    panel = _framed(Chart(), title, description, 8, 9, empty)
    merge, organize = _one_table(panel, ["ranks", *queries])
    numbers = {"conversions": [{"targetField": "ranks", "destinationType": "number"}]}
    for transformation in (
        merge,
        DataTransformerConfig("convertFieldType", options=numbers),
        DataTransformerConfig("sortBy", options={"sort": [{"field": "ranks"}]}),
        organize,
    ):
        panel.with_transformation(transformation)
    panel.unit(unit).show(XYShowMode.POINTS_AND_LINES).legend(_legend())
    if log:
        panel.scale_distribution(_logarithmic(10))
    axis = {"unit": "short", "custom.scaleDistribution": _logarithmic(2).build(), "custom.axisLabel": "ranks"}
    panel.override_by_name("Ranks", _values(axis))
    _override(panel, queries)
    return panel


def _framed(panel: P, title: str, description: str, span: int, height: int, empty: str) -> P:
    """The panel with the common properties. span, height: cells of Grafana's grid, which is 24 wide."""
    panel.title(title).description(description).datasource(DATASOURCE).span(span).height(height).no_value(empty)
    return panel


def _target(query: Query, number: int) -> Dataquery:
    target = Dataquery().expr(query.expr).legend_format(query.name).ref_id(_ref(number)).range().datasource(DATASOURCE)
    return target.interval(query.step) if query.step else target


def _one_table(panel: Table | Chart, columns: Sequence[str | Query]) -> list[DataTransformerConfig]:
    """Add the instant queries; returns the transformations that merge their results into one table."""
    queries = [column for column in columns if isinstance(column, Query)]
    for number, query in enumerate(queries):
        target = Dataquery().expr(query.expr).ref_id(_ref(number)).instant().format(PromQueryFormat.TABLE)
        panel.with_target(target.datasource(DATASOURCE))
    # The value column is named "Value" for one query, "Value #A" and so on for several.
    values = iter(["Value"] if len(queries) == 1 else [f"Value #{_ref(number)}" for number in range(len(queries))])
    names: dict[str, str] = {}
    for column in columns:
        if isinstance(column, str):
            names[column] = column.capitalize()
        else:
            names[next(values)] = column.name
    order = {name: number for number, name in enumerate(names)}
    organize = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names}
    return [DataTransformerConfig("merge", options={}), DataTransformerConfig("organize", options=organize)]


def _override(panel: Table | Chart, columns: Sequence[str | Query]) -> None:
    for column in columns:
        if isinstance(column, Query) and (properties := _properties(column)):
            panel.override_by_name(column.name, properties)


def _properties(query: Query) -> list[DynamicConfigValue]:
    found = dict(query.properties)
    if query.unit:
        found["unit"] = query.unit
    if query.color:
        found["color"] = FieldColor().mode(FieldColorModeId.FIXED).fixed_color(COLORS[query.color]).build()
    return _values(found)


def _values(properties: Mapping[str, object]) -> list[DynamicConfigValue]:
    return [DynamicConfigValue(name, value) for name, value in properties.items()]


def _thresholds(bad_from: float | None) -> ThresholdsConfig:
    if bad_from is None:
        steps = [Threshold(None, COLORS["blue"])]
    else:
        steps = [Threshold(None, COLORS["green"]), Threshold(bad_from, COLORS["red"])]
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _logarithmic(base: int) -> build.ScaleDistributionConfig:
    return build.ScaleDistributionConfig().type(common.ScaleDistribution.LOG).log(base)


def _legend() -> build.VizLegendOptions:
    legend = build.VizLegendOptions().display_mode(common.LegendDisplayMode.LIST)
    return legend.placement(common.LegendPlacement.BOTTOM).show_legend(True)


def _ref(number: int) -> str:
    return "ABCDEFGH"[number]
