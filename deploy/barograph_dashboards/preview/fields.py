"""What a panel draws: the answers to its queries with names, units and colours; or one table of them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from barograph_dashboards.preview.dashboard import Panel
from barograph_dashboards.preview.prometheus import Sample

Row = dict[str, str | float]
Properties = dict[str, Any]


def properties(panel: Panel, name: str, reference: str = "") -> Properties:
    """Defaults and overrides of one field, by the names that overrides use."""
    defaults = panel["fieldConfig"]["defaults"]
    found: Properties = {key: value for key, value in defaults.items() if key != "custom"}
    found |= {f"custom.{key}": value for key, value in defaults.get("custom", {}).items()}
    for override in panel["fieldConfig"]["overrides"]:
        if override["matcher"]["options"] == (name if override["matcher"]["id"] == "byName" else reference):
            found |= {one["id"]: one["value"] for one in override["properties"]}
    return found


def legend(template: str, labels: Mapping[str, str]) -> str:
    """A series' name: `{{label}}` stands for a label's value."""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda found: labels.get(found[1], ""), template)


def rows(panel: Panel, answers: Iterable[tuple[Panel, list[Sample]]]) -> tuple[list[str], list[Row]]:
    """Columns in order and rows: what the panel's transformations `merge` and `organize` make of its answers."""
    asked = list(answers)
    merged: list[Row] = []
    for target, samples in asked:
        value = "Value" if len(asked) == 1 else f"Value #{target['refId']}"
        for sample in samples:
            same = [row for row in merged if all(row.get(name) == text for name, text in sample.labels.items())]
            for row in same or [_new(merged, sample.labels)]:
                row[value] = sample.points[-1][1]
    organize = next(one["options"] for one in panel["transformations"] if one["id"] == "organize")
    order = sorted(organize["indexByName"], key=lambda name: organize["indexByName"][name])
    names = {name: organize["renameByName"][name] for name in order}
    table = [{title: row[name] for name, title in names.items() if name in row} for row in merged]
    for one in panel["options"].get("sortBy", ()):
        keys = {id(row): -_value(row.get(one["displayName"], math.nan)) for row in table}
        table.sort(key=lambda row: keys[id(row)])
    return list(names.values()), table


def _new(merged: list[Row], labels: Mapping[str, str]) -> Row:
    merged.append(dict(labels))
    return merged[-1]


def _value(cell: str | float) -> float:
    return cell if isinstance(cell, float) and not math.isnan(cell) else -math.inf
